//! `gpuwhy dashboard`: the same questions in a browser.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use gpuwhy_outputs::Plain;

use super::serving::{Security, asker, parse_address};

/// Look at a trace in a browser; the same port has the HTTP API and MCP.
#[derive(Args)]
pub struct Dashboard {
    /// The trace [default: the newest gpuwhy-*.db here]; several may be compared.
    #[arg(long, value_name = "FILE")]
    db: Vec<PathBuf>,
    /// Where to listen. Other machines can reach only what is not loopback, and need a token.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    addr: SocketAddr,
    #[command(flatten)]
    security: Security,
}

impl Dashboard {
    pub fn run(self) -> Result<ExitCode> {
        self.security.serve(self.addr, Plain::OnLoopback, true, asker(self.db)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
