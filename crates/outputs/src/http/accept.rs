//! Connections: so many at once, each in a task of its own, so that one that is slow or broken holds up no other.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::HOST;
use axum::http::{HeaderValue, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::patience::{Patience, Taken};
use super::tls;

/// More wait outside until one ends.
pub const CONNECTIONS: usize = 256;
/// Each node of a fleet keeps one.
pub const CONNECTIONS_OF_FLEET: usize = 16_384;
/// The head of a request.
const MOST_HEAD_BYTES: usize = 32 << 10;
const MOST_HEADERS: usize = 64;

/// Requests at once of a connection that speaks HTTP/2, and how often it is asked whether it is still there.
const MOST_STREAMS: u32 = 32;
const STILL_THERE: Duration = Duration::from_secs(60);
/// Who has asked before may be silent for so long, which is longer than any answer takes.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// How HTTP/2 begins, and nothing of HTTP/1.
const PREFACE: &[u8] = b"PRI";

/// As many descriptors as there may be: each connection takes one.
pub fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "no more connections than usual");
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub peer: SocketAddr,
    pub here: SocketAddr,
}

/// Serves until `stop` is cancelled; then calls `at_end`, and connections end.
pub async fn serve(listener: TcpListener, one: Connection, most: usize, at_end: impl FnOnce()) {
    let connections = TaskTracker::new();
    tokio::select! {
        () = accept(&listener, &one, &connections, most) => {}
        () = one.stop.cancelled() => {}
    }
    // The port is free from now on, also while a child that the tracer leaves behind still holds it.
    if let Err(error) = shutdown(&listener, Shutdown::Both) {
        tracing::warn!(%error, "the port is not free yet");
    }
    drop(listener);
    at_end();
    connections.close();
    let _ = timeout(one.patience.goodbye, connections.wait()).await;
}

async fn accept(listener: &TcpListener, one: &Connection, connections: &TaskTracker, most: usize) {
    let places = Arc::new(Semaphore::new(most));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let one = one.clone();
                connections.spawn(async move {
                    let _place = place;
                    if let Err(error) = one.serve(stream, peer).await {
                        tracing::debug!(%peer, %error, "a connection broke");
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: connections that end give some back.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// What each connection is served with.
#[derive(Clone)]
pub struct Connection {
    pub tls: Option<tls::Acceptor>,
    pub router: Router,
    pub patience: Patience,
    pub has_http2: bool,
    pub stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let ends = Ends { peer, here: stream.local_addr()? };
        let Some(tls) = self.tls.clone() else {
            let is_http2 = self.has_http2 && timeout(self.patience.head, begins_http2(&stream)).await??;
            let stream = Taken::new(stream, self.patience.taking);
            return self.protocol(stream, ends, is_http2).await;
        };
        let stream = Taken::new(stream, self.patience.taking);
        let encrypted = timeout(self.patience.handshake, tls.accept(stream)).await??;
        let is_http2 = encrypted.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
        self.protocol(encrypted, ends, is_http2).await
    }

    async fn protocol(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        ends: Ends,
        is_http2: bool,
    ) -> io::Result<()> {
        if is_http2 { self.streams(stream, ends).await } else { self.requests(stream, ends).await }
    }

    /// Requests beside each other.
    async fn streams(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, ends: Ends) -> io::Result<()> {
        let (router, asked) = (self.router, Arc::new(Notify::new()));
        let heard = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Incoming>| {
            heard.notify_one();
            answer(router.clone(), request, ends)
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(MOST_HEAD_BYTES as u32)
            .keep_alive_interval(STILL_THERE)
            .keep_alive_timeout(self.patience.head)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = silence(&asked, self.patience.head) => {
                connection.as_mut().graceful_shutdown();
                // One that has not even begun has nothing to end.
                return timeout(self.patience.goodbye, connection).await?.map_err(io::Error::other);
            }
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(io::Error::other)
    }

    async fn requests(self, stream: impl AsyncRead + AsyncWrite + Unpin, ends: Ends) -> io::Result<()> {
        let router = self.router;
        let service = service_fn(move |request: Request<Incoming>| answer(router.clone(), request, ends));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience.head)
            .max_headers(MOST_HEADERS)
            .max_buf_size(MOST_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(io::Error::other)
    }
}

/// Waits until a connection has not asked for anything for too long: at first, and after a request.
async fn silence(asked: &Notify, head: Duration) {
    let mut patience = head;
    while timeout(patience, asked.notified()).await.is_ok() {
        patience = LONGEST_SILENCE;
    }
}

/// Whether a connection that is not encrypted speaks HTTP/2.
async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    let count = stream.peek(&mut first).await?;
    Ok(first[..count] == *PREFACE)
}

async fn answer(router: Router, request: Request<Incoming>, ends: Ends) -> Result<Response, Infallible> {
    let mut request = request.map(Body::new);
    // HTTP/2 says by its address what HTTP/1 says in a header.
    let authority = request.uri().authority().filter(|_| !request.headers().contains_key(HOST));
    if let Some(host) = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    request.extensions_mut().insert(ends);
    router.oneshot(request).await
}
