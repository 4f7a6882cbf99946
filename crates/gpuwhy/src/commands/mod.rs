//! One file per command.

mod annotate;
mod ask;
pub mod check;
mod completions;
mod dashboard;
pub mod demo;
mod explain;
mod export;
mod fleet;
mod mcp;
mod merge;
mod nodes;
mod query;
mod serving;
mod top;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use gpuwhy_questions::{Length, Moment, Part};

#[derive(Subcommand)]
pub enum Command {
    Check(check::Check),
    Trace(Box<trace::Trace>),
    Top(top::Top),
    Explain(explain::Explain),
    Query(query::Query),
    Ask(ask::Ask),
    Export(export::Export),
    Merge(merge::Merge),
    Annotate(annotate::Annotate),
    Mcp(mcp::Mcp),
    Dashboard(dashboard::Dashboard),
    Fleet(fleet::Fleet),
    Demo(demo::Demo),
    Completions(completions::Completions),
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
            Self::Export(command) => command.run(),
            Self::Merge(command) => command.run(),
            Self::Annotate(command) => command.run(),
            Self::Mcp(command) => command.run(),
            Self::Dashboard(command) => command.run(),
            Self::Fleet(command) => command.run(),
            Self::Demo(command) => command.run(),
            Self::Completions(command) => command.run(),
        }
    }
}

/// A part of the one trace that a command reads.
#[derive(Args, Clone)]
struct When {
    /// Only the last part of the trace: 30s, 5m, 2h, counted back from its end.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "to"])]
    since: Option<Length>,
    /// Only from this moment on: 2026-01-31T12:00:00Z, a time of today, or nanoseconds since 1970.
    #[arg(long, value_name = "MOMENT")]
    from: Option<Moment>,
    /// Only up to this moment.
    #[arg(long, value_name = "MOMENT")]
    to: Option<Moment>,
    /// Only this process.
    #[arg(long)]
    pid: Option<u32>,
    /// Only from the first moment to the last at which this annotation held: step=12.
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["since", "from", "to"])]
    label: Option<String>,
}

impl When {
    fn part(&self) -> Part {
        Part { trace: None, since: self.since, from: self.from, to: self.to, pid: self.pid, label: self.label.clone() }
    }
}

/// The trace that is named in one of two ways, or the newest one.
fn trace_or_newest(db: Option<&PathBuf>, file: Option<&PathBuf>) -> Result<PathBuf> {
    db.or(file).map_or_else(newest_trace, |file| Ok(file.clone()))
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
