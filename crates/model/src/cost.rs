//! What tracing costs, and what the tracer does about it.

use crate::api::words;
use crate::record::record;
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

record! {
    /// A function of one process is watched more or less closely from now on.
    #[derive(Clone, Debug, PartialEq)]
    RungChange in rung_changes () since 2 "The table behind `rungs`."
    given 0 {
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// When.
        at_ns: u64 [unit("ns since epoch")];
        /// `processes.id`.
        process in process_id: ProcessId;
        /// `ops.id`.
        op in op_id: OpId;
        /// `everything` (every call is kept), `slow-only` (every call is counted, slow ones are kept), `bursts` (counted
        /// and kept in short windows only) or `counters` (counted in short windows only, none is kept).
        rung: Rung;
        /// Share of the time the function is probed from then on; 1 when it always is.
        fraction: f64 as Share;
        /// Why.
        reason: String;
    }
}

record! {
    /// What the tracer itself took within one bucket of time.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    AgentUsage in agent_usage (bucket_ns, session_id) since 2 "What the tracer itself took, per second."
    given 1 {
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// Start of the second.
        bucket_ns: u64 [unit("ns since epoch")];
        /// Time covered.
        wall_ns: u64 [unit("ns"), merge(Add)];
        /// CPU time of the tracer's own process.
        cpu_ns: u64 [unit("ns"), merge(Add)];
        /// Run time of its scheduler and process hooks in the kernel, on all CPUs.
        hooks_ns: u64 [unit("ns"), merge(Add)];
        /// How long a program at the entry or return of a call runs in the traced programs, as last measured;
        /// `calibrations` has what it takes in a test loop. What tracing costs is estimated in proportion.
        call_program_ns: u64 [unit("ns"), merge(Last)];
    }
}

record! {
    /// What one thing costs on this machine.
    #[derive(Clone, Debug, Default, PartialEq)]
    Calibration in calibrations () since 2 "What things cost on this machine, measured when a session starts."
    given 0 {
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// The thing, in words: `counted call`...
        what: String;
        /// What one takes.
        ns: f64 as NotNegative [unit("ns")];
    }
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
