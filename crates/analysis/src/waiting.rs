//! Single waits: what each was for, and who ended it.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{
    KernelWork, LifeKind, ProcessId, Reference, Span, Stretch, TargetId, TargetKind, ThreadId, WorkKind,
};
use gpuwhy_window::Window;

use crate::class::{WaitClass, classify};
use crate::words::part;

/// A wait that a timer cut into pieces is one wait as long as its pieces are not further apart.
const PIECES_APART_NS: u64 = 50_000_000;

pub(crate) type WaitsByThread<'w> = BTreeMap<ThreadId, Vec<Waiting<'w>>>;

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

    fn blocked(&self) -> Span {
        Span { from_ns: self.stretch.start_ns, to_ns: self.blocked_to_ns() }
    }

    pub fn end_ns(&self) -> u64 {
        self.blocked_to_ns().saturating_add(self.stretch.runqueue_ns)
    }

    pub fn reference(&self) -> Reference {
        self.stretch.reference()
    }
}

/// The waits of each thread in the order of time.
pub(crate) fn waits(window: &Window) -> WaitsByThread<'_> {
    let mut waits = WaitsByThread::new();
    for stretch in &window.stretches.rows {
        let waiting = Waiting { stretch, class: classify(window, stretch), ended_by: None };
        waits.entry(stretch.thread).or_default().push(waiting);
    }
    mark_last_words(window, &mut waits);
    for waits in waits.values_mut() {
        learn_from_stacks(waits);
        learn_from_wakers(waits);
        waits.sort_by_key(|waiting| waiting.stretch.start_ns);
        name_who_ended_them(waits);
        learn_from_requests(window, waits);
    }
    mark_reclaim(window, &mut waits);
    mark_answers(window, &mut waits);
    mark_commands(window, &mut waits);
    waits
}

/// A process that ends so soon after it said something was waited for to its end. So was one that has lived for no longer
/// than this part of the time.
const LAST_WORDS_NS: u64 = 100_000_000;
const SHORT_LIFE: f64 = 0.1;

/// Who reads what a process says that it started, until that one ends, waits for the process.
fn mark_last_words(window: &Window, waits: &mut WaitsByThread<'_>) {
    let short_ns = part(window.to_ns.saturating_sub(window.from_ns), SHORT_LIFE);
    let mut exits: BTreeMap<(u16, u32), Vec<u64>> = BTreeMap::new();
    for exit in window.life.iter().filter(|life| life.turn.kind == LifeKind::Exit) {
        exits.entry((exit.host, exit.turn.pid)).or_default().push(exit.turn.at_ns);
    }
    for waiting in waits.values_mut().flatten().filter(|waiting| waiting.class == Some(WaitClass::Input)) {
        let Some(waker_id) = waiting.stretch.woken_by.and_then(|waker| window.process_id(waker)) else { continue };
        let waker = window.processes.get(&waker_id);
        let (Some(waker), Some(own)) = (waker, window.process(waiting.stretch.thread)) else { continue };
        let until_ns = waiting.end_ns().saturating_add(LAST_WORDS_NS).max(waker.started_ns.saturating_add(short_ns));
        let soon = waiting.blocked_to_ns()..=until_ns;
        let exits = exits.get(&(window.host_of(waker_id), waker.pid));
        let ends_soon = || exits.is_some_and(|exits| exits.iter().any(|at_ns| soon.contains(at_ns)));
        if waker.parent_pid == own.pid && ends_soon() {
            waiting.class = Some(WaitClass::Child);
        }
    }
}

/// How Python's workers are called that it starts as programs of their own.
const WORKER: &str = "multiprocessing";

/// Who keeps a command running, asks it and waits for its answer, waits for a process that it started. Whoever delivers
/// without being asked each time works ahead, and so do workers that are asked for several things at once.
fn mark_commands(window: &Window, waits: &mut WaitsByThread<'_>) {
    let is_input = |waiting: &&Waiting<'_>| waiting.class == Some(WaitClass::Input);
    let who = |waiting: &Waiting<'_>| {
        Some((window.process_id(waiting.stretch.thread)?, window.process_id(waiting.ended_by?.thread)?))
    };
    let mut count: BTreeMap<(ProcessId, ProcessId), usize> = BTreeMap::new();
    for pair in waits.values().flatten().filter(is_input).filter_map(who) {
        *count.entry(pair).or_default() += 1;
    }
    let is_command = |(own, other): (ProcessId, ProcessId)| {
        let (Some(own), Some(other)) = (window.processes.get(&own), window.processes.get(&other)) else { return false };
        other.parent_pid == own.pid && other.cmdline != own.cmdline && !other.cmdline.contains(WORKER)
    };
    let is_asked = |(own, other)| 2 * count.get(&(other, own)).unwrap_or(&0) >= count[&(own, other)];
    let commands: BTreeSet<_> = count.keys().copied().filter(|&pair| is_command(pair) && is_asked(pair)).collect();
    for waiting in waits.values_mut().flatten().filter(|waiting| is_input(&&**waiting)) {
        if who(waiting).is_some_and(|pair| commands.contains(&pair)) {
            waiting.class = Some(WaitClass::Child);
        }
    }
}

/// Whoever waits for all its sockets at once may wait for somebody to ask, or for an answer. It is an answer if who sent it
/// is a server that its own process asks, whether that one serves others itself or not.
fn mark_answers(window: &Window, waits: &mut WaitsByThread<'_>) {
    let process = |thread: ThreadId| window.process_id(thread);
    let who = |waiting: &Waiting<'_>| Some((process(waiting.stretch.thread)?, process(waiting.ended_by?.thread)?));
    let is_request = |waiting: &Waiting<'_>| waiting.class == Some(WaitClass::Request);
    let is_for_any = |waiting: &Waiting<'_>| {
        is_request(waiting) || (waiting.class == Some(WaitClass::Input) && is_for_all_sockets(window, waiting.stretch))
    };
    let asked: BTreeSet<(ProcessId, ProcessId)> =
        waits.values().flatten().filter(|waiting| is_request(waiting)).filter_map(who).collect();
    let is_answer = |waiting: &Waiting<'_>| {
        is_for_any(waiting) && who(waiting).is_some_and(|(own, other)| own != other && asked.contains(&(other, own)))
    };
    let mut answers: BTreeMap<ThreadId, Vec<(Span, EndedBy)>> = BTreeMap::new();
    for waiting in waits.values_mut().flatten().filter(|waiting| is_answer(waiting)) {
        waiting.class = Some(WaitClass::Network);
        if let Some(by) = waiting.ended_by {
            answers.entry(waiting.stretch.thread).or_default().push((waiting.blocked(), by));
        }
    }
    // A thread that gets its work from one that waits for an answer waits for the answer.
    for waiting in waits.values_mut().flatten().filter(|waiting| waiting.class == Some(WaitClass::Input)) {
        let Some(by) = waiting.ended_by.filter(|by| process(by.thread) == process(waiting.stretch.thread)) else {
            continue;
        };
        let own = waiting.blocked();
        let relayed = answers.get(&by.thread).and_then(|answers| {
            let last = answers.partition_point(|(answer, _)| answer.to_ns <= own.to_ns).checked_sub(1)?;
            answers.get(last)
        });
        if let Some((answer, answered_by)) = relayed
            && own.overlap_ns(answer) > own.ns() / 2
        {
            (waiting.class, waiting.ended_by) = (Some(WaitClass::Network), Some(*answered_by));
        }
    }
}

/// What stacks tell of something that is waited on, and what it is taken for without: a thread that is seen to write to
/// something does not read from it, and what is once taken as a lock is one.
const TOLD_BY_STACKS: &[(WaitClass, &[WaitClass])] =
    &[(WaitClass::Output, &[WaitClass::Input, WaitClass::Network]), (WaitClass::Lock, &[WaitClass::Input])];

/// What a thread waits on is known from those waits that have a stack.
fn learn_from_stacks(waits: &mut [Waiting<'_>]) {
    for &(class, otherwise) in TOLD_BY_STACKS {
        let is_told = |waiting: &&Waiting<'_>| waiting.class == Some(class);
        let told: BTreeSet<TargetId> =
            waits.iter().filter(is_told).filter_map(|waiting| waiting.stretch.target).collect();
        let is_guessed = |waiting: &&mut Waiting<'_>| {
            waiting.class.is_some_and(|class| otherwise.contains(&class)) && waiting.stretch.stack.is_none()
        };
        for waiting in waits.iter_mut().filter(is_guessed) {
            if waiting.stretch.target.is_some_and(|target| told.contains(&target)) {
                waiting.class = Some(class);
            }
        }
    }
}

/// A process ends once. One that ends the waits of who started it again and again does so for a reason that some of them
/// tell by their stacks.
fn learn_from_wakers(waits: &mut [Waiting<'_>]) {
    let told = |waiting: &Waiting<'_>| {
        let Stretch { woken_by, reason, stack, .. } = waiting.stretch;
        let class = waiting.class.filter(|class| *class != WaitClass::Child && stack.is_some())?;
        Some((((*woken_by)?, (*reason)?), class))
    };
    let told: BTreeMap<_, WaitClass> = waits.iter().filter_map(told).collect();
    let is_guessed =
        |waiting: &&mut Waiting<'_>| waiting.class == Some(WaitClass::Child) && waiting.stretch.stack.is_none();
    for waiting in waits.iter_mut().filter(is_guessed) {
        let Stretch { woken_by: Some(waker), reason: Some(reason), .. } = waiting.stretch else { continue };
        waiting.class = told.get(&(*waker, *reason)).copied().or(waiting.class);
    }
}

/// A server waits for all its sockets at once also before it is known to listen: who asks later has asked then.
fn learn_from_requests(window: &Window, waits: &mut [Waiting<'_>]) {
    let by = |waiting: &Waiting<'_>| window.process_id(waiting.ended_by?.thread);
    let requests = waits.iter().filter(|waiting| waiting.class == Some(WaitClass::Request));
    let askers: BTreeSet<ProcessId> = requests.filter_map(by).collect();
    for waiting in waits.iter_mut().filter(|waiting| waiting.class == Some(WaitClass::Input)) {
        if is_for_all_sockets(window, waiting.stretch) && by(waiting).is_some_and(|asker| askers.contains(&asker)) {
            waiting.class = Some(WaitClass::Request);
        }
    }
}

fn is_for_all_sockets(window: &Window, stretch: &Stretch) -> bool {
    let target = stretch.target.and_then(|target| window.targets.get(&target));
    target.is_some_and(|target| target.kind == TargetKind::Eventfd)
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
fn mark_reclaim(window: &Window, waits: &mut WaitsByThread<'_>) {
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

/// Threads of one process that take turns at feeding the GPU starve nobody by it.
pub(crate) fn mark_handovers(window: &Window, waits: &mut WaitsByThread<'_>, feeders: &BTreeSet<ThreadId>) {
    let process = |thread: ThreadId| window.process_id(thread);
    for &feeder in feeders {
        let is_turn =
            |by: EndedBy| by.thread != feeder && feeders.contains(&by.thread) && process(by.thread) == process(feeder);
        let own = waits.get_mut(&feeder).into_iter().flatten();
        for waiting in own.filter(|waiting| waiting.class == Some(WaitClass::Input)) {
            if waiting.ended_by.is_some_and(is_turn) {
                waiting.class = Some(WaitClass::Handover);
            }
        }
    }
}
