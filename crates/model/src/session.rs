//! One run of the tracer: what is known when it starts, and how it ended.

use crate::{Calibration, Losses};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    pub started_ns: u64,
    pub version: String,
    pub host: String,
    pub boot_id: String,
    pub kernel: String,
    pub cpus: u32,
    /// One line per GPU, as the driver names it.
    pub gpus: Vec<String>,
    pub driver: Option<String>,
    pub command: String,
    /// `session`, `multi` or `single`: how probes are attached on this kernel.
    pub attach_path: String,
    /// Measured cost of a probe on this machine.
    pub probe_cost_ns: Option<u64>,
    /// Measured costs on this machine.
    pub calibrations: Vec<Calibration>,
    /// Share of the workload's time that tracing may take: 0.01 is 1 %. `None` is no budget.
    pub budget: Option<f64>,
    pub is_virtual_machine: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionEnd {
    pub ended_ns: u64,
    /// Finished calls the kernel counted.
    pub seen: u64,
    pub losses: Losses,
    /// CPU time the tracer itself used.
    pub agent_cpu_ns: u64,
    /// Why the trace stopped: `finished`, `interrupted`, `disk full`...
    pub reason: String,
}

impl SessionEnd {
    /// The reason when somebody ended the trace by hand.
    pub const INTERRUPTED: &str = "interrupted";

    /// Somebody waits for the end: it comes before what is written is safe from a loss of power.
    pub fn is_hurried(&self) -> bool {
        self.reason == Self::INTERRUPTED
    }
}
