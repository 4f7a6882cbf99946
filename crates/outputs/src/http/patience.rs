//! How long anything may take, so that a slow client costs a place for a while and not for ever.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the head of a request, and between two requests of a connection.
    pub head: Duration,
    /// For the body of a request.
    pub body: Duration,
    /// For a client to take the next bytes of an answer.
    pub taking: Duration,
    /// For connections to end when the server does.
    pub goodbye: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [ten, thirty] = [10, 30].map(Duration::from_secs);
        Self { handshake: ten, head: thirty, body: thirty, taking: thirty, goodbye: Duration::from_secs(3) }
    }
}

/// A connection that breaks when its other end takes nothing for too long.
pub struct Taken<S> {
    stream: S,
    longest: Duration,
    waiting: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Taken<S> {
    pub fn new(stream: S, longest: Duration) -> Self {
        Self { stream, longest, waiting: Box::pin(sleep(longest)), is_waiting: false }
    }

    /// The result, or that it has taken too long.
    fn timed<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.is_waiting = false;
            return polled;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.waiting.as_mut().reset(Instant::now() + self.longest);
        }
        ready!(self.waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = pin!(&mut self.stream).poll_write(context, bytes);
        self.timed(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = pin!(&mut self.stream).poll_flush(context);
        self.timed(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = pin!(&mut self.stream).poll_shutdown(context);
        self.timed(polled, context)
    }
}
