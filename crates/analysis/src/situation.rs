//! A window with what rules look up in it again and again: names, waits by thread, who ended each wait.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{CallClass, KernelWork, OpId, Process, ProcessId, Reference, Stretch, TargetId, ThreadId, WorkKind};
use gpuwhy_store::{CallSum, Op, ThreadSum, Window};

use crate::class::{WaitClass, classify};
use crate::dispatcher::{self, Dispatcher};

/// Programs whose work is never a finding: the tracer itself.
const TRACERS: &[&str] = &["gpuwhy"];

/// A wait that a timer cut into pieces is one wait as long as its pieces are not further apart.
const PIECES_APART_NS: u64 = 50_000_000;

pub struct Situation<'w> {
    pub window: &'w Window,
    pub dispatchers: Vec<Dispatcher<'w>>,
    waits: BTreeMap<ThreadId, Vec<Waiting<'w>>>,
    sums: BTreeMap<ThreadId, &'w ThreadSum>,
    calls: BTreeMap<ThreadId, Vec<&'w CallSum>>,
    tracers: BTreeSet<ProcessId>,
}

/// A stretch with what follows from it.
#[derive(Clone, Copy)]
pub struct Waiting<'w> {
    pub stretch: &'w Stretch,
    pub class: Option<WaitClass>,
    pub ended_by: Option<EndedBy>,
}

/// Who ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedBy {
    pub thread: ThreadId,
    /// A timer woke the waiter, and this thread ended the wait on the same thing right after.
    pub is_inferred: bool,
}

impl Waiting<'_> {
    pub fn blocked_to_ns(&self) -> u64 {
        self.stretch.start_ns.saturating_add(self.stretch.blocked_ns)
    }

    pub fn end_ns(&self) -> u64 {
        self.blocked_to_ns().saturating_add(self.stretch.runqueue_ns)
    }

    pub fn reference(&self) -> Reference {
        self.stretch.reference()
    }
}

impl<'w> Situation<'w> {
    pub fn new(window: &'w Window) -> Self {
        let mut calls: BTreeMap<ThreadId, Vec<&CallSum>> = BTreeMap::new();
        window.call_sums.iter().for_each(|sum| calls.entry(sum.thread).or_default().push(sum));
        let mut situation = Self {
            window,
            dispatchers: Vec::new(),
            waits: waits(window),
            sums: window.thread_sums.iter().map(|sum| (sum.times.thread, sum)).collect(),
            calls,
            tracers: tracers(window),
        };
        let feeders = dispatcher::feeders(&situation);
        situation.mark_handovers(&feeders);
        situation.dispatchers = dispatcher::build(&situation, &feeders);
        situation
    }

    /// Threads of one process that take turns at feeding the GPU starve nobody by it.
    fn mark_handovers(&mut self, feeders: &BTreeSet<ThreadId>) {
        let Self { waits, window, .. } = self;
        let process = |thread: ThreadId| window.threads.get(&thread).map(|thread| thread.process);
        for &feeder in feeders {
            let is_turn = |by: EndedBy| {
                by.thread != feeder && feeders.contains(&by.thread) && process(by.thread) == process(feeder)
            };
            let own = waits.get_mut(&feeder).into_iter().flatten();
            for waiting in own.filter(|waiting| waiting.class == Some(WaitClass::Input)) {
                if waiting.ended_by.is_some_and(is_turn) {
                    waiting.class = Some(WaitClass::Handover);
                }
            }
        }
    }

    /// The waits of a thread in the order of time.
    pub fn waits(&self, thread: ThreadId) -> &[Waiting<'w>] {
        self.waits.get(&thread).map_or(&[], Vec::as_slice)
    }

    pub fn sum(&self, thread: ThreadId) -> Option<&'w ThreadSum> {
        self.sums.get(&thread).copied()
    }

    pub fn threads_with_sums(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.sums.keys().copied()
    }

    pub fn calls(&self, thread: ThreadId) -> &[&'w CallSum] {
        self.calls.get(&thread).map_or(&[], Vec::as_slice)
    }

    pub fn op(&self, op: OpId) -> Option<&'w Op> {
        self.window.ops.get(&op)
    }

    pub fn class_of(&self, op: OpId) -> Option<CallClass> {
        self.op(op).map(|op| op.meaning.class)
    }

    /// Whether a function starts work on the GPU.
    pub fn is_launch(&self, op: OpId) -> bool {
        self.op(op).is_some_and(|op| op.meaning.is_launch)
    }

    /// Whether a function is there to wait for the GPU.
    pub fn is_wait(&self, op: OpId) -> bool {
        self.op(op).is_some_and(|op| op.meaning.is_wait)
    }

    pub fn process_id(&self, thread: ThreadId) -> Option<ProcessId> {
        self.window.threads.get(&thread).map(|thread| thread.process)
    }

    pub fn process(&self, thread: ThreadId) -> Option<&'w Process> {
        self.process_id(thread).and_then(|process| self.window.processes.get(&process))
    }

    /// Processes that use a GPU, of those that are asked about.
    pub fn job(&self) -> BTreeSet<ProcessId> {
        let users = self.calls.keys().filter_map(|&thread| self.process_id(thread));
        let pid = |process: &ProcessId| self.window.processes.get(process).map(|process| process.pid);
        users.filter(|process| self.window.pid.is_none_or(|wanted| pid(process) == Some(wanted))).collect()
    }

    /// A process without a program is one of the kernel's threads.
    pub fn is_kernel_thread(&self, process: ProcessId) -> bool {
        let process = self.window.processes.get(&process);
        process.is_some_and(|process| process.exe.is_empty() && process.cmdline.is_empty())
    }

    /// Whether a process is the tracer.
    pub fn is_tracers(&self, process: ProcessId) -> bool {
        self.tracers.contains(&process)
    }

    /// Whether a thread is the tracer's.
    pub fn is_tracer(&self, thread: ThreadId) -> bool {
        self.process_id(thread).is_some_and(|process| self.tracers.contains(&process))
    }

    /// `python (4711)`, or `worker (4711/4720)` for a thread that is not its process's first.
    pub fn name(&self, thread: ThreadId) -> String {
        let Some(facts) = self.window.threads.get(&thread) else { return "an unknown thread".to_owned() };
        match self.process(thread) {
            Some(process) if process.pid != facts.tid => format!("{} ({}/{})", facts.comm, process.pid, facts.tid),
            _ => format!("{} ({})", facts.comm, facts.tid),
        }
    }

    pub fn target_name(&self, target: Option<TargetId>) -> Option<&'w str> {
        target.and_then(|target| self.window.targets.get(&target)).map(|target| target.name.as_str())
    }

    /// Share of the window of which every stretch was read.
    pub fn stretch_share(&self) -> f64 {
        let length = self.window.to_ns.saturating_sub(self.window.from_ns);
        if length == 0 { 1.0 } else { (self.window.stretches.covered_ns() as f64 / length as f64).clamp(0.0, 1.0) }
    }
}

fn waits(window: &Window) -> BTreeMap<ThreadId, Vec<Waiting<'_>>> {
    let mut waits: BTreeMap<ThreadId, Vec<Waiting<'_>>> = BTreeMap::new();
    for stretch in &window.stretches.rows {
        let waiting = Waiting { stretch, class: classify(window, stretch), ended_by: None };
        waits.entry(stretch.thread).or_default().push(waiting);
    }
    for waits in waits.values_mut() {
        waits.sort_by_key(|waiting| waiting.stretch.start_ns);
        name_who_ended_them(waits);
    }
    mark_reclaim(window, &mut waits);
    waits
}

/// Goes backwards, so that a piece without a waker finds who ended the next piece.
fn name_who_ended_them(waits: &mut [Waiting<'_>]) {
    let mut next: BTreeMap<(Option<WaitClass>, TargetId), (u64, ThreadId)> = BTreeMap::new();
    for waiting in waits.iter_mut().rev() {
        let (start_ns, end_ns) = (waiting.stretch.start_ns, waiting.end_ns());
        let key = waiting.stretch.target.map(|target| (waiting.class, target));
        let inherited = key.and_then(|key| next.get(&key)).filter(|(at_ns, _)| {
            waiting.class.is_some_and(WaitClass::is_for_a_thread) && at_ns.saturating_sub(end_ns) <= PIECES_APART_NS
        });
        waiting.ended_by = match (waiting.stretch.woken_by, inherited) {
            (Some(thread), _) => Some(EndedBy { thread, is_inferred: false }),
            (None, Some(&(_, thread))) => Some(EndedBy { thread, is_inferred: true }),
            (None, None) => None,
        };
        if let (Some(key), Some(ended_by)) = (key, waiting.ended_by) {
            next.insert(key, (start_ns, ended_by.thread));
        }
    }
}

/// A wait for a disk inside memory reclaim is reclaim's.
fn mark_reclaim(window: &Window, waits: &mut BTreeMap<ThreadId, Vec<Waiting<'_>>>) {
    let is_reclaim = |work: &&KernelWork| matches!(work.kind, WorkKind::Reclaim | WorkKind::Compaction);
    for work in window.kernel_work.rows.iter().filter(is_reclaim) {
        let Some(waits) = waits.get_mut(&work.thread) else { continue };
        let end_ns = work.start_ns.saturating_add(work.duration_ns);
        let first = waits.partition_point(|waiting| waiting.stretch.start_ns < work.start_ns);
        let inside = waits[first..].iter_mut().take_while(|waiting| waiting.stretch.start_ns < end_ns);
        for waiting in inside.filter(|waiting| waiting.class.is_some()) {
            waiting.class = Some(WaitClass::Reclaim);
        }
    }
}

/// The tracer is known by its name, and by the command line that its session carries.
fn tracers(window: &Window) -> BTreeSet<ProcessId> {
    let is_tracer = |process: &Process| {
        let file = process.exe.rsplit('/').next().unwrap_or_default();
        let is_session = |command: &str| !command.is_empty() && command == process.cmdline.trim_end();
        TRACERS.contains(&process.comm.as_str())
            || TRACERS.contains(&file)
            || window.sessions.iter().any(|session| is_session(&session.command))
    };
    window.processes.iter().filter(|(_, process)| is_tracer(process)).map(|(id, _)| *id).collect()
}
