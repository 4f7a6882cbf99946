//! What the rules about waits for other threads have in common: from a class of waits to the thread at fault.

use std::collections::BTreeMap;

use gpuwhy_model::{Chain, Edge, Evidence, Place, Role, Severity, TargetId, ThreadId};

use super::takers::Takers;
use crate::case::{Draft, ThreadCase, edge, thread_culprit};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::graph::{self, Activity, Blame, Culprit};
use crate::places;
use crate::situation::Situation;
use crate::waiting::Waiting;
use crate::waits::{ClassSum, longest};
use crate::words::{duration, part, percent, share};

/// Waits that somebody else is to blame for, as a rule sees them.
pub(super) struct BlamedWaits {
    pub cause: &'static str,
    pub class: WaitClass,
    /// What was waited for, in words: `a lock`.
    pub what: &'static str,
    /// What the one at fault does with it, in words: `held`.
    pub verb: &'static str,
    /// Through which waits of others to look for the one at fault.
    pub follows: fn(WaitClass) -> bool,
}

/// How much was waited, and who is at fault where that is known.
pub(super) struct Blamed {
    pub sum: ClassSum,
    pub blame: Blame,
    pub culprit: Option<Culprit>,
}

/// A few activities are told, and only those that took part of the time.
const MOST_ACTIVITIES: usize = 2;
const LEAST_ACTIVITY: f64 = 0.1;

/// Of a time.
const MOST: f64 = 0.5;

pub(super) fn blame(case: &ThreadCase<'_, '_>, waits: &BlamedWaits) -> Blamed {
    let is_asked = |waiting: &Waiting<'_>| waiting.class == Some(waits.class);
    let blame = graph::blame(case.situation, case.thread.id, is_asked, waits.follows);
    let culprit = blame.culprit(case.situation);
    let mut sum = case.thread.waits.get(waits.class);
    // Nothing is lost while the GPU works for whoever is waited for.
    sum.ns = sum.ns.saturating_sub(part(sum.ns, share(blame.gpu_worked_ns, blame.total_ns)));
    Blamed { sum, blame, culprit }
}

/// A finding about such waits.
pub(super) fn draft(case: &ThreadCase<'_, '_>, waits: &BlamedWaits, blamed: &Blamed) -> Draft {
    let lost_ns = blamed.sum.ns;
    let edges = edges_to_culprit(case, waits, blamed);
    let chain = edges.into_iter().fold(Chain::starting(wait_edge(case, waits, blamed)), Chain::then);
    let culprit = blamed.culprit.as_ref().map(|culprit| {
        let detail = doing(case.situation, culprit);
        thread_culprit(case.situation, culprit.thread, detail)
    });
    Draft {
        culprit,
        places: places(case, waits, blamed),
        calls_affected: blamed.sum.count,
        backing: Backing { share: backed(case.situation, blamed), records: blamed.sum.records },
        most_severe: if is_habit(case, waits.class, &blamed.sum) { Severity::High } else { Severity::Low },
        ..Draft::new(waits.cause, lost_ns, summary(case, waits, blamed), chain)
    }
}

/// One wait that is most of all says something about a moment, such as a start or an end, and not about what a program
/// does; unless it is most of the time that is looked at.
fn is_habit(case: &ThreadCase<'_, '_>, class: WaitClass, sum: &ClassSum) -> bool {
    let waits = case.situation.waits(case.thread.id).iter().filter(|waiting| waiting.class == Some(class));
    let longest_ns = waits.map(|waiting| waiting.stretch.blocked_ns).max().unwrap_or(0);
    share(longest_ns, sum.ns) < MOST || case.share(sum.ns) >= MOST
}

/// What the culprit was doing, then where the victim waited for it.
fn places(case: &ThreadCase<'_, '_>, waits: &BlamedWaits, blamed: &Blamed) -> Vec<Place> {
    let of_culprit = |culprit| culprit_places(case.situation, culprit, case.thread.id);
    let mut places = blamed.culprit.as_ref().map(of_culprit).unwrap_or_default();
    places.extend(case.wait_places(|class| class == waits.class));
    places
}

/// What a culprit did, or where it ended the waits of who waited for it.
pub(super) fn culprit_places(situation: &Situation<'_>, culprit: &Culprit, victim: ThreadId) -> Vec<Place> {
    let places = match culprit.main_activity() {
        Activity::Waiting(main) => places::of_waits(situation, culprit.thread, Role::Culprit, |class| class == main),
        Activity::Running | Activity::Runqueue => places::of_samples(situation, culprit.thread, Role::Culprit),
        Activity::Unknown => Vec::new(),
    };
    if !places.is_empty() {
        return places;
    }
    let waiter = culprit.path.iter().rev().nth(1).copied().unwrap_or(victim);
    places::of_waker(situation, culprit.thread, waiter)
}

fn wait_edge(case: &ThreadCase<'_, '_>, waits: &BlamedWaits, blamed: &Blamed) -> Edge {
    let lost_ns = blamed.sum.ns;
    let target = main_target(case, waits.class).map_or_else(String::new, |target| format!(" ({target})"));
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let what = format!("{name} waited {} for {}{target} ({lost} of its time)", duration(lost_ns), waits.what);
    edge(what, Evidence::Observed, lost_ns, blamed.sum.cited.clone())
}

fn summary(case: &ThreadCase<'_, '_>, waits: &BlamedWaits, blamed: &Blamed) -> String {
    let BlamedWaits { what, verb, .. } = waits;
    let waited = format!("{} waited {} of its time for {what}", case.name(), percent(case.share(blamed.sum.ns)));
    match &blamed.culprit {
        Some(culprit) => {
            let (name, doing) = (case.situation.name(culprit.thread), doing(case.situation, culprit));
            format!("{waited} that {name} {verb}, which was {doing}.")
        }
        None => format!("{waited}; who ended the waits is not known."),
    }
}

/// What most of the time was waited on: an address, a peer.
pub(super) fn main_target<'w>(case: &ThreadCase<'_, 'w>, class: WaitClass) -> Option<&'w str> {
    let mut sums: BTreeMap<TargetId, u64> = BTreeMap::new();
    for waiting in case.situation.waits(case.thread.id).iter().filter(|waiting| waiting.class == Some(class)) {
        if let Some(target) = waiting.stretch.target {
            let sum = sums.entry(target).or_default();
            *sum = sum.saturating_add(waiting.stretch.all.blocked_ns);
        }
    }
    let (target, _) = sums.into_iter().max_by_key(|(_, ns)| *ns)?;
    case.situation.target_name(Some(target)).filter(|name| !name.is_empty())
}

fn edges_to_culprit(case: &ThreadCase<'_, '_>, waits: &BlamedWaits, blamed: &Blamed) -> Vec<Edge> {
    let situation = case.situation;
    let Some(culprit) = &blamed.culprit else {
        let what = "no record says which thread ended these waits".to_owned();
        return vec![edge(what, Evidence::Missing, blamed.sum.ns, Vec::new())];
    };
    let mut edges = Vec::new();
    let mut waiter = case.thread.id;
    for (hop, &next) in culprit.path.iter().enumerate() {
        edges.push(hop_edge(situation, waits, blamed, waiter, next, hop == 0));
        waiter = next;
    }
    edges.push(activity_edge(situation, culprit));
    edges.extend(cpu_edge(situation, culprit));
    edges
}

fn hop_edge(
    situation: &Situation<'_>,
    waits: &BlamedWaits,
    blamed: &Blamed,
    waiter: ThreadId,
    next: ThreadId,
    is_first: bool,
) -> Edge {
    let attributed_ns = blamed.blame.total_ns.saturating_sub(blamed.blame.unattributed_ns);
    let is_inferred = is_first && blamed.blame.inferred_ns > attributed_ns / 2;
    let evidence = if is_inferred { Evidence::Inferred } else { Evidence::Observed };
    let is_asked = |waiting: &Waiting<'_>| match is_first {
        true => waiting.class == Some(waits.class),
        false => waiting.class.is_some_and(waits.follows),
    };
    let refs = graph::cited(situation, waiter, next, is_asked);
    let (waiter_name, next_name) = (situation.name(waiter), situation.name(next));
    let ended = situation.waits(waiter).iter();
    let ended = ended.filter(|waiting| is_asked(waiting) && waiting.ended_by.is_some_and(|by| by.thread == next));
    let (count, ns) =
        ended.fold((0u64, 0u64), |(count, ns), waiting| (count + 1, ns.saturating_add(waiting.stretch.all.blocked_ns)));
    let what = match is_first {
        true => format!("{next_name} ended {count} of these waits"),
        false => format!("{waiter_name} itself waited, until {next_name} woke it"),
    };
    edge(what, evidence, ns, refs)
}

fn activity_edge(situation: &Situation<'_>, culprit: &Culprit) -> Edge {
    let name = situation.name(culprit.thread);
    let unknown = culprit.share_of(Activity::Unknown);
    if unknown > 0.5 {
        let what = format!("what {name} did meanwhile was not recorded");
        return edge(what, Evidence::Missing, culprit.ns, Vec::new());
    }
    let class = match culprit.main_activity() {
        Activity::Waiting(class) => Some(class),
        _ => None,
    };
    let own = situation.waits(culprit.thread).iter().filter(|waiting| class.is_some() && waiting.class == class);
    let refs = longest(own, |waiting| waiting.stretch.blocked_ns);
    edge(format!("{name} was {} meanwhile", doing(situation, culprit)), Evidence::Observed, culprit.ns, refs)
}

/// Who kept the culprit from running, where that held it up.
fn cpu_edge(situation: &Situation<'_>, culprit: &Culprit) -> Option<Edge> {
    if culprit.main_activity() != Activity::Runqueue {
        return None;
    }
    let takers = Takers::find(situation, culprit.thread);
    let most = takers.most(situation)?;
    let what = format!("{} ran on the CPU of {}", situation.name(most.thread), situation.name(culprit.thread));
    Some(edge(what, Evidence::Observed, most.process_ns, takers.cited))
}

/// `computing 90 % of that time, waiting for a disk 8 %`.
pub(super) fn doing(situation: &Situation<'_>, culprit: &Culprit) -> String {
    let told = culprit.activities.iter().take(MOST_ACTIVITIES).enumerate();
    let told = told.filter(|(at, (_, ns))| *at == 0 || share(*ns, culprit.ns) >= LEAST_ACTIVITY);
    let words: Vec<String> = told
        .map(|(at, (activity, ns))| {
            let of_that_time = if at == 0 { " of that time" } else { "" };
            let what = what_exactly(situation, culprit.thread, *activity);
            format!("{what} {}{of_that_time}", percent(share(*ns, culprit.ns)))
        })
        .collect();
    words.join(", ")
}

fn what_exactly(situation: &Situation<'_>, thread: ThreadId, activity: Activity) -> String {
    let requests = &situation.window.io_requests.rows;
    let device = requests.iter().find(|request| request.waiter == thread).map(|request| &request.device);
    match (activity, device) {
        (Activity::Waiting(WaitClass::Io), Some(device)) => format!("waiting for disk {device}"),
        _ => activity.doing().to_owned(),
    }
}

/// Share of the waits that records stand for, whose waker is known, and whose waker's own records are complete.
fn backed(situation: &Situation<'_>, blamed: &Blamed) -> f64 {
    let attributed = 1.0 - share(blamed.blame.unattributed_ns, blamed.blame.total_ns);
    let Some(culprit) = &blamed.culprit else { return blamed.sum.backed };
    blamed.sum.backed * attributed * recorded(situation, culprit.thread) * kin_share(situation, blamed, culprit)
}

/// Share of a thread's time off the CPU that its records stand for.
fn recorded(situation: &Situation<'_>, thread: ThreadId) -> f64 {
    let Some(sum) = situation.sum(thread) else { return 1.0 };
    let clock_ns = sum.times.blocked_ns.iter().fold(sum.times.runqueue_ns, |all, ns| all.saturating_add(*ns));
    let records = situation.waits(thread).iter().map(|waiting| waiting.stretch.all);
    let recorded_ns = records.fold(0u64, |all, one| all.saturating_add(one.blocked_ns).saturating_add(one.runqueue_ns));
    // A thread that hardly ever leaves the CPU needs no records.
    let expected_ns = clock_ns as f64 * situation.stretch_share();
    let excused_ns = sum.times.wall_ns as f64 / 10.0;
    ((recorded_ns as f64 + excused_ns) / expected_ns.max(1.0)).min(1.0)
}

/// Share of the blame that lies with the culprit's process and others that run the same program.
fn kin_share(situation: &Situation<'_>, blamed: &Blamed, culprit: &Culprit) -> f64 {
    let comm = situation.process(culprit.thread).map(|process| process.comm.as_str());
    let is_kin = |thread: ThreadId| situation.process(thread).map(|process| process.comm.as_str()) == comm;
    blamed.blame.share_of(is_kin)
}
