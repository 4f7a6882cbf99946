//! A program that works and launches in turn, looked at in slices while a tracer comes and goes.

use crate::Testbed;
use crate::child::LineChild;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);

/// A launch loop to be started: threads that each do a fixed amount of work before every `cuLaunchKernel`, so that what
/// a tracer takes makes them slower.
#[derive(Debug)]
pub struct LaunchLoop {
    command: Command,
}

/// What the threads did during a slice.
#[derive(Clone, Debug, Deserialize)]
pub struct Slice {
    pub wall_ns: u64,
    pub threads: Vec<ThreadSlice>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ThreadSlice {
    pub calls: u64,
    /// Pieces of work done, with the part of the one in progress: finer than `calls` where launches are rare.
    pub rounds: f64,
    pub cpu_ns: u64,
}

impl Slice {
    /// Rounds of all threads per second of wall time.
    pub fn rounds_per_second(&self) -> f64 {
        self.rounds() / (self.wall_ns as f64 / 1e9)
    }

    /// Rounds of all threads per second of their CPU time.
    pub fn rounds_per_cpu_second(&self) -> f64 {
        self.rounds() / (self.threads.iter().map(|thread| thread.cpu_ns).sum::<u64>() as f64 / 1e9)
    }

    fn rounds(&self) -> f64 {
        self.threads.iter().map(|thread| thread.rounds).sum()
    }
}

/// Everything a launch loop did.
#[derive(Clone, Debug, Default)]
pub struct LoopTruth {
    pub threads: Vec<ThreadTruth>,
    pub slow_op: Option<SlowOpTruth>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ThreadTruth {
    pub tid: u32,
    pub calls: u64,
    /// Those of the calls that `bimodal` made slow.
    pub slow_calls: u64,
}

/// The calls that `slow_op` asked for.
#[derive(Clone, Debug, Deserialize)]
pub struct SlowOpTruth {
    pub op: String,
    pub tid: u32,
    /// Just before each call, `CLOCK_MONOTONIC`.
    pub starts_ns: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Thread(ThreadTruth),
    SlowOp(SlowOpTruth),
}

impl LaunchLoop {
    pub fn new(testbed: &Testbed) -> Self {
        let mut command = Command::new(testbed.launch_loop());
        command.env("LD_LIBRARY_PATH", testbed.dir());
        Self { command }
    }

    pub fn threads(self, count: u32) -> Self {
        self.setting("--threads", count)
    }

    /// Launches per thread and second when nothing slows them down.
    pub fn rate(self, per_second: f64) -> Self {
        self.setting("--rate", per_second)
    }

    /// Lets this share of the launches burn CPU time for `extra` inside the call.
    pub fn bimodal(self, share: f64, extra: Duration) -> Self {
        self.setting("--bimodal", format!("{share}:{}", extra.as_nanos()))
    }

    /// Lets one more thread call another driver function, named without version suffix, that sleeps for `length`.
    pub fn slow_op(self, name: &str, every: Duration, length: Duration) -> Self {
        self.setting("--slow-op", name)
            .setting("--slow-every", every.as_millis())
            .setting("--slow-ns", length.as_nanos())
    }

    /// Starts the process and waits until it knows how fast the machine is. It makes no call before `go`.
    pub fn start(self) -> Result<RunningLoop> {
        let mut child = LineChild::spawn(self.command, LIMIT)?;
        child.wait_ready()?;
        Ok(RunningLoop { child })
    }

    fn setting(mut self, flag: &str, value: impl ToString) -> Self {
        self.command.arg(flag).arg(value.to_string());
        self
    }
}

/// A launch loop that was started. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningLoop {
    child: LineChild,
}

impl RunningLoop {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub fn go(&mut self) -> Result<()> {
        self.child.send("go")
    }

    /// Looks at the running threads for this long.
    pub fn slice(&mut self, length: Duration) -> Result<Slice> {
        self.child.send(&format!("slice {}", length.as_millis()))?;
        let line = self.child.next_line()?.context("the launch loop ended inside a slice")?;
        serde_json::from_str(&line).with_context(|| format!("read the launch loop's line {line:?}"))
    }

    /// Stops the threads and waits for the exit.
    pub fn finish(mut self) -> Result<LoopTruth> {
        self.child.close_stdin();
        let mut truth = LoopTruth::default();
        while let Some(line) = self.child.next_line()? {
            match serde_json::from_str(&line).with_context(|| format!("read the launch loop's line {line:?}"))? {
                Line::Thread(thread) => truth.threads.push(thread),
                Line::SlowOp(slow_op) => truth.slow_op = Some(slow_op),
            }
        }
        let status = self.child.wait_exit()?;
        if !status.success() {
            bail!("the launch loop failed: {status}");
        }
        Ok(truth)
    }
}
