//! What a workload says it did.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Everything a workload printed, of all its processes and images.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub calls: Vec<CallTruth>,
    /// With `clocks`, of each thread.
    pub clocks: Vec<ClockTruth>,
    pub ends: Vec<EndTruth>,
}

/// The calls of one thread to one function. Times are `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Deserialize)]
pub struct CallTruth {
    pub pid: u32,
    pub tid: u32,
    /// 0, or 1 after `exec_self`.
    pub image: u32,
    pub thread: u32,
    pub device: u32,
    #[serde(default)]
    pub stream: u64,
    /// The thread that ends this one's futex and pipe waits; 0 when there are none.
    #[serde(default)]
    pub releaser_tid: u32,
    pub layer: String,
    /// The function's name without version suffix.
    pub op: String,
    /// For a runtime function the driver function it calls. `cudaSetDevice` calls `cuDevicePrimaryCtxRetain` before.
    pub inner: Option<String>,
    /// Calls that returned.
    pub calls: u64,
    /// Calls that were entered and never returned.
    pub abandoned: u64,
    pub errors: u64,
    pub bytes: u64,
    /// Sum of the durations of the calls that returned.
    pub wall_ns: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// With `clocks`, what the kernel says of the same calls: their time on a CPU, and waiting for one.
    #[serde(default)]
    pub cpu_ns: u64,
    #[serde(default)]
    pub run_queue_ns: u64,
    /// Calls in which the thread gave up the CPU by itself.
    #[serde(default)]
    pub waiting_calls: u64,
}

/// What the kernel says of one thread, from its first call to its last.
#[derive(Clone, Debug, Deserialize)]
pub struct ClockTruth {
    pub tid: u32,
    pub cpu_ns: u64,
    pub run_queue_ns: u64,
}

/// The last word of one process image.
#[derive(Clone, Debug, Deserialize)]
pub struct EndTruth {
    pub pid: u32,
    pub image: u32,
    pub threads: u32,
    pub calls: u64,
    pub elapsed_ns: u64,
    /// The process that was forked inside a call.
    pub child_pid: Option<u32>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Calls(CallTruth),
    Clocks(ClockTruth),
    End(EndTruth),
}

impl Truth {
    /// Adds one line of a workload's output.
    pub(crate) fn add(&mut self, line: &str) -> Result<()> {
        match serde_json::from_str(line).with_context(|| format!("read the workload's line {line:?}"))? {
            Line::Calls(calls) => self.calls.push(calls),
            Line::Clocks(clocks) => self.clocks.push(clocks),
            Line::End(end) => self.ends.push(end),
        }
        Ok(())
    }

    /// Calls of a function that returned, over all threads.
    pub fn calls_of(&self, op: &str) -> u64 {
        self.rows_of(op).map(|row| row.calls).sum()
    }

    /// What each thread says about a function.
    pub fn rows_of<'a>(&'a self, op: &'a str) -> impl Iterator<Item = &'a CallTruth> {
        self.calls.iter().filter(move |row| row.op == op)
    }

    pub fn total_calls(&self) -> u64 {
        self.calls.iter().map(|row| row.calls).sum()
    }

    pub fn tids(&self) -> BTreeSet<u32> {
        self.calls.iter().map(|row| row.tid).collect()
    }
}
