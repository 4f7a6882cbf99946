//! Single waits: what each was for, and who ended it.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{KernelWork, Reference, Stretch, TargetId, ThreadId, WorkKind};
use gpuwhy_window::Window;

use crate::class::{WaitClass, classify};

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
    for waits in waits.values_mut() {
        learn_from_stacks(waits);
        waits.sort_by_key(|waiting| waiting.stretch.start_ns);
        name_who_ended_them(waits);
    }
    mark_reclaim(window, &mut waits);
    waits
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
    let process = |thread: ThreadId| window.threads.get(&thread).map(|thread| thread.process);
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
