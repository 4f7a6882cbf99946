//! One call into a GPU library, and the sums over many.

use crate::{Direction, Histogram, WaitReason, WorkKind};

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    )+};
}

ids! {
    /// A process image in the trace file: a pid between two execs.
    ProcessId
    /// A thread of a process in the trace file.
    ThreadId
    /// A mapped file that calls were issued from.
    ModuleId
    /// A traced function of one layer.
    OpId
    /// A stack in the trace file.
    StackId
}

/// One finished call, ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Runnable, but another thread had the CPU.
    pub runqueue_ns: u64,
    /// Off the CPU and not runnable. What is left of the duration is running time.
    pub blocked_ns: u64,
    pub thread: ThreadId,
    pub op: OpId,
    pub device: Option<u16>,
    /// The stream handle as the program passed it; `None` where the function takes no stream.
    pub stream: Option<u64>,
    pub direction: Option<Direction>,
    /// The kernel, graph or module handle the call was about.
    pub handle: Option<u64>,
    /// The module the call was issued from.
    pub caller: Option<ModuleId>,
    pub bytes: Option<u64>,
    /// The memory the call allocated or freed.
    pub address: Option<u64>,
    pub ret_code: i32,
    /// Start of the traced call this one was made inside of, by the same thread.
    pub parent_start_ns: Option<u64>,
    pub wait: Option<Wait>,
    /// Where in the program the call was made, when its stack was taken.
    pub stack_id: Option<StackId>,
}

impl Call {
    /// One that ran from start to end and of which nothing else is known.
    pub fn new(thread: ThreadId, op: OpId, start_ns: u64, duration_ns: u64) -> Self {
        Self {
            start_ns,
            duration_ns,
            runqueue_ns: 0,
            blocked_ns: 0,
            thread,
            op,
            device: None,
            stream: None,
            direction: None,
            handle: None,
            caller: None,
            bytes: None,
            address: None,
            ret_code: 0,
            parent_start_ns: None,
            wait: None,
            stack_id: None,
        }
    }

    pub fn running_ns(&self) -> u64 {
        self.duration_ns.saturating_sub(self.runqueue_ns + self.blocked_ns)
    }
}

/// What held a call up: its longest blocked stretch and its longest stretch in the run queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wait {
    pub reason: Option<WaitReason>,
    /// Who made the blocked thread runnable again; `None` when an interrupt did (a timer, a disk, a network card).
    pub woken_by: Option<ThreadId>,
    /// Who took the CPU when the thread was preempted.
    pub preempted_by: Option<ThreadId>,
}

/// Every call of one thread into one function within one bucket of time, kept or not.
#[derive(Clone, Debug, PartialEq)]
pub struct CallStats {
    pub bucket_ns: u64,
    pub thread: ThreadId,
    pub op: OpId,
    pub count: u64,
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub bytes: u64,
    pub errors: u64,
    pub histogram: Histogram,
    /// Share of the time the function was probed; counts are exact at 1.
    pub fraction: f64,
    /// Calls made, estimated; equal to `count` when every call was seen.
    pub estimate: u64,
    /// Of the estimate; 0 when it is exact.
    pub variance: f64,
}

impl CallStats {
    /// Of so many calls of one length, all of which were seen.
    pub fn alike(bucket_ns: u64, thread: ThreadId, op: OpId, count: u64, each_ns: u64) -> Self {
        let mut histogram = Histogram::default();
        histogram.add(Histogram::index(each_ns), count);
        Self {
            bucket_ns,
            thread,
            op,
            count,
            sum_ns: count * each_ns,
            min_ns: each_ns,
            max_ns: each_ns,
            runqueue_ns: 0,
            blocked_ns: 0,
            bytes: 0,
            errors: 0,
            histogram,
            fraction: 1.0,
            estimate: count,
            variance: 0.0,
        }
    }
}

/// Where a thread's wall time went within one bucket of time, inside traced calls and outside of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTimes {
    pub bucket_ns: u64,
    pub thread: ThreadId,
    pub wall_ns: u64,
    pub runqueue_ns: u64,
    /// By `WaitReason`, in its order.
    pub blocked_ns: [u64; WaitReason::COUNT],
    /// Wall time inside outermost traced calls.
    pub in_calls_ns: u64,
    pub in_calls_runqueue_ns: u64,
    pub in_calls_blocked_ns: u64,
    /// What tracing took from the thread, estimated.
    pub tracer_ns: u64,
    /// The part of `runqueue_ns` in which the cgroup's CPU quota was used up.
    pub throttled_ns: u64,
    /// Kernel work in the thread's own time, by `WorkKind`; running and waiting, so it overlaps with the rest.
    pub work_ns: [u64; WorkKind::COUNT],
    /// Page faults that had to wait for a device.
    pub major_faults: u64,
}

impl ThreadTimes {
    /// Of a thread that ran all the time, outside of calls.
    pub fn new(bucket_ns: u64, thread: ThreadId, wall_ns: u64) -> Self {
        Self {
            bucket_ns,
            thread,
            wall_ns,
            runqueue_ns: 0,
            blocked_ns: [0; WaitReason::COUNT],
            in_calls_ns: 0,
            in_calls_runqueue_ns: 0,
            in_calls_blocked_ns: 0,
            tracer_ns: 0,
            throttled_ns: 0,
            work_ns: [0; WorkKind::COUNT],
            major_faults: 0,
        }
    }

    pub fn running_ns(&self) -> u64 {
        let waiting = self.runqueue_ns + self.blocked_ns.iter().sum::<u64>();
        self.wall_ns.saturating_sub(waiting)
    }
}
