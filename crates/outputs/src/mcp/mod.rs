//! MCP: the questions as tools of an assistant. What traced programs said of themselves reaches the model as data that is
//! fenced in, never as words to follow.

mod fence;
mod prompt;
mod resources;
mod server;

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;
use tokio_util::sync::CancellationToken;

use crate::Asker;

pub(crate) use fence::{harmless, random_hex};
pub use server::McpServer;
pub(crate) use server::{Calls, SESSION};

/// Serves one assistant over standard input and output until it goes away or `stop` is cancelled. Standard output
/// carries the protocol and nothing else.
pub async fn serve_stdio(asker: Arc<Asker>, stop: CancellationToken) -> std::io::Result<()> {
    let ended = async {
        let running = McpServer::new(Arc::clone(&asker)).serve(stdio_pipes()).await?;
        running.waiting().await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    let ended = tokio::select! {
        ended = ended => ended,
        () = stop.cancelled() => Ok(()),
    };
    asker.stop();
    ended.map_err(std::io::Error::other)
}
