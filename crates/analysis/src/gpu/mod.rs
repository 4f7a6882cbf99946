//! The GPU's ledger: when it worked, when it had nothing to do, and what the host did meanwhile.
//!
//! The host sees what is asked of a GPU and who waits for it. From a wait that returned to the next piece of work the GPU
//! was idle; while a wait lasts it is busy: both are observed. Between the first piece of work and the wait for it nobody
//! knows. There, a long time without calls is idle as far as it is longer than any wait was: that is inferred.

mod outstanding;
mod telling;
mod using;

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{Call, CallClass, Evidence, Layer, LifeKind, ProcessId, Span, ThreadId};

use crate::situation::Situation;
use crate::words::share;
use outstanding::{Action, Outstanding, Scope, State};
pub(crate) use telling::told;
pub(crate) use using::{Did, IdleUse};

/// A wait that returned sooner did not have to wait.
const HAD_TO_WAIT_NS: u64 = 30_000;

/// Waits there must be to say how much work a GPU is given at a time.
const WAITS_THAT_TELL: usize = 3;

/// A time without calls is only looked at when it is longer than this.
const LONG_PAUSE_NS: u64 = 1_000_000;

/// Of the launches of a second, how many must have been seen, and kept, to know when there were none; or of its waits, how
/// many must be followed by a launch that was kept.
const LEAST_SEEN: f64 = 0.98;
const LEAST_KEPT: f64 = 0.9;
const LEAST_FOLLOWED: f64 = 0.7;

/// Where the host was so late that no wait had to wait, a GPU is idle for about this part of what is not known.
const IDLE_OF_STARVED: f64 = 0.5;

/// One GPU in the window.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    pub device: u16,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub unknown_ns: u64,
    /// The part of the unknown time that is idle in all likelihood.
    inferred_idle_ns: u64,
    /// The part of the unknown time in which the host was late.
    starved_ns: u64,
    /// When it was idle, in the order of time.
    pub idle: Vec<Idle>,
}

/// A time in which a GPU was idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Idle {
    pub span: Span,
    /// Who gave it work again.
    pub ended_by: ThreadId,
    pub evidence: Evidence,
}

impl Idle {
    pub fn ns(&self) -> u64 {
        self.span.to_ns.saturating_sub(self.span.from_ns)
    }
}

impl Gpu {
    pub fn all_ns(&self) -> u64 {
        self.busy_ns.saturating_add(self.idle_ns).saturating_add(self.unknown_ns)
    }

    /// The best estimate, of all its time.
    pub fn idle_share(&self) -> f64 {
        let starved_ns = self.starved_ns.saturating_sub(self.inferred_idle_ns);
        let guessed_ns = (starved_ns as f64 * IDLE_OF_STARVED) as u64;
        share(self.idle_ns.saturating_add(self.inferred_idle_ns).saturating_add(guessed_ns), self.all_ns()).min(1.0)
    }

    /// What the true share lies between.
    pub fn interval(&self) -> [f64; 2] {
        [
            share(self.idle_ns, self.all_ns()),
            share(self.idle_ns.saturating_add(self.unknown_ns), self.all_ns()).min(1.0),
        ]
    }

    pub fn known_by(&self) -> Evidence {
        if self.inferred_idle_ns > self.idle_ns { Evidence::Inferred } else { Evidence::Observed }
    }
}

/// Every GPU that was given work, in the order of their numbers.
pub(crate) fn gpus(situation: &Situation<'_>) -> Vec<Gpu> {
    let processes = processes(situation);
    let devices: BTreeSet<u16> = processes.iter().map(|process| process.device).collect();
    devices.into_iter().map(|device| unite(device, &processes)).collect()
}

/// What one process asked of one GPU.
struct Asking {
    device: u16,
    /// In the order of time, one right after the other.
    states: Vec<(Span, State, Option<ThreadId>)>,
    inferred: Vec<Idle>,
    starved_ns: u64,
}

fn processes(situation: &Situation<'_>) -> Vec<Asking> {
    let window = situation.window;
    let layers = lowest_layers(situation);
    let mut calls: BTreeMap<(u16, ProcessId), Vec<(&Call, Action)>> = BTreeMap::new();
    for call in &window.calls.rows {
        let Some(process) = situation.process_id(call.thread) else { continue };
        let Some(op) = situation.op(call.op).filter(|op| layers.get(&process) == Some(&op.layer)) else { continue };
        if let Some(action) =
            action(call, op.meaning.class, op.meaning.is_launch, op.meaning.is_wait, op.meaning.is_async)
        {
            calls.entry((call.device.unwrap_or(0), process)).or_default().push((call, action));
        }
    }
    let feeders: BTreeSet<ProcessId> = situation.feeders().filter_map(|thread| situation.process_id(thread)).collect();
    let of_feeders = calls.into_iter().filter(|((_, process), _)| feeders.contains(process));
    of_feeders.map(|((device, process), calls)| asking(situation, device, process, &calls)).collect()
}

/// Calls of the layers above ask for the same work.
fn lowest_layers(situation: &Situation<'_>) -> BTreeMap<ProcessId, Layer> {
    let mut layers: BTreeMap<ProcessId, Layer> = BTreeMap::new();
    for sum in &situation.window.call_sums {
        let (Some(process), Some(op)) = (situation.process_id(sum.thread), situation.op(sum.op)) else { continue };
        let lowest = layers.entry(process).or_insert(op.layer);
        *lowest = Layer::lowest([*lowest, op.layer]).unwrap_or(op.layer);
    }
    layers
}

/// What a call does to the work that a GPU has.
fn action(call: &Call, class: CallClass, is_launch: bool, is_wait: bool, is_async: bool) -> Option<Action> {
    let stream = call.stream.unwrap_or(0);
    let scope = call.stream.map_or(Scope::All, Scope::Stream);
    match class {
        _ if is_launch => Some(Action::Submit(stream)),
        CallClass::Copy | CallClass::Memset if is_async => Some(Action::Submit(stream)),
        CallClass::Copy => Some(Action::Wait(scope)),
        CallClass::Memset => Some(Action::Submit(stream)),
        _ if is_wait && call.stream.is_none() && call.handle.is_some() => {
            Some(Action::Wait(Scope::Event(call.handle?)))
        }
        _ if is_wait => Some(Action::Wait(scope)),
        // Records and waits of streams have both; which of the two it is does not matter much.
        CallClass::Event => call.handle.map(|event| Action::Mark { event, stream }),
        _ => None,
    }
}

fn asking(situation: &Situation<'_>, device: u16, process: ProcessId, calls: &[(&Call, Action)]) -> Asking {
    let window = situation.window;
    let hidden = hidden_seconds(situation, process, calls);
    let started_ns = window.processes.get(&process).map_or(0, |process| process.started_ns);
    // Who was there before the window may have left work behind.
    let first = if started_ns > window.from_ns { State::Idle } else { State::Unknown };
    let mut outstanding = Outstanding::new(window.from_ns, first);
    let longest_wait_ns = longest_wait(calls);
    // A wait begins with its call and ends with its return; calls of other threads come in between.
    let mut moments: Vec<(u64, usize, bool)> = Vec::with_capacity(calls.len() * 2);
    for (at, (call, action)) in calls.iter().enumerate() {
        moments.push((call.start_ns, at, true));
        if matches!(action, Action::Wait(_)) {
            moments.push((call.start_ns.saturating_add(call.duration_ns), at, false));
        }
    }
    moments.sort_unstable();
    let mut inferred = Vec::new();
    let mut last_ns = None;
    for (at_ns, at, is_begin) in moments {
        let (call, action) = calls[at];
        if let (true, Some(last_ns), Some(longest_ns)) = (is_begin, last_ns, longest_wait_ns) {
            inferred.extend(pause(&outstanding, last_ns, at_ns, longest_ns, call.thread));
        }
        match (action, is_begin) {
            (Action::Submit(stream), _) if last_ns.is_none() => outstanding.begin(at_ns, stream),
            (Action::Submit(stream), _) => outstanding.submit(at_ns, stream, call.thread),
            (Action::Mark { event, stream }, _) => outstanding.mark(at_ns, event, stream),
            (Action::Wait(_), true) => outstanding.begin_wait(at_ns, call.duration_ns >= HAD_TO_WAIT_NS),
            (Action::Wait(scope), false) => {
                outstanding.end_wait(at_ns, call.start_ns, scope, call.duration_ns >= HAD_TO_WAIT_NS);
            }
        }
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        last_ns = Some(last_ns.map_or(end_ns, |last: u64| last.max(end_ns)));
    }
    // Who has ended wants nothing of the GPU any more.
    let to_ns = if has_ended(situation, process) { last_ns.unwrap_or(window.to_ns) } else { window.to_ns };
    let (states, starved_ns) = outstanding.finish(to_ns.min(window.to_ns));
    let states = hide(states, &hidden);
    inferred.retain(|idle| !hidden.iter().any(|span| overlaps(span, &idle.span)));
    Asking { device, states, inferred, starved_ns }
}

fn has_ended(situation: &Situation<'_>, process: ProcessId) -> bool {
    let pid = situation.window.processes.get(&process).map(|process| process.pid);
    situation.window.life.iter().any(|life| life.kind == LifeKind::Exit && Some(life.pid) == pid)
}

/// The longest time that somebody waited for the GPU: it is never given much more work than that at a time.
fn longest_wait(calls: &[(&Call, Action)]) -> Option<u64> {
    let waits =
        || calls.iter().filter(|(_, action)| matches!(action, Action::Wait(_))).map(|(call, _)| call.duration_ns);
    (waits().count() >= WAITS_THAT_TELL).then(|| waits().max()).flatten()
}

/// The end of a long time without calls, when all that the GPU had been given must have been done.
fn pause(
    outstanding: &Outstanding,
    from_ns: u64,
    to_ns: u64,
    longest_wait_ns: u64,
    ended_by: ThreadId,
) -> Option<Idle> {
    let idle_from_ns = from_ns.saturating_add(longest_wait_ns).saturating_add(LONG_PAUSE_NS);
    let is_long = to_ns > idle_from_ns && outstanding.state() == State::Unknown;
    let span = Span { from_ns: idle_from_ns, to_ns };
    is_long.then_some(Idle { span, ended_by, evidence: Evidence::Inferred })
}

/// Seconds in which nobody knows when a process gave the GPU work.
fn hidden_seconds(situation: &Situation<'_>, process: ProcessId, calls: &[(&Call, Action)]) -> Vec<Span> {
    let window = situation.window;
    let mut seconds: BTreeMap<u64, Visibility> = BTreeMap::new();
    let layer = lowest_layers(situation).get(&process).copied();
    for second in &window.call_seconds {
        let visibility = seconds.entry(second.bucket_ns).or_default();
        let is_own = situation.process_id(second.thread) == Some(process);
        let is_launch = situation.op(second.op).is_some_and(|op| op.meaning.is_launch && Some(op.layer) == layer);
        if is_own && is_launch {
            visibility.made += second.calls;
            visibility.seen += second.seen;
        }
    }
    let starts: Vec<u64> = seconds.keys().copied().collect();
    let mut last_waits: BTreeMap<ThreadId, u64> = BTreeMap::new();
    for (call, action) in calls {
        let at = starts.partition_point(|&start| start <= call.start_ns).saturating_sub(1);
        let Some(second) = starts.get(at).and_then(|start| seconds.get_mut(start)) else { continue };
        second.kept += u64::from(situation.is_launch(call.op));
        match action {
            Action::Wait(_) => {
                second.waits += 1;
                last_waits.insert(call.thread, call.start_ns);
            }
            Action::Submit(_) => second.followed += u64::from(last_waits.remove(&call.thread).is_some()),
            Action::Mark { .. } => {}
        }
    }
    let end = |at: usize| starts.get(at + 1).copied().unwrap_or(window.to_ns);
    let hidden = seconds.iter().enumerate().filter(|(_, (_, visibility))| visibility.is_hidden());
    let mut spans: Vec<Span> = hidden.map(|(at, (&from_ns, _))| Span { from_ns, to_ns: end(at) }).collect();
    spans.extend(not_read(window.from_ns, window.to_ns, &window.calls.spans));
    spans
}

/// How much of a process's launches is known in a second.
#[derive(Default)]
struct Visibility {
    made: u64,
    /// Counted one by one.
    seen: u64,
    /// With a record.
    kept: u64,
    waits: u64,
    /// Waits after which the next launch has a record.
    followed: u64,
}

impl Visibility {
    /// The tracer keeps the first launch after each wait, as long as it sees all of them.
    fn is_hidden(&self) -> bool {
        let is_seen = self.seen as f64 >= LEAST_SEEN * self.made as f64;
        let is_kept = self.kept as f64 >= LEAST_KEPT * self.made as f64 - 4.0;
        let is_followed = self.followed as f64 >= LEAST_FOLLOWED * self.waits as f64;
        !is_seen || !(is_kept || (is_followed && self.waits > 0))
    }
}

/// Times of which not every call was read.
fn not_read(from_ns: u64, to_ns: u64, read: &[Span]) -> Vec<Span> {
    let mut missing = Vec::new();
    let mut at_ns = from_ns;
    for span in read {
        if span.from_ns > at_ns {
            missing.push(Span { from_ns: at_ns, to_ns: span.from_ns });
        }
        at_ns = at_ns.max(span.to_ns);
    }
    // The last span ends with the last record.
    if read.is_empty() && to_ns > at_ns {
        missing.push(Span { from_ns: at_ns, to_ns });
    }
    missing
}

fn overlaps(one: &Span, other: &Span) -> bool {
    one.from_ns < other.to_ns && other.from_ns < one.to_ns
}

type States = Vec<(Span, State, Option<ThreadId>)>;

/// Nobody knows whether a GPU was idle when not every launch was seen.
fn hide(states: States, hidden: &[Span]) -> States {
    let change = |(span, state, ended_by): (Span, State, Option<ThreadId>)| {
        let is_hidden = state == State::Idle && hidden.iter().any(|one| overlaps(one, &span));
        if is_hidden { (span, State::Unknown, None) } else { (span, state, ended_by) }
    };
    states.into_iter().map(change).collect()
}

/// A GPU is idle when it is idle for everybody, and busy when it is for one.
fn unite(device: u16, processes: &[Asking]) -> Gpu {
    let own: Vec<&Asking> = processes.iter().filter(|process| process.device == device).collect();
    let mut gpu = Gpu { device, ..Gpu::default() };
    let mut edges: Vec<u64> = own.iter().flat_map(|one| one.states.iter().map(|(span, ..)| span.from_ns)).collect();
    edges.extend(own.iter().filter_map(|one| one.states.last()).map(|(span, ..)| span.to_ns));
    edges.sort_unstable();
    edges.dedup();
    let mut at = vec![0usize; own.len()];
    for pair in edges.windows(2) {
        let span = Span { from_ns: pair[0], to_ns: pair[1] };
        let mut states = Vec::with_capacity(own.len());
        for (one, at) in own.iter().zip(&mut at) {
            while one.states.get(*at + 1).is_some_and(|(next, ..)| next.from_ns <= span.from_ns) {
                *at += 1;
            }
            let state =
                one.states.get(*at).filter(|(state, ..)| state.from_ns <= span.from_ns && span.from_ns < state.to_ns);
            states.extend(state.map(|(_, state, by)| (*state, *by)));
        }
        gpu.add(span, &states);
    }
    for one in &own {
        gpu.starved_ns = gpu.starved_ns.saturating_add(one.starved_ns);
        // What one process leaves idle, another may use.
        if own.len() == 1 {
            gpu.inferred_idle_ns = one.inferred.iter().fold(0, |sum, idle| sum.saturating_add(idle.ns()));
            gpu.idle.extend(&one.inferred);
        }
    }
    gpu.starved_ns = gpu.starved_ns.min(gpu.unknown_ns);
    gpu.inferred_idle_ns = gpu.inferred_idle_ns.min(gpu.unknown_ns);
    gpu.idle.sort_by_key(|idle| idle.span.from_ns);
    gpu
}

impl Gpu {
    fn add(&mut self, span: Span, states: &[(State, Option<ThreadId>)]) {
        let ns = span.to_ns - span.from_ns;
        let has = |state| states.iter().any(|(one, _)| *one == state);
        if has(State::Busy) {
            self.busy_ns = self.busy_ns.saturating_add(ns);
        } else if has(State::Unknown) {
            self.unknown_ns = self.unknown_ns.saturating_add(ns);
        } else {
            self.idle_ns = self.idle_ns.saturating_add(ns);
            if let Some(ended_by) = states.iter().find_map(|(_, by)| *by) {
                self.idle.push(Idle { span, ended_by, evidence: Evidence::Observed });
            }
        }
    }
}
