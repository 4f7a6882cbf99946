//! A window with what is looked up in it again and again: names, sums and waits by thread, who feeds a GPU.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{Call, CallClass, Layer, LifeKind, OpId, Process, ProcessId, ProcessLife, Span, TargetId, ThreadId};
use gpuwhy_window::{CallSum, Device, Host, Op, ThreadSum, Window};

use crate::cohorts::{Cohort, cohorts};
use crate::sync_point;
use crate::waiting::{Waiting, WaitsByThread, mark_handovers, waits};

/// Programs whose work is never a finding: the tracer itself.
const TRACERS: &[&str] = &["gpuwhy"];

/// A thread that launched less than this does not feed a GPU.
const LEAST_LAUNCHES: u64 = 8;

/// One that launched in fewer of its seconds only did so once, at its start or now and then.
const LEAST_SHARE_OF_SECONDS: f64 = 0.1;

/// From this many seconds on, launches in a single one are a start and not a habit.
const SECONDS_THAT_TELL: u64 = 4;

pub struct Situation<'w> {
    pub window: &'w Window,
    /// Threads that launch regularly, of all processes.
    feeders: BTreeSet<ThreadId>,
    waits: WaitsByThread<'w>,
    /// When threads were inside of calls that wait for a GPU, in the order of time.
    gpu_waits: BTreeMap<ThreadId, Vec<Span>>,
    sums: BTreeMap<ThreadId, &'w ThreadSum>,
    calls: BTreeMap<ThreadId, Vec<&'w CallSum>>,
    tracers: BTreeSet<ProcessId>,
    /// The lowest that each process calls: calls of the layers above ask for the same work.
    layers: BTreeMap<ProcessId, Layer>,
    ranks: BTreeMap<ProcessId, u32>,
    /// Ranks that wait for each other.
    pub(crate) cohorts: Vec<Cohort>,
}

impl<'w> Situation<'w> {
    pub fn new(window: &'w Window) -> Self {
        let mut calls: BTreeMap<ThreadId, Vec<&CallSum>> = BTreeMap::new();
        window.call_sums.iter().for_each(|sum| calls.entry(sum.thread).or_default().push(sum));
        let mut situation = Self {
            window,
            feeders: BTreeSet::new(),
            waits: waits(window),
            gpu_waits: gpu_waits(window),
            sums: window.thread_sums.iter().map(|sum| (sum.times.thread, sum)).collect(),
            calls,
            tracers: tracers(window),
            layers: lowest_layers(window),
            ranks: ranks(window),
            cohorts: cohorts(window),
        };
        situation.feeders = situation.sums.keys().copied().filter(|&thread| situation.is_feeder(thread)).collect();
        mark_handovers(window, &mut situation.waits, &situation.feeders);
        situation
    }

    fn is_feeder(&self, thread: ThreadId) -> bool {
        let Some(sum) = self.sum(thread) else { return false };
        let launches = self.calls(thread).iter().filter(|sum| self.is_launch(sum.op));
        let calls = launches.fold(0u64, |calls, sum| calls.saturating_add(sum.calls));
        // Launches that are watched now and then are counted in the seconds when they are. Waits are always seen.
        let telling = self.calls(thread).iter().filter(|sum| self.is_launch(sum.op) || self.is_wait(sum.op));
        let seconds = telling.map(|sum| sum.seconds).max().unwrap_or(0);
        let is_habit = seconds as f64 >= LEAST_SHARE_OF_SECONDS * sum.seconds as f64
            && (seconds > 1 || sum.seconds < SECONDS_THAT_TELL);
        sum.times.wall_ns > 0 && calls >= LEAST_LAUNCHES && is_habit && !self.is_tracer(thread)
    }

    /// Threads that feed a GPU, of the processes that are asked about.
    pub fn feeders(&self) -> impl Iterator<Item = ThreadId> + '_ {
        let pid = |thread: ThreadId| self.process(thread).map(|process| process.pid);
        let is_asked = move |&thread: &ThreadId| self.window.pid.is_none_or(|wanted| pid(thread) == Some(wanted));
        self.feeders.iter().copied().filter(is_asked)
    }

    /// The waits of a thread in the order of time.
    pub fn waits(&self, thread: ThreadId) -> &[Waiting<'w>] {
        self.waits.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// How long a thread was inside of calls that wait for a GPU, within a span.
    pub fn gpu_wait_ns(&self, thread: ThreadId, span: Span) -> u64 {
        let waits = self.gpu_waits.get(&thread).map_or(&[][..], Vec::as_slice);
        let first = waits.partition_point(|wait| wait.to_ns <= span.from_ns);
        let within = waits[first..].iter().take_while(|wait| wait.from_ns < span.to_ns);
        within.map(|wait| wait.to_ns.min(span.to_ns).saturating_sub(wait.from_ns.max(span.from_ns))).sum()
    }

    pub fn sum(&self, thread: ThreadId) -> Option<&'w ThreadSum> {
        self.sums.get(&thread).copied()
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
        self.window.process_id(thread)
    }

    pub fn process(&self, thread: ThreadId) -> Option<&'w Process> {
        self.process_id(thread).and_then(|process| self.window.processes.get(&process))
    }

    /// The rank of a thread's process in its largest communicator, where it has one.
    pub fn rank(&self, thread: ThreadId) -> Option<u32> {
        let process = self.process_id(thread)?;
        let own = self.window.collectives.rows.iter().filter(|one| self.process_id(one.thread) == Some(process));
        own.max_by_key(|one| one.ranks).map(|one| one.rank)
    }

    pub fn lowest_layer(&self, process: ProcessId) -> Option<Layer> {
        self.layers.get(&process).copied()
    }

    /// Whether a function is of the lowest layer that the thread's process calls.
    pub fn is_lowest(&self, thread: ThreadId, op: OpId) -> bool {
        let lowest = self.process_id(thread).and_then(|process| self.lowest_layer(process));
        lowest.is_some() && self.op(op).map(|op| op.layer) == lowest
    }

    /// The end of a process.
    pub fn exit(&self, process: ProcessId) -> Option<&'w ProcessLife> {
        let pid = self.window.processes.get(&process)?.pid;
        let mut life = self.window.life_on(self.window.host_of(process));
        life.find(|life| life.kind == LifeKind::Exit && life.pid == pid)
    }

    /// The GPU that a call of a process is about.
    pub fn device(&self, call: &Call, process: ProcessId) -> Device {
        Device { host: self.window.host_of(process), number: call.device.unwrap_or(0) }
    }

    /// The host that a thread ran on, where there are several.
    pub fn host(&self, thread: ThreadId) -> Option<&'w Host> {
        self.window.host(self.process_id(thread)?)
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
        let on = self.host(thread).map_or_else(String::new, |host| format!(" on {}", host.name));
        let rank = self.process_id(thread).and_then(|process| self.ranks.get(&process));
        let rank = rank.map_or_else(String::new, |rank| format!(", rank {rank}"));
        match self.process(thread) {
            Some(process) if process.pid != facts.tid => {
                format!("{} ({}/{}{rank}){on}", facts.comm, process.pid, facts.tid)
            }
            _ => format!("{} ({}{rank}){on}", facts.comm, facts.tid),
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

/// Which rank a process is in the largest communicator that it takes part in. One that is several ranks has no number.
fn ranks(window: &Window) -> BTreeMap<ProcessId, u32> {
    let mut ranks: BTreeMap<ProcessId, (u32, BTreeSet<u32>)> = BTreeMap::new();
    for one in &window.collectives.rows {
        let Some(process) = window.process_id(one.thread) else { continue };
        let (largest, numbers) = ranks.entry(process).or_default();
        if one.ranks > *largest {
            (*largest, *numbers) = (one.ranks, BTreeSet::new());
        }
        if one.ranks == *largest {
            numbers.insert(one.rank);
        }
    }
    let only = |(process, (ranks, numbers)): (ProcessId, (u32, BTreeSet<u32>))| {
        let number = numbers.first().copied().filter(|_| ranks > 1 && numbers.len() == 1)?;
        Some((process, number))
    };
    ranks.into_iter().filter_map(only).collect()
}

fn lowest_layers(window: &Window) -> BTreeMap<ProcessId, Layer> {
    let mut layers: BTreeMap<ProcessId, Layer> = BTreeMap::new();
    for sum in &window.call_sums {
        let (Some(process), Some(op)) = (window.process_id(sum.thread), window.ops.get(&sum.op)) else { continue };
        let lowest = layers.entry(process).or_insert(op.layer);
        *lowest = Layer::lowest([*lowest, op.layer]).unwrap_or(op.layer);
    }
    layers
}

fn gpu_waits(window: &Window) -> BTreeMap<ThreadId, Vec<Span>> {
    let mut waits: BTreeMap<ThreadId, Vec<Span>> = BTreeMap::new();
    for call in &window.calls.rows {
        if !window.ops.get(&call.op).is_some_and(|op| sync_point::has_waited(call, &op.meaning)) {
            continue;
        }
        let own = waits.entry(call.thread).or_default();
        let last_ns = own.last().map_or(0, |last| last.to_ns);
        // Calls that are made inside of others count once.
        let span = Span { from_ns: call.start_ns.max(last_ns), to_ns: call.span().to_ns };
        own.extend((span.from_ns < span.to_ns).then_some(span));
    }
    waits
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
