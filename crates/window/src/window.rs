//! The window itself, who and what it names, and which rows it has.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{
    Call, IoRequest, IoUsage, KernelWork, Layer, Meaning, ModuleId, Note, OpId, Process, ProcessId, ProcessLife, Span,
    StackId, StackSample, StackWalks, Standstill, Stretch, TargetId, TargetKind, TcpEvent, ThreadId, WaitTarget,
};

use crate::stack::LoadedStack;
use crate::sums::{CallSecond, CallSum, ThreadSum};

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
    /// Where processes ran, if that was not one and the same host for all: a file of several merged ones.
    pub hosts: Vec<Host>,
    /// On which of them, by its place in the list.
    pub host_of: BTreeMap<ProcessId, u16>,
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
    /// What threads had been in for long when they were looked at, the last look first.
    pub standstills: Vec<Standstill>,
    /// In the order of time; of very many, the first ones.
    pub tcp_events: Vec<TcpEvent>,
    /// All calls within the spans; outside of them only the slowest and failed ones.
    pub calls: Covered<Call>,
    /// When functions were watched that are called too often to be watched all the time, in the order of time.
    pub watched: Vec<Span>,
    /// Calls that allocated or freed memory.
    pub memory_calls: Covered<Call>,
    /// Collective operations of which it is known who asked for them.
    pub collectives: Covered<Collective>,
    /// Communicators that a process destroyed or aborted, by `Collective::communicator_id`.
    pub ended_communicators: BTreeMap<(i64, ProcessId), CommunicatorEnd>,
    /// If a rank has become late in the window, this alone counts as late.
    pub unusual: Option<Unusual>,
    /// Those that calls, stretches and standstills cite; of very many, the ones in which most time passed.
    pub stacks: BTreeMap<StackId, LoadedStack>,
    /// Where threads were seen running, one for each thread and stack.
    pub samples: Vec<StackSample>,
    /// The same of threads that make calls, one by one, in the order of time.
    pub moments: Vec<StackSample>,
    /// One for each moment and way to end, of all stacks that were taken.
    pub stack_walks: Vec<StackWalks>,
    /// What GPUs say of themselves.
    pub gpu_words: BTreeMap<Device, GpuWord>,
    /// How GPUs are, by their own word.
    pub gpu_health: BTreeMap<Device, GpuHealth>,
    /// What of them is broken, by their own word.
    pub gpu_faults: BTreeMap<Device, GpuFaults>,
    /// What drivers of GPUs reported.
    pub xids: Vec<Xid>,
    /// What ports of the fabric between hosts counted in the window.
    pub fabric_errors: Vec<FabricErrors>,
    /// Processes of which the first began to speak to the second through such a channel, before the second answered. Also
    /// from before the window.
    pub spoke_first: BTreeSet<(ProcessId, ProcessId, TargetKind)>,
    /// Kills, ends of traced processes, and who started those that were killed.
    pub life: Vec<Life>,
    /// What the file cannot tell, in words.
    pub gaps: Vec<String>,
}

/// To come later to an operation of several ranks than they did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusual {
    /// The first operation to which one of them did.
    pub since_ns: u64,
    /// More than this.
    pub late_ns: u64,
}

impl Unusual {
    pub fn has(&self, late: Span) -> bool {
        late.to_ns >= self.since_ns && late.ns() > self.late_ns
    }
}

impl Window {
    pub fn process_id(&self, thread: ThreadId) -> Option<ProcessId> {
        self.threads.get(&thread).map(|thread| thread.process)
    }

    pub fn process(&self, thread: ThreadId) -> Option<&Process> {
        self.processes.get(&self.process_id(thread)?)
    }

    /// The number of the host that a process ran on. 0 where there is only one.
    pub fn host_of(&self, process: ProcessId) -> u16 {
        self.host_of.get(&process).copied().unwrap_or(0)
    }

    /// The host that a process ran on, where there are several.
    pub fn host(&self, process: ProcessId) -> Option<&Host> {
        self.hosts.get(usize::from(self.host_of(process)))
    }

    /// What happened to processes of a host.
    pub fn life_on(&self, host: u16) -> impl Iterator<Item = &ProcessLife> {
        self.life.iter().filter(move |life| life.host == host).map(|life| &life.turn)
    }
}

/// A host among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Not the same for two of them.
    pub name: String,
    /// By how much its times may be off those of the first one. `None` where nobody knows.
    pub clock_error_ns: Option<u64>,
}

/// A GPU: the number of its host, and its own on that host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    pub host: u16,
    pub number: u16,
}

/// A turn in the life of a process of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub host: u16,
    pub turn: ProcessLife,
}

impl From<ProcessLife> for Life {
    fn from(turn: ProcessLife) -> Self {
        Self { host: 0, turn }
    }
}

/// Errors that a port of a fabric counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricErrors {
    pub host: u16,
    /// `mlx5_0/1/InfiniBand`: the device, the port, the transport. Or whose device it is.
    pub port: String,
    /// What is counted, as the driver or the library calls it.
    pub counter: String,
    pub count: u64,
}

/// What a GPU says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuWord {
    /// The share of the time in which it worked.
    pub busy: f64,
    /// From so many moments.
    pub moments: u64,
    /// The most processes that had something on it at once, where that is known.
    pub processes: Option<u64>,
}

/// How a GPU is, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuHealth {
    /// It was asked so often why it is slower than it could be.
    pub moments: u64,
    /// So often it was held down by heat or by hardware.
    pub held_down: u64,
    /// Why, as bits: of the moments in which it was, the one with the highest.
    pub reasons: u64,
    /// How fast it was on average, as a part of the fastest that it can be.
    pub speed: Option<f64>,
    /// Errors of its memory that could not be corrected.
    pub memory_errors: u64,
}

/// What of a GPU is broken, by its own word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuFaults {
    /// It does not answer any more.
    pub lost: Option<GpuLost>,
    /// The generation of its link to the host while it worked, where that was not the highest.
    pub link_generation: Option<LinkSlowed>,
    /// How many lanes that link had, where those were not all.
    pub link_width: Option<LinkSlowed>,
    /// Its links to other GPUs with troubles, in the order of their numbers.
    pub links: Vec<GpuLinkFault>,
    /// A part of its memory waits for a reset to be replaced or taken out of use.
    pub repair_pending: bool,
    /// And did not do so before.
    pub repair_is_new: bool,
    /// A part of its memory could not be replaced.
    pub repair_failed: bool,
}

/// A GPU that does not answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLost {
    /// When it was first seen.
    pub at_ns: u64,
    /// It had answered in this trace.
    pub had_answered: bool,
}

/// A link that can do more than it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSlowed {
    /// It was looked at so often.
    pub moments: u64,
    /// So often it did less than it can.
    pub slow: u64,
    /// Of those, the last ones without any other between them.
    pub last_slow: u64,
    /// The least that it did, and the most that it can do.
    pub least: u32,
    pub most: u32,
}

/// What is wrong with a link between GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLinkFault {
    pub number: u32,
    /// It was up before.
    pub is_down: bool,
    /// What had to be sent again, how often it was set up anew, and what arrived damaged.
    pub replays: u64,
    pub recoveries: u64,
    pub damaged: u64,
}

/// Something that the driver of a GPU reported, by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xid {
    pub at_ns: u64,
    pub host: u16,
    /// The number of the GPU, or its address.
    pub device: String,
    pub code: u32,
    /// The process that the driver names.
    pub pid: Option<u32>,
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
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.ns()))
    }
}

/// A collective operation, as one of its ranks asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    pub start_ns: u64,
    pub thread: ThreadId,
    pub op: OpId,
    /// The same number for all ranks.
    pub communicator: i64,
    /// What the communicator is called: its `comm_id_hash`. Launches of a graph count as those of a communicator of their own.
    pub communicator_id: i64,
    pub rank: u32,
    pub ranks: u32,
    /// Its place in the order of the communicator, the same for all ranks.
    pub sequence: u64,
    pub bytes: u64,
    /// One rank sends or receives alone: others may be done before all have asked.
    pub has_root: bool,
    /// When the first call that waited for it returned, if one was seen to wait.
    pub done_ns: Option<u64>,
    /// How long that call took, unless it waited for a later operation as well.
    pub wait_ns: u64,
}

/// How a process gave up its part in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunicatorEnd {
    pub at_ns: u64,
    /// The call that did it.
    pub op: OpId,
}

/// A run of the tracer, as far as it says what is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFacts {
    /// Tells apart what was booted.
    pub boot_id: String,
    pub host: String,
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
    pub meaning: Meaning,
}
