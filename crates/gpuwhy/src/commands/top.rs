//! `gpuwhy top`: the live view, without a trace to keep.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use gpuwhy_agent::{CostOptions, Outcome, Signals, Target, TraceOptions, user_id};
use gpuwhy_questions::units::parse_share;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGTSTP};

use crate::top::{self, About, Plain, Viewing};

/// Watch live why the GPU waits: threads, calls and findings as they appear. Nothing is kept.
#[derive(Args)]
pub struct Top {
    /// Watch this process and its descendants; may be given several times. Everybody when no target is named.
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,
    /// Watch the processes of this user (name or number).
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// The most that tracing may take from any thread: 1%, 0.5%; 0 for no limit.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "1%")]
    budget: f64,
}

/// Half a minute of records is far below this; older ones are deleted.
const MOST_BYTES: u64 = 256 << 20;

impl Top {
    pub fn run(self) -> Result<ExitCode> {
        let folder = tempfile::Builder::new().prefix("gpuwhy-top-").tempdir().context("make a temporary folder")?;
        let options = TraceOptions {
            out: folder.path().join("top.db"),
            target: Target {
                pids: self.pid.clone(),
                uid: self.user.as_deref().map(user_id).transpose()?,
                ..Target::default()
            },
            max_size: Some(MOST_BYTES),
            cost: CostOptions { budget: (self.budget > 0.0).then_some(self.budget), ..CostOptions::default() },
            ..TraceOptions::default()
        };
        watch(&options)?;
        folder.close().context("delete the temporary folder")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn watch(options: &TraceOptions) -> Result<Outcome> {
    let signals = Signals::default();
    let about = About {
        title: "gpuwhy top".to_owned(),
        file: options.out.clone(),
        budget: options.cost.budget,
        is_kept: false,
    };
    if top::has_terminal() {
        let viewing = Viewing::start(&about, &signals)?;
        return gpuwhy_agent::trace(options, viewing.watch(), &signals);
    }
    // A reader that is gone must not leave the temporary file behind.
    top::stop_on_signals(&signals, &[SIGINT, SIGTERM, SIGHUP, SIGPIPE])?;
    top::register(SIGTSTP, &signals.suspend)?;
    gpuwhy_agent::trace(options, Box::new(Plain::new(&about)), &signals)
}
