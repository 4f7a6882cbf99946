//! Stretches of a thread's time that hold it up: off the CPU, or at work in the kernel on its own account.
//!
//! Short stretches share a record: each one also says how much time, and how many stretches of its kind, have passed
//! since the last record. So sums over records are exact, and no thread writes more than about 1,000 a second.

use crate::api::words;
use crate::record::record;
use crate::{OpId, ProcessId, StackId, TargetId, ThreadId, WaitReason};

words! {
    /// What kind of thing a blocked thread waits on.
    TargetKind {
        /// A futex that is taken and given back: a mutex.
        Lock = "lock",
        /// A futex that others signal: a condition variable, a semaphore, a queue.
        Signal = "signal",
        /// Python's interpreter lock.
        Gil = "gil",
        Pipe = "pipe",
        /// A Unix socket.
        Unix = "unix",
        Tcp = "tcp",
        /// Any other socket.
        Socket = "socket",
        Eventfd = "eventfd",
        /// A regular file.
        File = "file",
        /// A device node.
        Device = "device",
        Other = "other",
    }
}

record! {
    /// Something threads wait on.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    WaitTarget in wait_targets (id) since 3 "Things that threads wait on."
    given 0 {
        /// Names the thing.
        id: u32;
    }
    {
        /// `processes.id` of whose address or descriptor it is.
        process in process_id: ProcessId;
        /// What kind of thing it is, see `sched_events`.
        kind: TargetKind;
        /// Which one: an address (`0x7f12a0`), a peer (`10.0.0.2:8080`), a device number (`195:255`).
        name: String;
    }
}

impl WaitTarget {
    /// How the name of a thing begins through which others ask: a server waits on it.
    pub const CLIENT: &str = "client ";
}

/// A thread that ran on the CPU another one waited for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTaker {
    pub thread: ThreadId,
    pub ns: u64,
}

record! {
    /// From leaving the CPU to being on it again: blocked, then runnable; either part may be missing.
    #[derive(Clone, Debug, PartialEq)]
    Stretch in stretches (start_ns) since 3 "The table behind `sched_events`."
    {
        /// Start, made unique.
        start_ns: u64 [unit("ns since epoch")];
        /// `threads.id`.
        thread in thread_id: ThreadId;
        /// Not runnable.
        blocked_ns: u64 [unit("ns")];
        /// Runnable, but another thread had the CPU or the quota was used up.
        runqueue_ns: u64 [unit("ns")];
        /// 1 when the run-queue part was a stop by the CPU quota of its cgroup.
        is_throttled: bool;
        /// What it blocked in; empty when it was preempted.
        reason: Option<WaitReason>;
        /// `ops.id` of the innermost traced call it was in.
        op in op_id: Option<OpId>;
        /// `wait_targets.id`.
        target in target_id: Option<TargetId>;
        /// `threads.id` of who made it runnable; empty when an interrupt did, or when it was preempted.
        woken_by in woken_by_thread_id: Option<ThreadId>;
        /// Who ran on its CPU meanwhile: those with the most time, the longest first.
        taken_by: [Option<CpuTaker>; 2] {
            /// `threads.id` of who ran longest on its CPU while it was runnable.
            taken_by_thread_id;
            /// How long it ran there meanwhile.
            taken_by_ns [unit("ns")];
            /// `threads.id` of who ran there second longest.
            also_taken_by_thread_id;
            /// How long it ran there meanwhile.
            also_taken_by_ns [unit("ns")];
        };
        /// What the record stands for.
        all: StandsFor {
            /// Stretches the row stands for: this one and shorter ones of the thread since its last row.
            all_count [unit("stretches")];
            /// Their time blocked for the same reason.
            all_blocked_ns [unit("ns")];
            /// Their time runnable without a CPU.
            all_runqueue_ns [unit("ns")];
        };
        /// `stacks.id` of where in the program it waited, when its stack was taken.
        stack in stack_id: Option<StackId> [since(4)];
        /// `stacks.id` of what whoever made it runnable was doing.
        waker_stack in waker_stack_id: Option<StackId> [since(4)];
    }
}

impl Stretch {
    pub fn duration_ns(&self) -> u64 {
        self.blocked_ns.saturating_add(self.runqueue_ns)
    }
}

/// What passed since the last record of the same thread: this stretch and shorter ones that got none. Blocked time is
/// that of the same reason, run-queue time is all there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandsFor {
    pub count: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
}

record! {
    /// What a thread was in when it was looked at, and had been in for long. What never ends gets no other record.
    #[derive(Clone, Debug, PartialEq, Eq)]
    Standstill in standstills (thread_id, start_ns) since 7 "The table behind `unfinished`."
    {
        /// `threads.id`.
        thread in thread_id: ThreadId;
        /// Since when it has been in the call, or blocked where it is in none.
        start_ns: u64 [unit("ns since epoch")];
        /// When it was last seen there. A look is taken every other second.
        seen_ns: u64 [unit("ns since epoch"), merge(Most)];
        /// `ops.id` of the call; empty for a wait outside of traced calls.
        op in op_id: Option<OpId>;
        /// What it was blocked in at the last look; empty while it ran.
        reason: Option<WaitReason> [merge(Last)];
        /// `stacks.id` of the last stack that was taken meanwhile.
        stack in stack_id: Option<StackId> [merge(Last)];
    }
}

words! {
    /// Work the kernel does in a thread's own time. The order is the kernel side's (`enum work_kind` in `wire.h`).
    WorkKind {
        /// Freeing memory because there is none left, or none under the cgroup's limit.
        Reclaim = "reclaim",
        /// Moving memory together for a large page.
        Compaction = "compaction",
        /// An ioctl, usually the GPU's kernel driver.
        Ioctl = "ioctl",
    }
}

impl WorkKind {
    pub const COUNT: usize = Self::ALL.len();
}

record! {
    /// A span of kernel work, from begin to end, with the waits inside of it.
    #[derive(Clone, Debug, PartialEq)]
    KernelWork in kernel_work (start_ns) since 3 "The table behind `kernel_events`."
    {
        /// Start, made unique.
        start_ns: u64 [unit("ns since epoch")];
        /// `threads.id`.
        thread in thread_id: ThreadId;
        /// `reclaim` (freeing memory because there is none left, or none under the cgroup's limit), `compaction` (moving
        /// memory together for a large page) or `ioctl` (usually the GPU's kernel driver).
        kind: WorkKind;
        /// From begin to end.
        duration_ns: u64 [unit("ns")];
        /// `ops.id` of the innermost traced call the thread was in.
        op in op_id: Option<OpId>;
        /// `wait_targets.id` of an ioctl's file.
        target in target_id: Option<TargetId>;
        /// Request number of an ioctl.
        code: Option<u32>;
        /// Spans of this kind the row stands for: this one and those of the thread since its last row.
        all_count: u64 [unit("spans")];
        /// Their time.
        all_ns: u64 [unit("ns")];
    }
}

record! {
    /// A request to a block device whose completion woke a watched thread.
    #[derive(Clone, Debug, PartialEq)]
    IoRequest in io_requests (start_ns) since 3 "The table behind `io_events`."
    {
        /// When it was handed to the device, made unique.
        start_ns: u64 [unit("ns since epoch")];
        /// Until the device was done.
        duration_ns: u64 [unit("ns")];
        /// The device's name or number: `nvme0n1`, `254:0`.
        device: String;
        /// Size.
        bytes: u64 [unit("bytes")];
        /// 1 for a write.
        is_write: bool;
        /// `threads.id` of who handed it to the device.
        issuer in issuer_thread_id: Option<ThreadId>;
        /// `threads.id` of who waited for it.
        waiter in waiter_thread_id: ThreadId;
    }
}

record! {
    /// What one process asked of one block device within one bucket of time. Written while a watched thread waits for I/O.
    #[derive(Clone, Debug, PartialEq)]
    IoUsage in io_usage (bucket_ns, process_id, device) since 3 "The table behind `io_stats`."
    {
        /// Start of the second.
        bucket_ns: u64 [unit("ns since epoch")];
        /// `processes.id`.
        process in process_id: ProcessId;
        /// The device's name or number.
        device: String;
        /// Requests that finished.
        requests: u64 [unit("requests"), merge(Add)];
        /// Sum of their sizes.
        bytes: u64 [unit("bytes"), merge(Add)];
        /// Sum of the times they were at the device.
        busy_ns: u64 [unit("ns"), merge(Add)];
    }
}
