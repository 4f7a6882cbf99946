//! The GPU's ledger: when it worked, when it had nothing to do, and what the host did meanwhile.
//!
//! The host sees what is asked of a GPU and who waits for it. From a wait that returned to the next piece of work the GPU
//! was idle; while a wait lasts it is busy: both are observed. Between the first piece of work and the wait for it nobody
//! knows. There, a long time without calls is idle as far as it is longer than any wait was: that is inferred.
//!
//! A GPU that says itself how much it worked is believed: what is seen of its idle time then says only whose it is. Where
//! hardly any is seen, because nobody waits for it, it is that of whoever asked nothing of it for long.
//!
//! Where launches are too many to be watched all the time, the times in which they were are a sample of all others.

mod communicating;
mod contradiction;
mod feeding;
mod outstanding;
mod sight;
mod telling;
mod using;
mod word;

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{Call, Contradiction, DeviceAction, Evidence, HAD_TO_WAIT_NS, ProcessId, Span, ThreadId};
use gpuwhy_window::Device;

use crate::situation::Situation;
use crate::words::share;
pub(crate) use feeding::Feeding;
use outstanding::{Followed, Outstanding, State, States};
use sight::Sight;
pub(crate) use telling::told;
pub(crate) use using::{Did, IdleUse};
pub(crate) use word::Word;

/// A launch that takes longer than this waits for a place in the queue.
pub(crate) const LONGEST_LAUNCH_NS: u64 = 50_000;

/// Where so many of the launches do, nobody knows how much the GPU has to do.
const QUEUE_IS_FULL: f64 = 0.02;

/// Waits there must be to say how much work a GPU is given at a time.
const WAITS_THAT_TELL: usize = 3;

/// A time without calls is only looked at when it is longer than this.
const LONG_PAUSE_NS: u64 = 1_000_000;

/// So many separate looks must there be to take them for the rest, and this part of the time.
const LEAST_LOOKS: usize = 3;
const LEAST_LOOKED: f64 = 0.01;

/// Standard errors on either side of an estimate.
const ERRORS: f64 = 2.0;

/// Where the host was so late that no wait had to wait, a GPU is idle for about this part of what is not known.
const IDLE_OF_STARVED: f64 = 0.5;

/// Where less of the idle time is seen that a GPU says it had, what is seen says nothing about the rest.
const LITTLE_SEEN: f64 = 0.1;

/// One GPU in the window.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    pub device: Device,
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub unknown_ns: u64,
    /// Of the idle time: seen to be.
    observed_idle_ns: u64,
    /// By how much the idle time may be less.
    error_ns: u64,
    /// The part of the unknown time that is idle in all likelihood.
    inferred_idle_ns: u64,
    /// The part of the unknown time in which the host was late.
    starved_ns: u64,
    /// What it says itself.
    pub word: Option<Word>,
    /// Where that and what calls tell cannot both be true.
    contradiction: Option<Contradiction>,
    /// When it was idle, in the order of time, as far as that was seen.
    pub idle: Vec<Idle>,
    /// When it was given work that was done as soon as it came, as far as that was seen.
    pub kept_up: Vec<Span>,
    /// When it had work, and nothing more was asked of it for long.
    pauses: Vec<Idle>,
    /// How much more there is of both.
    pub growth: f64,
    /// Nobody saw whether it got work, and nobody waited.
    unseen_ns: u64,
    /// Of each time between two of those: idle, and idle or unknown.
    looks: Vec<(u64, u64)>,
    was_unseen: bool,
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
        self.span.ns()
    }
}

impl Gpu {
    pub fn all_ns(&self) -> u64 {
        self.busy_ns.saturating_add(self.idle_ns).saturating_add(self.unknown_ns)
    }

    /// The best estimate, of all its time.
    pub fn idle_share(&self) -> f64 {
        if let Some(word) = self.word {
            return word.idle();
        }
        let starved_ns = self.starved_ns.saturating_sub(self.inferred_idle_ns);
        let guessed_ns = (starved_ns as f64 * IDLE_OF_STARVED) as u64;
        share(self.idle_ns.saturating_add(self.inferred_idle_ns).saturating_add(guessed_ns), self.all_ns()).min(1.0)
    }

    /// What the true share lies between.
    pub fn interval(&self) -> [f64; 2] {
        if let Some(word) = self.word {
            return word.interval();
        }
        let least_ns = self.idle_ns.saturating_sub(self.error_ns).max(self.observed_idle_ns);
        [share(least_ns, self.all_ns()), share(self.idle_ns.saturating_add(self.unknown_ns), self.all_ns()).min(1.0)]
    }

    /// The part of its idle times that is there at least, where they are an estimate.
    pub fn surely(&self) -> f64 {
        if self.word.is_some() || self.idle_ns == 0 {
            return 1.0;
        }
        share(self.idle_ns.saturating_sub(self.error_ns).max(self.observed_idle_ns), self.idle_ns)
    }

    pub fn known_by(&self) -> Evidence {
        if self.word.is_some() {
            return Evidence::Explicit;
        }
        let guessed_ns = self.idle_ns.saturating_sub(self.observed_idle_ns).saturating_add(self.inferred_idle_ns);
        if guessed_ns > self.observed_idle_ns { Evidence::Inferred } else { Evidence::Observed }
    }

    /// All idle times together, with those that nobody saw.
    pub fn idle_times_ns(&self) -> u64 {
        let seen_ns = self.idle.iter().fold(0u64, |sum, idle| sum.saturating_add(idle.ns()));
        (seen_ns as f64 * self.growth) as u64
    }
}

/// Every GPU that was given work, in the order of their numbers.
pub(crate) fn gpus(situation: &Situation<'_>) -> Vec<Gpu> {
    let processes = processes(situation);
    let devices: BTreeSet<Device> = processes.iter().map(|process| process.device).collect();
    let mut gpus: Vec<Gpu> = devices.into_iter().map(|device| unite(device, &processes)).collect();
    for gpu in &mut gpus {
        let own = processes.iter().filter(|process| process.device == gpu.device).count() as u64;
        let Some(said) = situation.window.gpu_words.get(&gpu.device) else { continue };
        let Some(word) = Word::hear(situation, gpu.device, said) else { continue };
        gpu.contradiction = contradiction::find(situation, gpu, &word, said, own);
        // What others do on it is nobody's work here.
        if said.processes.is_none_or(|all| all <= own) {
            gpu.believe(word);
        }
    }
    gpus
}

/// What one process asked of one GPU.
struct Asking {
    device: Device,
    states: States,
    inferred: Vec<Idle>,
    pauses: Vec<Idle>,
    starved_ns: u64,
    kept_up: Vec<Span>,
}

fn processes(situation: &Situation<'_>) -> Vec<Asking> {
    let window = situation.window;
    let mut calls: BTreeMap<(Device, ProcessId), Vec<(&Call, DeviceAction)>> = BTreeMap::new();
    for call in &window.calls.rows {
        let Some(process) = situation.process_id(call.thread) else { continue };
        let Some(op) = situation.op(call.op).filter(|_| situation.is_lowest(call.thread, call.op)) else { continue };
        if let Some(action) = call.device_action(&op.meaning) {
            calls.entry((situation.device(call, process), process)).or_default().push((call, action));
        }
    }
    let feeders: BTreeSet<ProcessId> = situation.feeders().filter_map(|thread| situation.process_id(thread)).collect();
    let of_feeders = calls.into_iter().filter(|((_, process), _)| feeders.contains(process));
    let asking = |((device, process), calls): (_, Vec<_>)| {
        let sight = Sight::find(situation, process, situation.lowest_layer(process)?, &calls);
        Some(asking(situation, device, process, &calls, &sight))
    };
    of_feeders.filter_map(asking).collect()
}

/// What happens at a moment. Of several at once, the first of these comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    CloseEyes,
    OpenEyes,
    /// Of the call with this number.
    Begin(u32),
    End(u32),
}

fn asking(
    situation: &Situation<'_>,
    device: Device,
    process: ProcessId,
    calls: &[(&Call, DeviceAction)],
    sight: &Sight,
) -> Asking {
    let window = situation.window;
    let started_ns = window.processes.get(&process).map_or(0, |process| process.started_ns);
    // Who was there before the window may have left work behind.
    let first = if started_ns > window.from_ns { State::Idle } else { State::Unknown };
    let mut outstanding = Outstanding::new(window.from_ns, first);
    let longest_wait_ns = longest_wait(calls);
    let streams = Streams::of(calls);
    let (mut inferred, mut pauses) = (Vec::new(), Vec::new());
    let mut last_ns = None;
    let mut last_call_ns = None;
    for (at_ns, moment) in moments(calls, sight) {
        let (Moment::Begin(at) | Moment::End(at)) = moment else {
            match moment {
                Moment::CloseEyes => outstanding.close_eyes(at_ns),
                _ => outstanding.open_eyes(at_ns, &streams.all, if streams.has_one_feeder { 0 } else { at_ns }),
            }
            last_ns = Some(at_ns);
            continue;
        };
        let (call, action) = calls[at as usize];
        let is_begin = matches!(moment, Moment::Begin(_));
        if let (true, Some(last_ns)) = (is_begin, last_ns) {
            let pause = |longest_ns| pause(&outstanding, last_ns, at_ns, longest_ns, call.thread);
            inferred.extend(longest_wait_ns.and_then(pause));
            pauses.extend(pause(0));
        }
        match (action, is_begin) {
            (DeviceAction::Submit(stream), _) if last_ns.is_none() => outstanding.begin(at_ns, stream),
            (DeviceAction::Submit(stream), _) => outstanding.submit(at_ns, stream, call.thread),
            (DeviceAction::Mark { event, stream }, _) => outstanding.mark(at_ns, event, stream),
            (DeviceAction::Wait(_), true) => outstanding.begin_wait(at_ns, call.duration_ns >= HAD_TO_WAIT_NS),
            (DeviceAction::Wait(scope), false) => {
                outstanding.end_wait(at_ns, call.start_ns, scope, call.duration_ns >= HAD_TO_WAIT_NS);
            }
        }
        let end_ns = Some(call.span().to_ns);
        (last_ns, last_call_ns) = (last_ns.max(end_ns), last_call_ns.max(end_ns));
    }
    // Who has ended wants nothing of the GPU any more.
    let end_ns = last_call_ns.filter(|_| situation.exit(process).is_some());
    let to_ns = end_ns.unwrap_or(window.to_ns);
    let Followed { states, starved_ns, mut kept_up } = outstanding.finish(to_ns.min(window.to_ns));
    let is_seen = |span: &Span| !sight.dark.iter().any(|dark| overlaps(dark, span));
    inferred.retain(|idle| is_seen(&idle.span));
    pauses.retain(|idle| is_seen(&idle.span));
    kept_up.retain(is_seen);
    Asking { device, states: hide(states, &sight.dark), inferred, pauses, starved_ns, kept_up }
}

/// A wait begins with its call and ends with its return; calls of other threads come in between.
fn moments(calls: &[(&Call, DeviceAction)], sight: &Sight) -> Vec<(u64, Moment)> {
    let mut moments: Vec<(u64, Moment)> = Vec::with_capacity(calls.len() * 2);
    for (at, (call, action)) in (0..).zip(calls) {
        moments.push((call.start_ns, Moment::Begin(at)));
        if matches!(action, DeviceAction::Wait(_)) {
            moments.push((call.span().to_ns, Moment::End(at)));
        }
    }
    for span in &sight.blind {
        moments.extend([(span.from_ns, Moment::CloseEyes), (span.to_ns, Moment::OpenEyes)]);
    }
    moments.sort_unstable();
    moments
}

/// Where a process sends its work.
struct Streams {
    all: Vec<u64>,
    /// Only one thread sends any: what it waits for is all there is.
    has_one_feeder: bool,
}

impl Streams {
    fn of(calls: &[(&Call, DeviceAction)]) -> Self {
        let all: BTreeSet<u64> = work(calls).map(|call| call.stream.unwrap_or(0)).collect();
        let feeders: BTreeSet<ThreadId> = work(calls).map(|call| call.thread).collect();
        Self { all: all.into_iter().collect(), has_one_feeder: feeders.len() <= 1 }
    }
}

/// The calls that give the GPU work.
fn work<'c>(calls: &[(&'c Call, DeviceAction)]) -> impl Iterator<Item = &'c Call> {
    calls.iter().filter(|(_, action)| matches!(action, DeviceAction::Submit(_))).map(|(call, _)| *call)
}

/// The longest time that somebody waited for the GPU: it is never given much more work than that at a time, unless launches
/// wait as well.
fn longest_wait(calls: &[(&Call, DeviceAction)]) -> Option<u64> {
    let is_waiting = |call: &&Call| call.duration_ns.saturating_sub(call.runqueue_ns) > LONGEST_LAUNCH_NS;
    if work(calls).filter(is_waiting).count() as f64 > QUEUE_IS_FULL * work(calls).count() as f64 {
        return None;
    }
    let waits =
        || calls.iter().filter(|(_, action)| matches!(action, DeviceAction::Wait(_))).map(|(call, _)| call.duration_ns);
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

fn overlaps(one: &Span, other: &Span) -> bool {
    one.from_ns < other.to_ns && other.from_ns < one.to_ns
}

/// Nobody knows whether a GPU was idle when not every launch was seen.
fn hide(states: States, hidden: &[Span]) -> States {
    let change = |(span, state, ended_by): (Span, State, Option<ThreadId>)| {
        let is_hidden = state == State::Idle && hidden.iter().any(|one| overlaps(one, &span));
        if is_hidden { (span, State::Unknown, None) } else { (span, state, ended_by) }
    };
    states.into_iter().map(change).collect()
}

/// A GPU is idle when it is idle for everybody, and busy when it is for one.
fn unite(device: Device, processes: &[Asking]) -> Gpu {
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
            gpu.pauses.clone_from(&one.pauses);
            gpu.kept_up.clone_from(&one.kept_up);
        }
    }
    gpu.starved_ns = gpu.starved_ns.min(gpu.unknown_ns);
    gpu.inferred_idle_ns = gpu.inferred_idle_ns.min(gpu.unknown_ns);
    gpu.complete();
    gpu.idle.sort_by_key(|idle| idle.span.from_ns);
    gpu
}

impl Gpu {
    fn add(&mut self, span: Span, states: &[(State, Option<ThreadId>)]) {
        let ns = span.ns();
        let has = |state| states.iter().any(|(one, _)| *one == state);
        if has(State::Busy) {
            self.busy_ns = self.busy_ns.saturating_add(ns);
        } else if has(State::Unseen) {
            self.unseen_ns = self.unseen_ns.saturating_add(ns);
            self.was_unseen = true;
        } else if has(State::Unknown) {
            self.unknown_ns = self.unknown_ns.saturating_add(ns);
            let look = self.look();
            look.1 = look.1.saturating_add(ns);
        } else {
            self.idle_ns = self.idle_ns.saturating_add(ns);
            let look = self.look();
            *look = (look.0.saturating_add(ns), look.1.saturating_add(ns));
            if let Some(ended_by) = states.iter().find_map(|(_, by)| *by) {
                self.idle.push(Idle { span, ended_by, evidence: Evidence::Observed });
            }
        }
    }

    /// The present look, or a new one.
    fn look(&mut self) -> &mut (u64, u64) {
        if std::mem::take(&mut self.was_unseen) || self.looks.is_empty() {
            self.looks.push((0, 0));
        }
        let last = self.looks.len() - 1;
        &mut self.looks[last]
    }

    /// Takes the times that were seen for those that were not. Waits are seen always, so that it is about the time in which
    /// nobody waited.
    fn complete(&mut self) {
        self.observed_idle_ns = self.idle_ns;
        self.growth = 1.0;
        let seen_ns = self.idle_ns.saturating_add(self.unknown_ns);
        let unseen_ns = std::mem::take(&mut self.unseen_ns);
        if self.looks.len() < LEAST_LOOKS || (seen_ns as f64) < LEAST_LOOKED * unseen_ns as f64 {
            self.unknown_ns = self.unknown_ns.saturating_add(unseen_ns);
            return;
        }
        let idle = share(self.idle_ns, seen_ns);
        let more = |ns: u64| (share(ns, seen_ns) * unseen_ns as f64) as u64;
        self.error_ns = (ERRORS * standard_error(&self.looks, idle) * unseen_ns as f64) as u64;
        let guessed_ns = more(self.idle_ns);
        self.growth = 1.0 + unseen_ns as f64 / seen_ns.max(1) as f64;
        self.starved_ns = self.starved_ns.saturating_add(more(self.starved_ns));
        self.inferred_idle_ns = self.inferred_idle_ns.saturating_add(more(self.inferred_idle_ns));
        self.idle_ns = self.idle_ns.saturating_add(guessed_ns);
        self.unknown_ns = self.unknown_ns.saturating_add(unseen_ns.saturating_sub(guessed_ns));
    }

    /// Takes its own word for how long it was idle.
    fn believe(&mut self, word: Word) {
        let word = word.corrected_by(self.interval()[0]);
        let all_ns = self.all_ns();
        let idle_ns = (word.idle() * all_ns as f64) as u64;
        let least_ns = (word.interval()[0] * all_ns as f64) as u64;
        // Who hardly ever waits for a GPU does not see that it is idle: it is when nothing is asked of it for long.
        let is_seen = self.idle_times_ns() as f64 >= LITTLE_SEEN * least_ns as f64;
        if !is_seen {
            self.idle.retain(|idle| idle.evidence == Evidence::Observed);
            self.idle.append(&mut self.pauses);
            self.idle.sort_by_key(|idle| idle.span.from_ns);
        }
        let (seen_ns, most_ns) = (self.idle_times_ns(), if is_seen { idle_ns } else { least_ns });
        if seen_ns > most_ns {
            self.growth *= share(most_ns, seen_ns);
        }
        (self.idle_ns, self.busy_ns, self.unknown_ns) = (idle_ns, all_ns.saturating_sub(idle_ns), 0);
        self.word = Some(word);
    }
}

/// Of a share that is estimated from parts of different lengths.
fn standard_error(looks: &[(u64, u64)], estimate: f64) -> f64 {
    let all: f64 = looks.iter().map(|(_, all)| *all as f64).sum();
    let squares: f64 = looks.iter().map(|(idle, all)| (*idle as f64 - estimate * *all as f64).powi(2)).sum();
    let count = looks.len() as f64;
    (squares * count / (count - 1.0).max(1.0)).sqrt() / all.max(1.0)
}
