//! Operations of several devices.

use crate::record::record;

record! {
    /// When an operation of several devices was known to be done: at the end of the first call that waits for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    CollectiveWait in collective_waits (start_ns) since 7 "When operations of several GPUs were done. Read `nccl_events` instead."
    {
        /// Start of the call that asked for the operation: `calls.start_ns`.
        start_ns: u64 [unit("ns since epoch")];
        /// When the call that waited for it returned. The operation may have been done before.
        done_ns: u64 [unit("ns since epoch")];
        /// How long that call took; 0 where it waited for a later operation as well, which has it.
        wait_ns: u64 [unit("ns")];
    }
}
