//! What is usual for a function of a process, so that what is not stands out.

use std::time::Duration;

use gpuwhy_capture::{CountDelta, RawCall};
use gpuwhy_model::Histogram;
use hashbrown::HashMap;

/// Calls after which older ones begin to count less.
const MEMORY: u64 = 20_000;
/// Calls that make a habit.
const ENOUGH: u64 = 20;
/// A stall is this long at least, and this many times what 99 of 100 calls take.
const STALL_NS: u64 = Duration::from_millis(5).as_nanos() as u64;
const STALL_TIMES: u64 = 8;
/// What is slow before anything is known, and what is never slow.
const SLOW_NS: u64 = Duration::from_micros(100).as_nanos() as u64;
const FAST_NS: u64 = Duration::from_micros(10).as_nanos() as u64;

#[derive(Default)]
pub struct Baselines {
    functions: HashMap<(u32, u16), Histogram>,
}

impl Baselines {
    pub fn learn(&mut self, delta: &CountDelta) {
        let histogram = self.functions.entry((delta.task.pid, delta.row)).or_default();
        histogram.merge(&delta.histogram);
        if histogram.count() > MEMORY {
            *histogram = histogram.halved();
        }
    }

    pub fn process_gone(&mut self, pid: u32) {
        self.functions.retain(|(of, _), _| *of != pid);
    }

    fn p99_ns(&self, pid: u32, row: u16) -> Option<u64> {
        let histogram = self.functions.get(&(pid, row)).filter(|histogram| histogram.count() >= ENOUGH)?;
        histogram.quantile_ns(0.99)
    }

    /// From which duration on a call of this function is worth keeping when not all can be.
    pub fn slow_ns(&self, pid: u32, row: u16) -> u64 {
        self.p99_ns(pid, row).map_or(SLOW_NS, |ns| ns.saturating_add(ns / 4).max(FAST_NS))
    }

    pub fn is_stall(&self, call: &RawCall) -> bool {
        call.duration_ns >= STALL_NS
            && self
                .p99_ns(call.task.pid, call.row)
                .is_some_and(|usual_ns| call.duration_ns >= usual_ns.saturating_mul(STALL_TIMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_capture::TaskId;

    fn calls(count: u64, ns: u64) -> CountDelta {
        let mut histogram = Histogram::default();
        histogram.add(Histogram::index(ns), count);
        CountDelta { task: TaskId { pid: 1, tid: 1 }, row: 3, count, histogram, ..CountDelta::default() }
    }

    fn call(duration_ns: u64) -> RawCall {
        RawCall { task: TaskId { pid: 1, tid: 1 }, row: 3, duration_ns, ..RawCall::default() }
    }

    #[test]
    fn a_call_stalls_by_the_standard_of_its_own_function() {
        let mut baselines = Baselines::default();
        assert!(!baselines.is_stall(&call(1_000_000_000)), "nothing is usual yet");
        baselines.learn(&calls(1000, 2_000_000));
        assert!(!baselines.is_stall(&call(10_000_000)));
        assert!(baselines.is_stall(&call(20_000_000)));
    }

    #[test]
    fn a_long_call_of_a_function_that_always_takes_long_is_no_stall() {
        let mut baselines = Baselines::default();
        baselines.learn(&calls(100, 100_000_000));
        assert!(!baselines.is_stall(&call(200_000_000)));
    }

    #[test]
    fn a_new_habit_replaces_the_old_one() {
        let mut baselines = Baselines::default();
        baselines.learn(&calls(MEMORY, 2_000));
        for _ in 0..20 {
            baselines.learn(&calls(MEMORY, 2_000_000));
        }
        assert!(baselines.slow_ns(1, 3) > 2_000_000);
        assert!(!baselines.is_stall(&call(6_000_000)));
    }
}
