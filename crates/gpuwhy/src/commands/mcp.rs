//! `gpuwhy mcp`: the questions as tools of an AI assistant, over standard input and output or over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use gpuwhy_outputs::Plain;

use super::serving::{Security, asker, parse_address, until_signal};

/// Serve a trace to an AI assistant (MCP), over standard input and output or, with --http, on a port that also has the
/// HTTP API.
#[derive(Args)]
pub struct Mcp {
    /// The trace [default: the newest gpuwhy-*.db here]; several may be compared.
    #[arg(long, value_name = "FILE")]
    db: Vec<PathBuf>,
    /// Serve at this address instead: MCP at /mcp, the HTTP API at /api.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    http: Option<SocketAddr>,
    #[command(flatten)]
    security: Security,
}

impl Mcp {
    pub fn run(self) -> Result<ExitCode> {
        let asker = asker(self.db)?;
        match self.http {
            Some(address) => self.security.serve(address, Plain::Never, false, asker)?,
            None if self.security.is_given() => bail!("options about TLS, tokens and requests are for --http"),
            None => until_signal(async |stop| Ok(gpuwhy_outputs::mcp::serve_stdio(asker, stop).await?))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
