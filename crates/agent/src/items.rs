//! What was drained from the kernel, in the order of time: what the draining thread hands on to be named.

use crate::annotations::Heard;
use gpuwhy_capture::{CountDelta, Device, IoSums, Record, StackHash, ThreadSnapshot, WalkCount};
use gpuwhy_model::{Losses, Rung, Sample, Stack};

pub enum Item {
    Record(Record),
    /// The last counts of a thread or program stand before its end.
    Counts(Vec<Counted>),
    /// A thread ended.
    ThreadEnd(ThreadReport),
    Rung(RungNews),
    /// The frames of a stack that records name by its hash.
    Stack(StackHash, Stack),
    /// Launches of a process with this handle launch that kernel.
    Kernel {
        pid: u32,
        handle: u64,
        name: String,
    },
    Samples(Vec<Sample>),
    Annotations(Vec<Heard>),
    Tick(Tick),
}

/// Counts of a thread and function, with what they stand for.
#[derive(Clone, Debug)]
pub struct Counted {
    pub delta: CountDelta,
    /// Calls made, as far as is known.
    pub estimate: u64,
    /// Of the estimate; 0 when every call was seen.
    pub variance: f64,
}

impl Counted {
    pub fn exactly(delta: CountDelta) -> Self {
        Self { estimate: delta.count, variance: 0.0, delta }
    }

    /// The share of the calls that was seen.
    pub fn fraction(&self) -> f64 {
        if self.estimate == 0 { 1.0 } else { self.delta.count as f64 / self.estimate as f64 }
    }
}

/// A thread's clocks, and what tracing took from it since the last report.
pub struct ThreadReport {
    pub snapshot: ThreadSnapshot,
    pub taken_ns: u64,
}

/// A function of a process is watched more or less closely from now on.
#[derive(Clone, Debug)]
pub struct RungNews {
    pub at_ns: u64,
    pub pid: u32,
    pub row: u16,
    pub rung: Rung,
    pub fraction: f64,
    pub reason: String,
}

/// What the tracer itself used within one bucket of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub hooks_ns: u64,
    /// How long a program at the entry or return of a call runs, as last measured.
    pub call_program_ns: u64,
}

/// The end of a bucket of time.
pub struct Tick {
    pub threads: Vec<ThreadReport>,
    pub losses: Losses,
    pub probes: usize,
    /// What every process has asked of every block device so far.
    pub io: Vec<((Device, u32), IoSums)>,
    pub usage: Usage,
    /// The share of its time that the thread lost from which most was taken in this bucket.
    pub worst: f64,
    /// How walks over stacks have ended so far.
    pub walks: Vec<WalkCount>,
}
