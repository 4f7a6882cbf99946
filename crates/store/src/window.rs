//! A span of a trace in memory, as plain records: what analysis looks at.
//!
//! A file may hold ten million calls, so a window holds sums over all of them and a bounded number of rows: where a
//! table has more, equal parts of the span give equal numbers of rows, and `Covered::spans` says which times those are.

mod calls;
mod load;
mod names;
mod records;
mod seconds;
pub(crate) mod source;
mod stacks;
mod sums;

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuwhy_model::{
    Call, CallClass, Frame, Histogram, IoRequest, IoUsage, KernelWork, Layer, ModuleId, Note, OpId, Process, ProcessId,
    ProcessLife, PythonEnd, Span, StackId, StackSample, StackWalks, Stretch, TargetId, ThreadId, ThreadTimes,
    WaitTarget, WalkEnd,
};

pub use seconds::ThreadSecond;
pub(crate) use source::Source;
pub(crate) use stacks::StackLoader;

/// Which part of a trace to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
    /// Only what threads of this process suffer from; everybody may be to blame.
    pub pid: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    pub from_ns: u64,
    pub to_ns: u64,
    pub pid: Option<u32>,
    pub sessions: Vec<SessionFacts>,
    pub processes: BTreeMap<ProcessId, Process>,
    pub threads: BTreeMap<ThreadId, Thread>,
    pub ops: BTreeMap<OpId, Op>,
    pub modules: BTreeMap<ModuleId, String>,
    pub targets: BTreeMap<TargetId, WaitTarget>,
    /// One for each thread and function.
    pub call_sums: Vec<CallSum>,
    /// One for each second, thread and function.
    pub call_seconds: Vec<CallSecond>,
    /// One for each thread whose clocks were kept.
    pub thread_sums: Vec<ThreadSum>,
    /// One for each process and device.
    pub io_usage: Vec<IoUsage>,
    pub stretches: Covered<Stretch>,
    pub kernel_work: Covered<KernelWork>,
    pub io_requests: Covered<IoRequest>,
    /// All calls within the spans; outside of them only the slowest and failed ones.
    pub calls: Covered<Call>,
    /// Calls that allocated or freed memory.
    pub memory_calls: Covered<Call>,
    /// Those that calls and stretches cite; of very many, the ones in which most time passed.
    pub stacks: BTreeMap<StackId, LoadedStack>,
    /// Where threads were seen running, one for each thread and stack.
    pub samples: Vec<StackSample>,
    /// One for each moment and way to end, of all stacks that were taken.
    pub stack_walks: Vec<StackWalks>,
    /// Kills, ends of traced processes, and who started those that were killed.
    pub life: Vec<ProcessLife>,
    /// What the file cannot tell, in words.
    pub gaps: Vec<String>,
}

/// A stack whose frames are known by name. Stacks share the frames they have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedStack {
    /// Innermost first.
    pub frames: Vec<Arc<Frame>>,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
    /// Position of the frame that a person wants to see first, see `site_position`.
    pub site: Option<usize>,
}

impl LoadedStack {
    pub fn site_frame(&self) -> Option<&Frame> {
        self.site.and_then(|position| self.frames.get(position)).map(Arc::as_ref)
    }
}

/// Rows in the order of time, and the times of which there are all.
#[derive(Clone, Debug, PartialEq)]
pub struct Covered<T> {
    pub rows: Vec<T>,
    pub spans: Vec<Span>,
}

impl<T> Default for Covered<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), spans: Vec::new() }
    }
}

impl<T> Covered<T> {
    /// Nanoseconds of which there are all rows.
    pub fn covered_ns(&self) -> u64 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.to_ns.saturating_sub(span.from_ns)))
    }
}

/// A run of the tracer, as far as it says what is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFacts {
    pub started_ns: u64,
    /// `None` while it runs, and when the tracer was killed.
    pub ended_ns: Option<u64>,
    /// The tracer's own command line.
    pub command: String,
    /// Finished calls the kernel counted; known at the end.
    pub seen: Option<u64>,
    pub stored: u64,
    pub losses: BTreeMap<String, u64>,
    pub notes: Vec<Note>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    pub process: ProcessId,
    pub tid: u32,
    pub comm: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub name: String,
    pub layer: Layer,
    pub class: CallClass,
}

/// Every call of one thread into one function. What was only seen part of the time is scaled up to all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSum {
    pub thread: ThreadId,
    pub op: OpId,
    /// Calls that were seen.
    pub seen: u64,
    /// Calls that were made, estimated where not all were seen.
    pub calls: u64,
    pub sum_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub bytes: u64,
    pub errors: u64,
    pub max_ns: u64,
    pub histogram: Histogram,
    /// Seconds with at least one call.
    pub seconds: u64,
}

impl CallSum {
    /// Of no calls yet.
    pub fn new(thread: ThreadId, op: OpId) -> Self {
        Self {
            thread,
            op,
            seen: 0,
            calls: 0,
            sum_ns: 0,
            runqueue_ns: 0,
            blocked_ns: 0,
            bytes: 0,
            errors: 0,
            max_ns: 0,
            histogram: Histogram::default(),
            seconds: 0,
        }
    }

    /// On the CPU inside the calls.
    pub fn running_ns(&self) -> u64 {
        self.sum_ns.saturating_sub(self.runqueue_ns).saturating_sub(self.blocked_ns)
    }

    /// Share of the calls that were seen.
    pub fn fraction(&self) -> f64 {
        if self.calls == 0 { 1.0 } else { (self.seen as f64 / self.calls as f64).min(1.0) }
    }
}

/// The same for about one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallSecond {
    /// When the second begins.
    pub bucket_ns: u64,
    pub thread: ThreadId,
    pub op: OpId,
    pub calls: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
    pub errors: u64,
}

/// Where a thread's time went in the window.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSum {
    /// `bucket_ns` is when it was first seen.
    pub times: ThreadTimes,
    /// When its last second begins.
    pub last_bucket_ns: u64,
    pub seconds: u64,
}
