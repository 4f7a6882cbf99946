//! The wait graph: whom a thread waited for, what that one did meanwhile, and whom it waited for in turn.
//!
//! Every wait is resolved on its own and weighted by its time, so that the answer is about all waits and not about an
//! example. A wait from t0 to t1 that thread W ended is split by what W did from t0 to t1; where W itself waited for
//! somebody the question is asked again for that part, a few hops deep, and never twice for the same thread.

mod timeline;

use std::collections::{BTreeMap, HashMap};

use gpuwhy_model::{ProcessId, Reference, Span, ThreadId};

use crate::class::WaitClass;
use crate::situation::Situation;
use crate::waiting::{EndedBy, Waiting};
use crate::waits::longest;
use timeline::{Piece, pieces};

/// Threads from the victim to the last one that is asked about.
const MOST_HOPS: usize = 5;

/// What one look at a class of waits may cost. Time that is left over counts as unknown.
const MOST_LOOKUPS: usize = 2_000_000;

/// What a thread did while another one waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    Running,
    /// Runnable, without a CPU.
    Runqueue,
    Waiting(WaitClass),
    /// Nobody watched it.
    Unknown,
}

impl Activity {
    pub fn doing(self) -> &'static str {
        match self {
            Self::Running => "computing",
            Self::Runqueue => "waiting for a CPU",
            Self::Waiting(class) => class.doing(),
            Self::Unknown => "not watched",
        }
    }
}

/// Who is to blame for a class of waits of one thread.
#[derive(Debug, Default)]
pub struct Blame {
    /// By the threads from the victim's waker to the one that is to blame.
    paths: HashMap<Vec<ThreadId>, PathBlame>,
    pub total_ns: u64,
    /// Ended by an interrupt or a timer, or by somebody who is not known.
    pub unattributed_ns: u64,
    /// The part of the rest whose waker was inferred.
    pub inferred_ns: u64,
    /// The GPU worked for whoever held the victim up: nobody is to blame.
    pub gpu_worked_ns: u64,
    /// How long threads of the victim's process waited for other processes meanwhile.
    out_ns: BTreeMap<WaitClass, u64>,
}

#[derive(Debug, Default)]
struct PathBlame {
    by_activity: BTreeMap<Activity, u64>,
}

impl PathBlame {
    fn ns(&self) -> u64 {
        self.by_activity.values().fold(0, |sum, &ns| sum.saturating_add(ns))
    }
}

/// The thread with the most blame, in the process with the most.
#[derive(Debug)]
pub struct Culprit {
    pub thread: ThreadId,
    pub ns: u64,
    /// What it did, the most first.
    pub activities: Vec<(Activity, u64)>,
    /// The heaviest way from the victim's waker to it, its end included.
    pub path: Vec<ThreadId>,
}

impl Culprit {
    /// What it mostly did.
    pub fn main_activity(&self) -> Activity {
        self.activities.first().map_or(Activity::Unknown, |&(activity, _)| activity)
    }

    pub fn share_of(&self, activity: Activity) -> f64 {
        let ns = self.activities.iter().filter(|(one, _)| *one == activity).map(|(_, ns)| ns).sum();
        crate::words::share(ns, self.ns)
    }
}

impl Blame {
    pub fn culprit(&self, situation: &Situation<'_>) -> Option<Culprit> {
        let mut by_process: BTreeMap<ProcessId, u64> = BTreeMap::new();
        let mut by_thread: BTreeMap<ThreadId, u64> = BTreeMap::new();
        for (thread, ns) in self.paths.iter().filter_map(|(path, blame)| Some((*path.last()?, blame.ns()))) {
            if let Some(process) = situation.process_id(thread).filter(|_| !situation.is_tracer(thread)) {
                add(by_process.entry(process).or_default(), ns);
                add(by_thread.entry(thread).or_default(), ns);
            }
        }
        let (&process, _) = by_process.iter().max_by_key(|(_, ns)| **ns)?;
        let own = by_thread.iter().filter(|(thread, _)| situation.process_id(**thread) == Some(process));
        let (&thread, &ns) = own.max_by_key(|(_, ns)| **ns)?;
        let path = self.ways_to(thread).max_by_key(|(path, blame)| (blame.ns(), *path))?.0.clone();
        Some(Culprit { thread, ns, activities: self.activities_of(thread), path })
    }

    fn ways_to(&self, thread: ThreadId) -> impl Iterator<Item = (&Vec<ThreadId>, &PathBlame)> {
        self.paths.iter().filter(move |(path, _)| path.last() == Some(&thread))
    }

    fn activities_of(&self, thread: ThreadId) -> Vec<(Activity, u64)> {
        let mut sums: BTreeMap<Activity, u64> = BTreeMap::new();
        for (_, blame) in self.ways_to(thread) {
            blame.by_activity.iter().for_each(|(&activity, &ns)| add(sums.entry(activity).or_default(), ns));
        }
        let mut activities: Vec<_> = sums.into_iter().collect();
        activities.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        activities
    }

    /// Share of the time in which a thread of the victim's process waited for another process, in such a way.
    pub fn share_out_by(&self, class: WaitClass) -> f64 {
        crate::words::share(self.out_ns.get(&class).copied().unwrap_or(0), self.total_ns)
    }

    /// Share of the blame that lies with threads of a kind.
    pub fn share_of(&self, is_kind: impl Fn(ThreadId) -> bool) -> f64 {
        let (mut kind_ns, mut all_ns) = (0u64, 0u64);
        for (thread, ns) in self.paths.iter().filter_map(|(path, blame)| Some((*path.last()?, blame.ns()))) {
            add(&mut all_ns, ns);
            add(&mut kind_ns, if is_kind(thread) { ns } else { 0 });
        }
        crate::words::share(kind_ns, all_ns)
    }
}

/// Blames the waits of `victim` that `is_asked` picks; `follows` says through which waits of others to look.
pub fn blame(
    situation: &Situation<'_>,
    victim: ThreadId,
    is_asked: impl Fn(&Waiting<'_>) -> bool,
    follows: fn(WaitClass) -> bool,
) -> Blame {
    let mut walk = Walk { situation, follows, lookups_left: MOST_LOOKUPS, blame: Blame::default() };
    for waiting in situation.waits(victim).iter().filter(|waiting| waiting.class.is_some() && is_asked(waiting)) {
        walk.start(victim, waiting);
    }
    walk.blame
}

/// Blames the times in which a thread was late: itself, or whoever it waited for.
pub fn blame_times(
    situation: &Situation<'_>,
    thread: ThreadId,
    late: &[Span],
    follows: fn(WaitClass) -> bool,
) -> Blame {
    let mut walk = Walk { situation, follows, lookups_left: MOST_LOOKUPS, blame: Blame::default() };
    for span in late {
        add(&mut walk.blame.total_ns, span.ns());
        walk.follow(&mut vec![thread, thread], span.from_ns, span.to_ns, 1.0);
    }
    walk.blame
}

/// What a thread did in a span of time, and how long each.
pub(crate) fn activities(
    situation: &Situation<'_>,
    thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
) -> Vec<(Activity, u64)> {
    let activity = |piece| match piece {
        Piece::Did(activity, ns) => (activity, ns),
        Piece::Waited { class, from_ns, to_ns, share, .. } => {
            (Activity::Waiting(class), crate::words::part(to_ns.saturating_sub(from_ns), share))
        }
    };
    pieces(situation, thread, from_ns, to_ns, MOST_LOOKUPS).into_iter().map(activity).collect()
}

/// References of the victim's longest waits that a thread ended.
pub fn cited(
    situation: &Situation<'_>,
    victim: ThreadId,
    ended_by: ThreadId,
    is_asked: impl Fn(&Waiting<'_>) -> bool,
) -> Vec<Reference> {
    let own = situation
        .waits(victim)
        .iter()
        .filter(|waiting| is_asked(waiting) && waiting.ended_by.is_some_and(|by| by.thread == ended_by));
    longest(own, |waiting| waiting.stretch.blocked_ns)
}

struct Walk<'s, 'w> {
    situation: &'s Situation<'w>,
    follows: fn(WaitClass) -> bool,
    lookups_left: usize,
    blame: Blame,
}

impl Walk<'_, '_> {
    fn start(&mut self, victim: ThreadId, waiting: &Waiting<'_>) {
        let stands_for = waiting.stretch.all.blocked_ns.max(waiting.stretch.blocked_ns);
        add(&mut self.blame.total_ns, stands_for);
        let Some(EndedBy { thread, is_inferred }) = waiting.ended_by.filter(|by| by.thread != victim) else {
            add(&mut self.blame.unattributed_ns, stands_for);
            return;
        };
        if is_inferred {
            add(&mut self.blame.inferred_ns, stands_for);
        }
        let weight = stands_for as f64 / waiting.stretch.blocked_ns.max(1) as f64;
        let mut path = vec![victim, thread];
        self.follow(&mut path, waiting.stretch.start_ns, waiting.blocked_to_ns(), weight);
    }

    /// Splits a span by what the last thread of the path did in it.
    fn follow(&mut self, path: &mut Vec<ThreadId>, from_ns: u64, to_ns: u64, weight: f64) {
        let Some(&thread) = path.last() else { return };
        let weighted = |ns: u64| (ns as f64 * weight) as u64;
        let found = pieces(self.situation, thread, from_ns, to_ns, self.lookups_left);
        self.lookups_left = self.lookups_left.saturating_sub(found.len().max(1));
        let mut in_gpu_waits_ns = running_in_gpu_waits(self.situation, thread, Span { from_ns, to_ns }, &found);
        for piece in found {
            match piece {
                // Many calls look at the GPU again and again instead of going to sleep.
                Piece::Did(Activity::Running, ns) => {
                    let waited_ns = ns.min(in_gpu_waits_ns);
                    in_gpu_waits_ns -= waited_ns;
                    self.add(path, Activity::Waiting(WaitClass::Gpu), weighted(waited_ns));
                    self.add(path, Activity::Running, weighted(ns - waited_ns));
                }
                Piece::Did(activity, ns) => self.add(path, activity, weighted(ns)),
                Piece::Waited { waiting, class, from_ns, to_ns, share } => {
                    let weight = weight * share;
                    let next = waiting.ended_by.map(|by| by.thread).filter(|next| !path.contains(next));
                    match next.filter(|_| (self.follows)(class) && path.len() <= MOST_HOPS) {
                        Some(next) => {
                            self.leave(path, next, class, ((to_ns - from_ns) as f64 * weight) as u64);
                            path.push(next);
                            self.follow(path, from_ns, to_ns, weight);
                            path.pop();
                        }
                        None => {
                            let ns = (to_ns - from_ns) as f64 * weight;
                            self.add(path, Activity::Waiting(class), ns as u64);
                        }
                    }
                }
            }
        }
    }

    /// Notes a step from the victim's process to another one.
    fn leave(&mut self, path: &[ThreadId], next: ThreadId, class: WaitClass, ns: u64) {
        let process = |thread: &ThreadId| self.situation.process_id(*thread);
        let own = path.first().and_then(process);
        if path.iter().all(|thread| process(thread) == own) && process(&next) != own {
            add(self.blame.out_ns.entry(class).or_default(), ns);
        }
    }

    fn add(&mut self, path: &[ThreadId], activity: Activity, ns: u64) {
        if activity == Activity::Waiting(WaitClass::Gpu) {
            add(&mut self.blame.gpu_worked_ns, ns);
        } else if ns > 0 {
            add(self.path_blame(path).by_activity.entry(activity).or_default(), ns);
        }
    }

    /// Paths are kept without the victim.
    fn path_blame(&mut self, path: &[ThreadId]) -> &mut PathBlame {
        self.blame.paths.entry(path[1..].to_vec()).or_default()
    }
}

/// How long a thread ran inside of calls that wait for a GPU, of what it did in a span.
fn running_in_gpu_waits(situation: &Situation<'_>, thread: ThreadId, span: Span, did: &[Piece<'_, '_>]) -> u64 {
    let asleep = |piece: &Piece<'_, '_>| match piece {
        Piece::Waited { class: WaitClass::Gpu | WaitClass::InCall, from_ns, to_ns, share, .. } => {
            crate::words::part(to_ns.saturating_sub(*from_ns), *share)
        }
        _ => 0,
    };
    situation.gpu_wait_ns(thread, span).saturating_sub(did.iter().map(asleep).sum())
}

fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}
