//! What programs and people put on the timeline in their own words.

use crate::ProcessId;
use crate::record::record;

record! {
    /// Words on the timeline. They hold until others with the same key are told of the same process.
    #[derive(Clone, Debug, PartialEq, Eq)]
    Annotation in marks () since 9 "The table behind `annotations`."
    given 0 {
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// When it was told.
        at_ns: u64 [unit("ns since epoch")];
        /// Process that it is about; empty when it is about all of them.
        pid: Option<u32>;
        /// What is told of: `step`, `epoch`, `request`.
        key: String;
        /// What is told; empty where what was told before does not hold any longer.
        value: String;
        /// `processes.id` of the process, if calls of it were traced by then.
        process in process_id: Option<ProcessId>;
    }
}
