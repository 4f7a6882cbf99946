//! One file per command.

mod ask;
pub mod check;
mod dashboard;
pub mod demo;
mod explain;
mod mcp;
mod merge;
mod query;
mod serving;
mod top;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Check(check::Check),
    Trace(trace::Trace),
    Top(top::Top),
    Explain(explain::Explain),
    Query(query::Query),
    Ask(ask::Ask),
    Merge(merge::Merge),
    Mcp(mcp::Mcp),
    Dashboard(dashboard::Dashboard),
    Demo(demo::Demo),
}

impl Command {
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Check(command) => command.run(),
            Self::Trace(command) => command.run(),
            Self::Top(command) => command.run(),
            Self::Explain(command) => command.run(),
            Self::Query(command) => command.run(),
            Self::Ask(command) => command.run(),
            Self::Merge(command) => command.run(),
            Self::Mcp(command) => command.run(),
            Self::Dashboard(command) => command.run(),
            Self::Demo(command) => command.run(),
        }
    }
}

/// What to read when no trace is named.
fn newest_trace() -> Result<PathBuf> {
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("gpuwhy") && name.ends_with(".db")
    };
    let traces = std::fs::read_dir(".")?.flatten().map(|entry| entry.path()).filter(ours);
    let newest = traces.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    match newest {
        Some(path) => Ok(path),
        None => bail!("no trace is named and there is no gpuwhy-*.db here"),
    }
}
