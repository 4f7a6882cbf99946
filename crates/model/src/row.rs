//! Named rows: what the tracer has seen, with names in place of addresses and pids.
//!
//! The tracer gives out the numbers, and they hold for one session. A row that names something comes before the first
//! row that cites its number. [`Name::Forgotten`] comes after the last one.

use crate::{
    AgentUsage, Annotation, Call, CallStats, CollectiveCapture, CollectiveReplay, CollectiveWait, FabricEvent,
    IoRequest, IoUsage, KernelWork, Label, Layer, Losses, Meaning, ModuleId, Note, OpId, Process, ProcessId,
    ProcessLife, RungChange, Sample, Stack, StackId, StackSample, StackWalks, Standstill, Stretch, TargetId, TcpEvent,
    ThreadId, ThreadTimes, Totals, WaitTarget,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Name(Name),
    /// In the order of their starts; a call comes before those made inside of it.
    Calls(Vec<Call>),
    CollectiveCaptures(Vec<CollectiveCapture>),
    CollectiveReplays(Vec<CollectiveReplay>),
    CollectiveWaits(Vec<CollectiveWait>),
    Stretches(Vec<Stretch>),
    KernelWork(Vec<KernelWork>),
    IoRequests(Vec<IoRequest>),
    TcpEvents(Vec<TcpEvent>),
    FabricEvents(Vec<FabricEvent>),
    Annotations(Vec<Annotation>),
    /// The frames of a stack, which may come later than rows that cite its number.
    Stack {
        id: StackId,
        stack: Stack,
    },
    CallStats(Vec<CallStats>),
    ThreadTimes(Vec<ThreadTimes>),
    Standstills(Vec<Standstill>),
    IoUsage(Vec<IoUsage>),
    StackSamples(Vec<StackSample>),
    StackWalks(Vec<StackWalks>),
    /// What samplers have measured.
    Samples(Vec<Sample>),
    Life(ProcessLife),
    RungChange(RungChange),
    /// From this monotonic time on, Unix time is monotonic time plus the offset.
    ClockAnchor {
        monotonic_ns: u64,
        unix_offset_ns: i64,
    },
    /// Something a person should know, in a sentence.
    Note {
        at_ns: u64,
        note: Note,
    },
    AgentUsage(AgentUsage),
    /// What the kernel side lost so far.
    Losses(Losses),
    /// A second is over.
    Second(Totals),
}

/// What a number stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Name {
    Op {
        id: OpId,
        name: &'static str,
        layer: Layer,
        meaning: Meaning,
        runtime_name: Option<&'static str>,
    },
    Module {
        id: ModuleId,
        path: String,
        is_runtime: bool,
    },
    Process {
        id: ProcessId,
        process: Process,
    },
    Thread {
        id: ThreadId,
        process: ProcessId,
        tid: u32,
        comm: String,
    },
    /// The thread has another name from now on.
    ThreadName {
        id: ThreadId,
        comm: String,
    },
    Target {
        id: TargetId,
        target: WaitTarget,
    },
    /// What a process belongs to.
    Label {
        process: ProcessId,
        label: Label,
    },
    /// Launches of a process with this handle launch that kernel.
    Kernel {
        process: ProcessId,
        handle: u64,
        kernel: String,
    },
    Forgotten(Forgotten),
}

/// No later row cites these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    Process(ProcessId),
    Thread(ThreadId),
    /// All targets so far.
    Targets,
    /// All stacks so far.
    Stacks,
}

impl Row {
    /// How many things the row tells of.
    pub fn len(&self) -> usize {
        match self {
            Self::Calls(rows) => rows.len(),
            Self::CollectiveCaptures(rows) => rows.len(),
            Self::CollectiveReplays(rows) => rows.len(),
            Self::CollectiveWaits(rows) => rows.len(),
            Self::Stretches(rows) => rows.len(),
            Self::KernelWork(rows) => rows.len(),
            Self::IoRequests(rows) => rows.len(),
            Self::TcpEvents(rows) => rows.len(),
            Self::FabricEvents(rows) => rows.len(),
            Self::Annotations(rows) => rows.len(),
            Self::CallStats(rows) => rows.len(),
            Self::ThreadTimes(rows) => rows.len(),
            Self::Standstills(rows) => rows.len(),
            Self::IoUsage(rows) => rows.len(),
            Self::StackSamples(rows) => rows.len(),
            Self::StackWalks(rows) => rows.len(),
            Self::Samples(rows) => rows.len(),
            _ => 1,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it tells of single things that happened. All other rows are few, and what comes later builds on them: names,
    /// and sums that have to be exact.
    pub fn is_detail(&self) -> bool {
        matches!(
            self,
            Self::Calls(_)
                | Self::CollectiveCaptures(_)
                | Self::CollectiveReplays(_)
                | Self::CollectiveWaits(_)
                | Self::Stretches(_)
                | Self::KernelWork(_)
                | Self::IoRequests(_)
                | Self::TcpEvents(_)
                | Self::Stack { .. }
        )
    }

    /// The calls among them.
    pub fn calls(&self) -> usize {
        if let Self::Calls(calls) = self { calls.len() } else { 0 }
    }
}
