//! One file per command.

mod check;
mod query;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Check(check::Check),
    Trace(trace::Trace),
    Query(query::Query),
}

impl Command {
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Check(command) => command.run(),
            Self::Trace(command) => command.run(),
            Self::Query(command) => command.run(),
        }
    }
}
