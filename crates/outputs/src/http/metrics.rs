//! A port for those who scrape: `GET /metrics`, and nothing else. It tells numbers and names of programs, and nobody can
//! ask it for anything that takes long.

mod protobuf;
mod wanted;

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gpuwhy_metrics::{Format, Shared};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Patience, SettingsError, accept};
use wanted::Wanted;

/// A port that is bound and not yet served.
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsServer {
    pub async fn bind(address: SocketAddr) -> Result<Self, SettingsError> {
        let cannot_bind = |source| SettingsError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(cannot_bind)?;
        let address = listener.local_addr().map_err(cannot_bind)?;
        Ok(Self { listener, address })
    }

    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    pub async fn serve(self, registry: Shared, stop: CancellationToken) {
        let router = Router::new().route("/metrics", get(metrics)).with_state(registry);
        let connection =
            accept::Connection { tls: None, router, patience: Patience::default(), has_http2: false, stop };
        accept::serve(self.listener, connection, accept::CONNECTIONS, || {}).await;
    }
}

async fn metrics(State(registry): State<Shared>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let wanted = Wanted::accepted(&accept.join(","));
    let body = match wanted {
        Wanted::Protobuf => protobuf::write(&mut registry.lock()),
        Wanted::OpenMetrics => Format::OpenMetrics.write(&mut registry.lock()).into_bytes(),
        Wanted::Classic => Format::Classic.write(&mut registry.lock()).into_bytes(),
    };
    ([(CONTENT_TYPE, wanted.content_type())], body).into_response()
}
