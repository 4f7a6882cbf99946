//! One call into a GPU library, and the sums over many.

use crate::record::record;
use crate::{Direction, Histogram, OwnValues, Span, WaitReason, WorkKind};

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $crate::Scalar for $name {
            const TYPE: $crate::CellType = $crate::CellType::Integer;

            fn to_cell(&self) -> $crate::Cell<'_> {
                $crate::Cell::Integer(self.0.into())
            }

            /// Ids are small numbers; one that is not belongs to nothing.
            fn from_cell(cell: $crate::Cell<'_>) -> Option<Self> {
                u32::from_cell(cell).map(Self)
            }
        }
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
    /// Something threads wait on, named once in the trace file.
    TargetId
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
    /// The memory the call allocated or freed, or the graph it made ready.
    pub address: Option<u64>,
    pub ret_code: i32,
    /// Start of the traced call this one was made inside of, by the same thread.
    pub parent_start_ns: Option<u64>,
    pub wait: Option<Wait>,
    /// Where in the program the call was made, when its stack was taken.
    pub stack_id: Option<StackId>,
    /// What only calls of its library have.
    pub own: Option<Box<OwnValues>>,
}

impl Call {
    pub fn span(&self) -> Span {
        Span { from_ns: self.start_ns, to_ns: self.start_ns.saturating_add(self.duration_ns) }
    }

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
            own: None,
        }
    }

    pub fn running_ns(&self) -> u64 {
        self.duration_ns.saturating_sub(self.runqueue_ns.saturating_add(self.blocked_ns))
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

record! {
    /// Every call of one thread into one function within one bucket of time, kept or not.
    #[derive(Clone, Debug, PartialEq)]
    CallStats in call_counts (bucket_ns, thread_id, op_id) since 1 "The table behind `call_stats`."
    {
        /// Start of the second.
        bucket_ns: u64 [unit("ns since epoch")];
        /// `threads.id`.
        thread in thread_id: ThreadId;
        /// `ops.id`.
        op in op_id: OpId;
        /// Finished calls that were seen.
        count: u64 [unit("calls"), merge(Add)];
        /// Sum of the durations of the calls seen, as are all that follow.
        sum_ns: u64 [unit("ns"), merge(Add)];
        /// Shortest.
        min_ns: u64 [unit("ns"), merge(Least)];
        /// Longest.
        max_ns: u64 [unit("ns"), merge(Most)];
        /// Sum of their time runnable without a CPU.
        runqueue_ns: u64 [unit("ns"), merge(Add)];
        /// Sum of their time blocked.
        blocked_ns: u64 [unit("ns"), merge(Add)];
        /// Sum of their sizes.
        bytes: u64 [unit("bytes"), merge(Add)];
        /// Calls that returned an error.
        errors: u64 [unit("calls"), merge(Add)];
        /// Share of the time the function was probed, or of the calls that were seen where a bucket came in parts; counts
        /// are exact at 1.
        fraction: f64 as Share;
        /// Durations as JSON, `[[lower bound in ns, calls], ...]`.
        histogram: Histogram [merge(Last)];
        /// Calls made, estimated. Equal to `count` when every call was seen.
        estimate: u64 [unit("calls"), merge(Add), since(2), earlier("count")];
        /// Variance of `estimate`; 0 when it is exact. Variances of rows add up.
        variance: f64 as NotNegative [unit("calls^2"), merge(Add), since(2)];
    }
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

record! {
    /// Where a thread's wall time went within one bucket of time, inside traced calls and outside of them.
    #[derive(Clone, Debug, PartialEq)]
    ThreadTimes in thread_usage (bucket_ns, thread_id) since 1 "The table behind `thread_times`."
    {
        /// Start of the second.
        bucket_ns: u64 [unit("ns since epoch")];
        /// `threads.id`.
        thread in thread_id: ThreadId;
        /// Time covered.
        wall_ns: u64 [unit("ns"), merge(Add)];
        /// Runnable while another thread had the CPU.
        runqueue_ns: u64 [unit("ns"), merge(Add)];
        /// Blocked, by `WaitReason` in its order.
        blocked_ns: [u64; WaitReason::COUNT] {
            /// Blocked on a futex: mutexes, condition variables, joins.
            futex_ns [unit("ns"), merge(Add)];
            /// Blocked on block I/O.
            io_ns [unit("ns"), merge(Add)];
            /// Blocked in a page fault.
            fault_ns [unit("ns"), merge(Add)];
            /// Asleep on purpose.
            sleep_ns [unit("ns"), merge(Add)];
            /// Blocked in poll, select or epoll.
            poll_ns [unit("ns"), merge(Add)];
            /// Blocked on a pipe, socket or other stream.
            stream_ns [unit("ns"), merge(Add)];
            /// Blocked in an ioctl, usually the GPU's kernel driver.
            ioctl_ns [unit("ns"), merge(Add)];
            /// Blocked on anything else.
            other_ns [unit("ns"), merge(Add)];
        };
        /// Wall time inside outermost traced calls.
        in_calls_ns: u64 [unit("ns"), merge(Add)];
        /// Of that, runnable without a CPU.
        in_calls_runqueue_ns: u64 [unit("ns"), merge(Add)];
        /// Of that, blocked.
        in_calls_blocked_ns: u64 [unit("ns"), merge(Add)];
        /// What tracing took from the thread, estimated.
        tracer_ns: u64 [unit("ns"), merge(Add), since(2)];
        /// The part of `runqueue_ns` in which the CPU quota of its cgroup was used up.
        throttled_ns: u64 [unit("ns"), merge(Add), since(3)];
        /// Kernel work in the thread's own time, by `WorkKind` in its order.
        work_ns: [u64; WorkKind::COUNT] {
            /// Freeing memory for itself or its cgroup, running and waiting: it overlaps with the other times, as do the
            /// next two.
            reclaim_ns [unit("ns"), merge(Add), since(3)];
            /// Moving memory together for large pages, running and waiting.
            compaction_ns [unit("ns"), merge(Add), since(3)];
            /// Inside ioctls, running and waiting.
            ioctl_call_ns [unit("ns"), merge(Add), since(3)];
        };
        /// Page faults that had to wait for a device.
        major_faults: u64 [merge(Add), since(3)];
        /// Page faults that needed none: memory that is touched for the first time, files that are in memory already.
        minor_faults: u64 [merge(Add), since(6)];
        /// On the CPU in the kernel, as its ticks tell.
        system_ns: u64 [unit("ns"), merge(Add), since(6)];
    }
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
            minor_faults: 0,
            system_ns: 0,
        }
    }

    pub fn running_ns(&self) -> u64 {
        let waiting = self.blocked_ns.iter().fold(self.runqueue_ns, |sum, ns| sum.saturating_add(*ns));
        self.wall_ns.saturating_sub(waiting)
    }
}
