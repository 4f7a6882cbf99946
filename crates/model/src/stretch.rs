//! Stretches of a thread's time that hold it up: off the CPU, or at work in the kernel on its own account.
//!
//! Short stretches share a record: each one also says how much time, and how many stretches of its kind, have passed
//! since the last record. So sums over records are exact, and no thread writes more than about 1,000 a second.

use crate::api::words;
use crate::{OpId, ProcessId, StackId, ThreadId, WaitReason};

/// Something threads wait on, named once in the trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u32);

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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitTarget {
    /// Whose address or descriptor it is.
    pub process: ProcessId,
    pub kind: TargetKind,
    /// An address, a peer, a device number: `0x7f12a0`, `10.0.0.2:8080`, `195:255`.
    pub name: String,
}

/// A thread that ran on the CPU another one waited for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTaker {
    pub thread: ThreadId,
    pub ns: u64,
}

/// From leaving the CPU to being on it again: blocked, then runnable; either part may be missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub start_ns: u64,
    pub thread: ThreadId,
    pub blocked_ns: u64,
    /// Runnable, but another thread had the CPU, or the quota was used up.
    pub runqueue_ns: u64,
    /// Whether the run-queue part was a stop by the cgroup's CPU quota.
    pub is_throttled: bool,
    /// What it blocked in; `None` when it was preempted.
    pub reason: Option<WaitReason>,
    /// The innermost traced call the thread was in.
    pub op: Option<OpId>,
    pub target: Option<TargetId>,
    /// Who made it runnable; `None` when an interrupt did, or when it was preempted.
    pub woken_by: Option<ThreadId>,
    /// Who ran on its CPU meanwhile: those with the most time, the longest first.
    pub taken_by: [Option<CpuTaker>; 2],
    pub all: StandsFor,
    /// Where in the program the thread waited.
    pub stack: Option<StackId>,
    /// What whoever made it runnable was doing.
    pub waker_stack: Option<StackId>,
}

impl Stretch {
    pub fn duration_ns(&self) -> u64 {
        self.blocked_ns + self.runqueue_ns
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

/// A span of kernel work, from begin to end, with the waits inside of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelWork {
    pub start_ns: u64,
    pub thread: ThreadId,
    pub kind: WorkKind,
    pub duration_ns: u64,
    /// The innermost traced call the thread was in.
    pub op: Option<OpId>,
    /// The file of an ioctl.
    pub target: Option<TargetId>,
    /// The request number of an ioctl.
    pub code: Option<u32>,
    /// Spans of this kind since the last record, with this one.
    pub all_count: u64,
    pub all_ns: u64,
}

/// A request to a block device whose completion woke a watched thread.
#[derive(Clone, Debug, PartialEq)]
pub struct IoRequest {
    /// When it was handed to the device.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// The device's name or number: `nvme0n1`, `254:0`.
    pub device: String,
    pub bytes: u64,
    pub is_write: bool,
    /// Who handed it over.
    pub issuer: Option<ThreadId>,
    pub waiter: ThreadId,
}

/// What one process asked of one block device within one bucket of time. Written while a watched thread waits for I/O.
#[derive(Clone, Debug, PartialEq)]
pub struct IoUsage {
    pub bucket_ns: u64,
    pub process: ProcessId,
    pub device: String,
    pub requests: u64,
    pub bytes: u64,
    /// Sum of the times its requests were at the device.
    pub busy_ns: u64,
}
