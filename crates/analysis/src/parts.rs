//! Where a thread's wall time went, in parts that add up to it.

use std::collections::BTreeMap;

use gpuwhy_model::{CallClass, OpId, Part, ThreadTimes, TimePart, WorkKind};
use gpuwhy_window::CallSum;

use crate::class::WaitClass;
use crate::situation::Situation;
use crate::sync_point::is_sync_point;
use crate::waits::Waits;

/// Nanoseconds by part; their sum is the thread's wall time.
#[derive(Debug, Default)]
pub struct Parts(BTreeMap<TimePart, u64>);

impl Parts {
    pub fn get(&self, part: TimePart) -> u64 {
        self.0.get(&part).copied().unwrap_or(0)
    }

    /// In the order in which they are shown, without empty ones.
    pub fn list(&self) -> Vec<Part> {
        let parts = self.0.iter().filter(|(_, ns)| **ns > 0);
        parts.map(|(&name, &ns)| Part { name, ns }).collect()
    }

    fn add(&mut self, part: TimePart, ns: u64) {
        let sum = self.0.entry(part).or_default();
        *sum = sum.saturating_add(ns);
    }

    fn total(&self) -> u128 {
        self.0.values().map(|&ns| u128::from(ns)).sum()
    }

    /// What they leave of an amount that they fit into.
    fn rest_of(&self, all: u64) -> u64 {
        u128::from(all).saturating_sub(self.total()) as u64
    }

    /// Takes the same share from each, so that they fit.
    fn shrink_to(&mut self, most: u64) {
        let total = self.total();
        if total > u128::from(most) {
            self.0.values_mut().for_each(|ns| *ns = (u128::from(*ns) * u128::from(most) / total) as u64);
        }
    }
}

pub(crate) fn divide(situation: &Situation<'_>, times: &ThreadTimes, calls: &[&CallSum], waits: &Waits) -> Parts {
    split(times, calls, waits, &by_function(situation, calls))
}

/// Which part the calls of a function belong to.
pub(crate) type ByFunction = BTreeMap<OpId, TimePart>;

pub(crate) fn by_function(situation: &Situation<'_>, calls: &[&CallSum]) -> ByFunction {
    calls.iter().map(|sum| (sum.op, part_of_call(situation, sum))).collect()
}

pub(crate) fn split(times: &ThreadTimes, calls: &[&CallSum], waits: &Waits, functions: &ByFunction) -> Parts {
    let mut parts = off_cpu(times, waits, functions);
    parts.shrink_to(times.wall_ns);
    let in_calls = in_calls(calls, functions, parts.rest_of(times.wall_ns));
    in_calls.0.into_iter().for_each(|(name, ns)| parts.add(name, ns));
    let reclaim_ns = reclaim_ns(times).saturating_sub(waits.ns(WaitClass::Reclaim));
    parts.add(TimePart::Faults, reclaim_ns.min(parts.rest_of(times.wall_ns)));
    parts.add(TimePart::Application, parts.rest_of(times.wall_ns));
    parts
}

/// Time in memory reclaim and compaction, waiting and at work.
pub(crate) fn reclaim_ns(times: &ThreadTimes) -> u64 {
    times.work_ns[WorkKind::Reclaim as usize].saturating_add(times.work_ns[WorkKind::Compaction as usize])
}

fn off_cpu(times: &ThreadTimes, waits: &Waits, calls: &ByFunction) -> Parts {
    let mut parts = Parts::default();
    let throttled_ns = times.throttled_ns.min(times.runqueue_ns);
    parts.add(TimePart::Throttled, throttled_ns);
    parts.add(TimePart::WaitingForCpu, times.runqueue_ns - throttled_ns);
    for &class in WaitClass::ALL {
        let mut left_ns = waits.ns(class);
        if matches!(class, WaitClass::Gpu | WaitClass::InCall) {
            for ((_, op), &ns) in waits.by_op.range((class, OpId(0))..=(class, OpId(u32::MAX))) {
                let ns = ns.min(left_ns);
                parts.add(calls.get(op).copied().unwrap_or(part_of_wait(class)), ns);
                left_ns -= ns;
            }
        }
        parts.add(part_of_wait(class), left_ns);
    }
    parts
}

/// On the CPU inside calls. Estimates and nested calls may add up to more than there was.
fn in_calls(calls: &[&CallSum], names: &ByFunction, running_ns: u64) -> Parts {
    let mut parts = Parts::default();
    for sum in calls {
        let name = names.get(&sum.op).copied().unwrap_or(TimePart::OtherCalls);
        parts.add(name, sum.running_ns());
    }
    parts.shrink_to(running_ns);
    parts
}

fn part_of_call(situation: &Situation<'_>, sum: &CallSum) -> TimePart {
    if situation.is_launch(sum.op) {
        return TimePart::Launching;
    }
    if is_sync_point(situation, sum) {
        return TimePart::WaitingForGpu;
    }
    situation.class_of(sum.op).map_or(TimePart::OtherCalls, CallClass::time_part)
}

fn part_of_wait(class: WaitClass) -> TimePart {
    match class {
        WaitClass::Gpu => TimePart::WaitingForGpu,
        WaitClass::InCall => TimePart::OtherCalls,
        WaitClass::Lock | WaitClass::Gil => TimePart::Lock,
        WaitClass::Input => TimePart::Input,
        WaitClass::Network | WaitClass::Request => TimePart::Network,
        WaitClass::Io => TimePart::Io,
        WaitClass::Fault | WaitClass::Reclaim => TimePart::Faults,
        WaitClass::Sleep => TimePart::Asleep,
        WaitClass::Handover => TimePart::Handover,
        WaitClass::Child | WaitClass::Output | WaitClass::Other => TimePart::OtherWaits,
    }
}
