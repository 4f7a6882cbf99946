//! A job of several ranks, each a process of its own, that says what each operation was.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::Testbed;

/// A job to be started.
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    pub ranks: u32,
    /// How many operations there are on each of the five communicators.
    pub rounds: u32,
    /// Ranks wait here for a file of this name once their communicators are made; each says so by one with its number.
    pub gate: Option<PathBuf>,
    /// The last rank of the first communicator comes so much later in each round; others wait for it.
    pub late_ms: u32,
    /// The last rank but one stops before this round, unless it is the first.
    pub stops_at: u32,
}

/// An operation as its rank knows it. -1 and the empty word stand for what it has not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Operation {
    pub pid: i64,
    pub op: String,
    pub comm: i64,
    pub rank: i64,
    pub nranks: i64,
    pub seq: i64,
    pub bytes: i64,
    pub datatype: String,
    pub reduce_op: String,
    pub peer: i64,
    pub stream: i64,
    pub group: i64,
}

impl Ranks {
    /// What follows the name of the program, which may be one that another compiler built.
    pub fn arguments(&self) -> [OsString; 5] {
        let gate = self.gate.clone().unwrap_or_default().into_os_string();
        let [ranks, rounds, late_ms, stops_at] =
            [self.ranks, self.rounds, self.late_ms, self.stops_at].map(|number| number.to_string().into());
        [ranks, rounds, gate, late_ms, stops_at]
    }

    /// The job, on its own.
    pub fn command(&self, testbed: &Testbed, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(self.arguments()).env("LD_LIBRARY_PATH", testbed.dir());
        command
    }

    /// What it printed.
    pub fn operations(output: &str) -> Result<Vec<Operation>> {
        output.lines().map(|line| serde_json::from_str(line).with_context(|| format!("read {line}"))).collect()
    }
}
