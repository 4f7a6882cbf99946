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

record! {
    /// A call that asked for an operation while a graph was captured: it is asked for whenever the graph is launched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    CollectiveCapture in collective_captures (start_ns) since 8 "Operations of several GPUs that were recorded in a graph. Read `nccl_events` instead."
    {
        /// Start of the call: `calls.start_ns`.
        start_ns: u64 [unit("ns since epoch")];
        /// Start of the call that began the capture.
        began_ns: u64 [unit("ns since epoch")];
    }
}

record! {
    /// A launch of a graph that asks for operations of a communicator.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    CollectiveReplay in collective_replays (start_ns, comm_id_hash) since 8 "Launches of graphs that ask for operations of several GPUs. Read `nccl_replays` instead."
    {
        /// Start of the launch: `calls.start_ns`.
        start_ns: u64 [unit("ns since epoch")];
        /// Names the communicator, equal on all ranks; 64 bits shown as a signed number.
        comm_id_hash: u64 as Bits;
        /// The communicator, as its process names it; 64 bits shown as a signed number.
        handle: u64 as Bits;
        /// Rank within the communicator, where the call that was captured knew it.
        rank: Option<u32>;
        /// Size of the communicator, where the call that was captured knew it.
        nranks: Option<u32>;
        /// The last operation of the communicator in the graph: its `nccl_events.seq`, equal on all ranks.
        seq: u64;
        /// How many launches asked for the same operations before: equal on all ranks for launches that wait for each other.
        replay: u64;
        /// How many operations of the communicator the graph has.
        operations: u64;
        /// What this rank gives to all of them, or gets where it gives more than that.
        bytes: u64 [unit("bytes")];
        /// Start of the call that began the capture.
        began_ns: u64 [unit("ns since epoch")];
    }
}

impl CollectiveReplay {
    /// The order in which ranks launch such graphs.
    pub fn order(&self) -> u64 {
        order_of_launches(self.comm_id_hash, self.seq)
    }
}

/// Launches of a graph have an order of their own, which counts as a communicator's. It is told apart by the last operation of
/// the communicator in the graph, on all ranks alike.
pub fn order_of_launches(communicator: u64, sequence: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    communicator ^ (sequence + 1).wrapping_mul(ODD)
}
