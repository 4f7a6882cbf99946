//! One port for MCP, the HTTP API and the dashboard. Every request goes the same way: who is it, put it on record, is it
//! too much, and only then what it asks for. So a request that is refused is on record too.
//!
//! | module | what it does |
//! |---|---|
//! | `settings` | where to listen and what is demanded of clients; refuses what would be open to all |
//! | `accept`, `tls`, `patience` | connections: how many, encrypted, and never for ever |
//! | `chain` | the way of a request: `auth`, `audit`, `limit`, then a route |
//! | `grants`, `tokens` | what a token is good for; the file that tells of many |
//! | `api`, `openapi`, `body` | the questions as paths |
//! | `whole` | a trace as a whole |
//! | `mcp` | the questions as tools |
//! | `files` | the dashboard |
//! | `metrics` | a port of its own, for those who scrape a trace that is being taken |

mod accept;
mod api;
mod audit;
mod auth;
pub(crate) mod body;
mod chain;
mod files;
mod grants;
mod limit;
mod mcp;
mod metrics;
mod openapi;
mod patience;
mod settings;
mod tls;
mod tokens;
mod whole;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::routing::{get, post};
use gpuwhy_history::Kind;
use rmcp::ServerHandler;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Asker;
use crate::Refusal;
use crate::fleet;
use crate::mcp::Calls;
use crate::otlp::{LOGS, METRICS};

pub use accept::allow_many_connections;
pub(crate) use audit::Remark;
pub use auth::Token;
pub(crate) use grants::{Grant, NODE};
pub use metrics::MetricsServer;
pub use patience::Patience;
pub use settings::{Plain, Settings, SettingsError, TlsFiles};
pub use tokens::Tokens;

/// What all requests share.
pub(crate) struct Doors {
    pub asker: Arc<Asker>,
    pub entrance: auth::Entrance,
    pub audit: audit::Audit,
    pub rate: limit::Rate,
    pub rooms: limit::Rooms,
    pub patience: Patience,
    pub mcp: mcp::Mcp,
    pub has_dashboard: bool,
    pub since: Instant,
}

/// A port that is bound and not yet served.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<tls::Acceptor>,
    doors: Arc<Doors>,
}

impl Server {
    pub async fn bind(settings: Settings, asker: Arc<Asker>) -> Result<Self, SettingsError> {
        let mcp = mcp::Mcp::new(&asker);
        Self::bind_around(settings, asker, mcp).await
    }

    /// The same doors with other tools behind them, which a test of the protocol wants.
    pub async fn bind_with<S: ServerHandler + Clone>(
        settings: Settings,
        asker: Arc<Asker>,
        server: S,
    ) -> Result<Self, SettingsError> {
        Self::bind_around(settings, asker, mcp::Mcp::around(server, Calls::default())).await
    }

    async fn bind_around(settings: Settings, asker: Arc<Asker>, mcp: mcp::Mcp) -> Result<Self, SettingsError> {
        settings.check()?;
        let tls = settings.tls.as_ref().map(|files| tls::acceptor(files, asker.fleet().is_some())).transpose()?;
        let audit = audit::Audit::open(settings.audit_log.as_deref())?;
        let address = settings.address;
        let cannot_bind = |source| SettingsError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(cannot_bind)?;
        let address = listener.local_addr().map_err(cannot_bind)?;
        let grants = grants::Grants::new(settings.token.as_ref(), settings.tokens);
        let doors = Doors {
            mcp,
            asker,
            entrance: auth::Entrance { grants, allowed_hosts: settings.allowed_hosts },
            audit,
            rate: limit::Rate::new(settings.rate),
            rooms: limit::Rooms::new(),
            patience: settings.patience,
            has_dashboard: settings.has_dashboard,
            since: Instant::now(),
        };
        Ok(Self { listener, address, tls, doors: Arc::new(doors) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// Serves until `stop` is cancelled; then questions are withdrawn and connections end.
    pub async fn serve(self, stop: CancellationToken) {
        let is_fleet = self.doors.asker.fleet().is_some();
        if is_fleet {
            allow_many_connections();
        }
        let most = if is_fleet { accept::CONNECTIONS_OF_FLEET } else { accept::CONNECTIONS };
        let (tls, router, patience) = (self.tls, router(Arc::clone(&self.doors)), self.doors.patience);
        // Only who tells a fleet speaks gRPC, which is HTTP/2.
        let connection = accept::Connection { tls, router, patience, has_http2: is_fleet, stop };
        accept::serve(self.listener, connection, most, || self.doors.asker.stop()).await;
        self.doors.audit.close();
    }
}

fn router(doors: Arc<Doors>) -> Router {
    Router::new()
        .route("/api/versions", get(api::versions))
        .route("/api/v1/health", get(api::health))
        .route("/api/v1/tools/list", get(api::list))
        .route("/api/v1/tools/{name}", post(api::tool))
        .route("/api/v1/sql", post(api::sql))
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/api/v1/trace", get(whole::trace))
        .route(METRICS.path, fleet::door(Kind::Metrics))
        .route(LOGS.path, fleet::door(Kind::Logs))
        .route(METRICS.method, fleet::grpc::door(Kind::Metrics))
        .route(LOGS.method, fleet::grpc::door(Kind::Logs))
        .route("/mcp", post(mcp::post))
        .fallback(files::file)
        .method_not_allowed_fallback(async || Refusal::WrongMethod)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&doors), chain::pass))
        .with_state(doors)
}
