//! Timing one call in rounds, between which a tracer can attach and detach.

use crate::Testbed;
use crate::child::LineChild;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// A process that calls `cuLaunchKernel`, or `ncclAllReduce`, in a tight loop when told to. It is killed when this is dropped.
#[derive(Debug)]
pub struct Bench {
    child: LineChild,
}

/// What a call cost in one round, in thread CPU time.
#[derive(Clone, Debug, Deserialize)]
pub struct Round {
    pub round: u32,
    pub threads: u32,
    /// Calls of each thread.
    pub calls: u64,
    /// The mean over the threads.
    pub ns_per_call: f64,
    pub by_thread: Vec<f64>,
}

impl Bench {
    pub fn start(testbed: &Testbed, threads: u32) -> Result<Self> {
        Self::start_with(testbed, &["--threads", &threads.to_string()])
    }

    /// One thread that asks for collective operations.
    pub fn start_collectives(testbed: &Testbed) -> Result<Self> {
        Self::start_with(testbed, &["--collectives"])
    }

    fn start_with(testbed: &Testbed, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(testbed.bench_calls());
        command.env("LD_LIBRARY_PATH", testbed.dir()).args(arguments);
        let mut child = LineChild::spawn(command, LIMIT)?;
        child.wait_ready()?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets every thread make this many calls.
    pub fn round(&mut self, calls: u64) -> Result<Round> {
        self.child.send(&format!("round {calls}"))?;
        let line = self.child.next_line()?.context("the bench ended inside a round")?;
        serde_json::from_str(&line).with_context(|| format!("read the bench's line {line:?}"))
    }
}
