//! The thread spent its time inside the GPU's kernel driver: an ioctl that a library call made.
//!
//! # How it is detected
//! The kernel says when an ioctl begins and ends. Those inside calls of the GPU's libraries are summed up, working and
//! waiting alike, with the device, the request number and the call they were made in.
//!
//! # When it is not reported
//! An ioctl inside a call that waits for the GPU is that wait: `gpu-busy`. Many short ones inside allocations and
//! module loads are told as `alloc-churn` and `lazy-load`, because that is what to change.
//!
//! # How to fix it
//! Make the call that needs the driver less often: keep memory, streams and events instead of making them anew. A call
//! that takes milliseconds each time is the driver's fault: look for a newer version, for memory registration, for
//! another process that resets the GPU or reads its counters.

use std::collections::BTreeMap;

use gpuwhy_model::{Chain, Evidence, KernelWork, Meaning, OpId, Reference, WorkKind};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::confidence::Backing;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    meanwhile: super::IN_CALLS,
    ..Rule::new("driver-call", "Time went into the driver", include_str!("driver_call.rs"), Check::Thread(check))
};

const FIX: &[&str] = &[
    "Make that call less often: keep what it makes instead of making it anew.",
    "If a single call takes milliseconds, look at the driver: its version, and who else keeps it busy.",
];

/// Ioctls of one thread, as far as records tell.
#[derive(Default)]
pub(super) struct Ioctls<'w> {
    /// Of all of them, by the call they were made in.
    by_op: BTreeMap<Option<OpId>, u64>,
    pub all_ns: u64,
    pub count: u64,
    records: Vec<&'w KernelWork>,
}

impl<'w> Ioctls<'w> {
    pub fn find(case: &ThreadCase<'_, 'w>) -> Self {
        let mut ioctls = Self::default();
        let work = case.situation.window.kernel_work.rows.iter();
        for work in work.filter(|work| work.thread == case.thread.id && work.kind == WorkKind::Ioctl) {
            let ns = work.all_ns.max(work.duration_ns);
            let sum = ioctls.by_op.entry(work.op).or_default();
            *sum = sum.saturating_add(ns);
            ioctls.all_ns = ioctls.all_ns.saturating_add(ns);
            ioctls.count = ioctls.count.saturating_add(work.all_count.max(1));
            ioctls.records.push(work);
        }
        ioctls
    }

    /// Share of their time inside calls that mean something like this.
    pub fn share_in(&self, case: &ThreadCase<'_, '_>, is_wanted: impl Fn(&Meaning) -> bool) -> f64 {
        let is_wanted = |op: OpId| case.situation.op(op).is_some_and(|op| is_wanted(&op.meaning));
        let wanted = self.by_op.iter().filter(|(op, _)| op.is_some_and(is_wanted));
        share(wanted.fold(0, |sum, (_, ns)| sum.saturating_add(*ns)), self.all_ns)
    }
}

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let clock_ns = case.thread.times.work_ns[WorkKind::Ioctl as usize].min(case.thread.wall_ns());
    let ioctls = Ioctls::find(case);
    let lost_ns = part(clock_ns, ioctls.share_in(case, is_work));
    match case.too_little(RULE.cause, lost_ns) {
        Some(verdict) => verdict,
        None => case.judge(tell(case, &ioctls, clock_ns, lost_ns)),
    }
}

/// A call that waits for the GPU waits in an ioctl, too.
fn is_work(meaning: &Meaning) -> bool {
    !meaning.is_wait
}

fn tell(case: &ThreadCase<'_, '_>, ioctls: &Ioctls<'_>, clock_ns: u64, lost_ns: u64) -> Draft {
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let longest = longest(case, ioctls);
    let op = longest.first().and_then(|work| work.op);
    let call = op.and_then(|op| case.situation.op(op)).map_or("a GPU call", |op| op.name.as_str());
    let what = longest.first().map_or_else(String::new, |work| described(case, work));
    let cited: Vec<Reference> = longest.iter().take(3).map(|work| work.reference()).collect();
    let each = duration(ioctls.all_ns / ioctls.count.max(1));
    let spent = format!("{name} spent {} in ioctls inside GPU calls ({lost} of its time)", duration(lost_ns));
    let often = format!("{} ioctls took {each} each; the longest: {what} inside {call}", ioctls.count);
    let chain = Chain::starting(edge(spent, Evidence::Observed, lost_ns, cited.clone())).then(edge(
        often,
        Evidence::Observed,
        lost_ns,
        cited,
    ));
    let summary = format!("{name} spent {lost} of its time inside the driver, mostly in {call}: {what}.");
    Draft {
        culprit: Some(case.own_process(format!("{call}: {what}"))),
        fix: advice(FIX),
        places: case.places(|call| Some(call.op) == op),
        calls_affected: ioctls.count,
        symptom: case.heaviest(|sum| Some(sum.op) == op).and_then(|sum| case.symptom(sum)),
        backing: Backing { share: share(ioctls.all_ns, clock_ns).min(1.0), records: ioctls.records.len() as u64 },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

fn longest<'w>(case: &ThreadCase<'_, '_>, ioctls: &Ioctls<'w>) -> Vec<&'w KernelWork> {
    let in_call =
        |work: &&KernelWork| work.op.and_then(|op| case.situation.op(op)).is_some_and(|op| is_work(&op.meaning));
    let mut longest: Vec<&KernelWork> = ioctls.records.iter().copied().filter(in_call).collect();
    longest.sort_by_key(|work| std::cmp::Reverse(work.duration_ns));
    longest
}

fn described(case: &ThreadCase<'_, '_>, work: &KernelWork) -> String {
    let device = case.situation.target_name(work.target).unwrap_or("a device");
    match work.code {
        Some(code) => format!("ioctl {code:#x} on {device}"),
        None => format!("an ioctl on {device}"),
    }
}
