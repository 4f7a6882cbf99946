//! What a worker did in one second. A worker is a process that feeds a GPU.

use std::collections::BTreeMap;

use gpuwhy_model::WaitReason;

/// What threads that feed a GPU do with their time: `blocked` for each reason, after these two.
pub const STATES: usize = 2 + WaitReason::ALL.len();

/// A process that feeds a GPU, as others in the cluster know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker {
    pub pid: u32,
    pub comm: String,
    /// Which GPU, as its program counts them.
    pub device: Option<u16>,
    /// What its surroundings call it: job, pod, rank, user.
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    /// When the second was over, by the clock of its host.
    pub at_ns: u64,
    pub worker: Worker,
    /// How often the pattern of its waits and operations came round, and how long that took on average.
    pub steps: u32,
    pub step_ns: Option<u64>,
    /// Shares of the second: from waits that returned to the next work, and while it waited. Of the rest nobody knows.
    pub gpu_idle: f64,
    pub gpu_busy: f64,
    /// Of the time of threads that feed the GPU: running, waiting for a CPU, blocked by reason.
    pub thread_time: [f64; STATES],
    /// Its communicators.
    pub parts: Vec<Part>,
    /// Records that were lost on its host, since the trace began.
    pub lost: u64,
}

/// The part that a worker has in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub communicator: u64,
    pub rank: u32,
    pub ranks: u32,
    /// Operations that it was done with when it last waited: the same number on all ranks for the same operation.
    pub operations: u64,
    /// How long it has waited for these operations, since its host knows the communicator.
    pub waited_ns: u64,
    /// When the last of these waits was over, by the clock of its host.
    pub done_ns: u64,
}
