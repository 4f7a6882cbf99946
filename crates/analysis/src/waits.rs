//! How long a thread waited for what. Its clocks say how long it was blocked in which way, which is exact; records of
//! single stretches say what that was for.

use std::collections::BTreeMap;

use gpuwhy_model::{OpId, Reference, ThreadId, ThreadTimes, WaitReason};
use gpuwhy_window::CallSum;

use crate::class::WaitClass;
use crate::situation::Situation;
use crate::waiting::Waiting;
use crate::words::{part, share};

/// How many of the longest waits are cited.
const MOST_CITED: usize = 3;

/// Reasons for which a thread blocks while the GPU works, the likeliest first. Used where no record tells.
const GPU_WAIT_REASONS: &[WaitReason] =
    &[WaitReason::Ioctl, WaitReason::Poll, WaitReason::Other, WaitReason::Stream, WaitReason::Sleep, WaitReason::Futex];

#[derive(Debug, Default)]
pub struct Waits {
    classes: BTreeMap<WaitClass, ClassSum>,
    /// Blocked time inside calls by function, for those classes that are shown as what the call does.
    pub by_op: BTreeMap<(WaitClass, OpId), u64>,
}

/// All waits of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSum {
    pub ns: u64,
    /// Waits, those without a record too.
    pub count: u64,
    pub records: u64,
    /// Share of the time that records stand for.
    pub backed: f64,
    /// The longest ones.
    pub cited: Vec<Reference>,
}

impl Waits {
    pub fn get(&self, class: WaitClass) -> ClassSum {
        self.classes.get(&class).cloned().unwrap_or_default()
    }

    pub fn ns(&self, class: WaitClass) -> u64 {
        self.classes.get(&class).map_or(0, |sum| sum.ns)
    }
}

pub(crate) fn sum_up(situation: &Situation<'_>, thread: ThreadId, times: &ThreadTimes, calls: &[&CallSum]) -> Waits {
    let weighed: Vec<Weighed<'_, '_>> =
        situation.waits(thread).iter().map(|waiting| (waiting, waiting.stretch.all.blocked_ns)).collect();
    let mut waits = split(situation, times, calls, &weighed);
    cite(situation, thread, &mut waits);
    waits
}

/// A wait, and how much blocked time it stands for.
pub(crate) type Weighed<'a, 'w> = (&'a Waiting<'w>, u64);

/// What the clocks say, divided among what the records say that it was for.
pub(crate) fn split(
    situation: &Situation<'_>,
    times: &ThreadTimes,
    calls: &[&CallSum],
    weighed: &[Weighed<'_, '_>],
) -> Waits {
    let mut waits = Waits::default();
    let share_read = situation.stretch_share();
    let mut sync_blocked_ns = blocked_in_syncs(situation, calls);
    for &reason in by_likelihood() {
        let clock_ns = times.blocked_ns[reason as usize];
        let records = weighed.iter().filter(|(waiting, _)| waiting.stretch.reason == Some(reason));
        let recorded_ns = records.clone().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        if recorded_ns == 0 {
            unrecorded(&mut waits, reason, clock_ns, &mut sync_blocked_ns);
            continue;
        }
        let backed = (recorded_ns as f64 / (clock_ns as f64 * share_read).max(1.0)).min(1.0);
        for (waiting, ns) in records {
            add(&mut waits, waiting, part(clock_ns, share(*ns, recorded_ns)), backed);
        }
    }
    waits
}

/// Every reason, those first that are taken for waits for the GPU.
fn by_likelihood() -> impl Iterator<Item = &'static WaitReason> {
    let others = WaitReason::ALL.iter().filter(|reason| !GPU_WAIT_REASONS.contains(reason));
    GPU_WAIT_REASONS.iter().chain(others)
}

fn blocked_in_syncs(situation: &Situation<'_>, calls: &[&CallSum]) -> u64 {
    let syncs = calls.iter().filter(|sum| situation.is_wait(sum.op));
    syncs.fold(0, |all, sum| all.saturating_add(sum.blocked_ns))
}

/// Time that no record speaks of: a wait for the GPU as far as calls that wait for it were blocked, else what the
/// reason is mostly for.
fn unrecorded(waits: &mut Waits, reason: WaitReason, clock_ns: u64, sync_blocked_ns: &mut u64) {
    let gpu_ns = if GPU_WAIT_REASONS.contains(&reason) { clock_ns.min(*sync_blocked_ns) } else { 0 };
    *sync_blocked_ns -= gpu_ns;
    for (class, ns) in [(WaitClass::Gpu, gpu_ns), (WaitClass::of_reason(reason), clock_ns - gpu_ns)] {
        if ns > 0 {
            let sum = waits.classes.entry(class).or_default();
            sum.backed = backed_after(sum, ns, 0.0);
            sum.ns = sum.ns.saturating_add(ns);
        }
    }
}

fn add(waits: &mut Waits, waiting: &Waiting<'_>, ns: u64, backed: f64) {
    let Some(class) = waiting.class else { return };
    let sum = waits.classes.entry(class).or_default();
    sum.backed = backed_after(sum, ns, backed);
    sum.ns = sum.ns.saturating_add(ns);
    sum.count = sum.count.saturating_add(waiting.stretch.all.count.max(1));
    sum.records += 1;
    if let Some(op) = waiting.stretch.op {
        let by_op = waits.by_op.entry((class, op)).or_default();
        *by_op = by_op.saturating_add(ns);
    }
}

/// The mean over time.
fn backed_after(sum: &ClassSum, ns: u64, backed: f64) -> f64 {
    let all = sum.ns as f64 + ns as f64;
    if all == 0.0 { backed } else { (sum.backed * sum.ns as f64 + backed * ns as f64) / all }
}

fn cite(situation: &Situation<'_>, thread: ThreadId, waits: &mut Waits) {
    for (&class, sum) in &mut waits.classes {
        let of_class = situation.waits(thread).iter().filter(|waiting| waiting.class == Some(class));
        sum.cited = longest(of_class, |waiting| waiting.stretch.blocked_ns);
    }
}

/// References of those waits of which there is most.
pub(crate) fn longest<'a, 'w: 'a>(
    waits: impl Iterator<Item = &'a Waiting<'w>>,
    length: impl Fn(&Waiting<'w>) -> u64,
) -> Vec<Reference> {
    let mut top: Vec<&Waiting<'w>> = Vec::with_capacity(MOST_CITED + 1);
    for waiting in waits.filter(|waiting| length(waiting) > 0) {
        let at = top.partition_point(|other| length(other) >= length(waiting));
        if at < MOST_CITED {
            top.insert(at, waiting);
            top.truncate(MOST_CITED);
        }
    }
    top.into_iter().map(Waiting::reference).collect()
}
