//! What tracing costs, and what the tracer does about it.

use crate::api::words;
use crate::{OpId, ProcessId};

words! {
    /// How closely the calls of a function are watched. Each rung costs less than the one before and says less.
    Rung {
        /// Every call is kept.
        Everything = "everything",
        /// Every call is counted, slow ones are kept.
        SlowOnly = "slow-only",
        /// Calls are counted and kept in short windows only.
        Bursts = "bursts",
        /// Calls are counted in short windows only, and none is kept.
        Counters = "counters",
    }
}

/// A function of one process is watched more or less closely from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct RungChange {
    pub at_ns: u64,
    pub process: ProcessId,
    pub op: OpId,
    pub rung: Rung,
    /// Share of the time the function is probed from now on; 1 when it always is.
    pub fraction: f64,
    pub reason: String,
}

/// What the tracer itself took within one bucket of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentUsage {
    pub bucket_ns: u64,
    pub wall_ns: u64,
    /// CPU time of the tracer's own process.
    pub cpu_ns: u64,
    /// Run time of its scheduler and process hooks in the kernel, on all CPUs.
    pub hooks_ns: u64,
    /// How long a program at the entry or return of a call runs, as last measured in the traced programs.
    pub call_program_ns: u64,
}

/// What one thing costs on this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// The thing, in words: `counted call`.
    pub what: String,
    pub ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_go_from_the_one_that_costs_most_to_the_one_that_costs_least() {
        assert!(Rung::ALL.is_sorted());
        assert!(Rung::Everything < Rung::SlowOnly && Rung::Bursts < Rung::Counters);
        let words: Vec<&str> = Rung::ALL.iter().map(|rung| rung.as_str()).collect();
        assert_eq!(words, ["everything", "slow-only", "bursts", "counters"]);
    }
}
