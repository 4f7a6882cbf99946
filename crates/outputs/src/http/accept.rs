//! Connections: so many at once, each in a task of its own, so that one that is slow or broken holds up no other.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
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
pub async fn serve(
    listener: TcpListener,
    tls: Option<tls::Acceptor>,
    router: Router,
    patience: Patience,
    most: usize,
    stop: CancellationToken,
    at_end: impl FnOnce(),
) {
    let connections = TaskTracker::new();
    let one = Connection { tls, router, patience, stop: stop.clone() };
    tokio::select! {
        () = accept(&listener, &one, &connections, most) => {}
        () = stop.cancelled() => {}
    }
    // The port is free from now on, also while a child that the tracer leaves behind still holds it.
    if let Err(error) = shutdown(&listener, Shutdown::Both) {
        tracing::warn!(%error, "the port is not free yet");
    }
    drop(listener);
    at_end();
    connections.close();
    let _ = timeout(patience.goodbye, connections.wait()).await;
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

#[derive(Clone)]
struct Connection {
    tls: Option<tls::Acceptor>,
    router: Router,
    patience: Patience,
    stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let ends = Ends { peer, here: stream.local_addr()? };
        let stream = Taken::new(stream, self.patience.taking);
        let Some(tls) = self.tls.clone() else { return self.requests(stream, ends).await };
        let encrypted = timeout(self.patience.handshake, tls.accept(stream)).await??;
        self.requests(encrypted, ends).await
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

async fn answer(router: Router, request: Request<Incoming>, ends: Ends) -> Result<Response, Infallible> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ends);
    router.oneshot(request).await
}
