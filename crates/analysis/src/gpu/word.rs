//! What a GPU says of itself: for which part of the time kernels ran on it.
//!
//! It takes copies for idle time, and for work the short gaps between two kernels and the time in which memory is given to
//! the program or taken back. All of that is known from the host: how much was copied, how many kernels were launched, and
//! how long memory was allocated and freed while the GPU was seen to have nothing to do.

use gpuwhy_model::{Call, CallClass, Direction, OpId, Span};
use gpuwhy_window::{CallSum, Device, GpuWord};

use crate::situation::Situation;
use crate::words::share;

/// It is an answer when it was said in so many moments, and in so many of each second.
const LEAST_MOMENTS: u64 = 3;
const LEAST_MOMENTS_A_SECOND: f64 = 0.5;

/// By how much it is off where nothing is copied and kernels are long.
const MORE_IDLE: f64 = 0.12;
const LESS_IDLE: f64 = 0.02;

/// The gap between two kernels that follow each other: as it usually is, and at most. Not more than half of the time in
/// which kernels run.
const USUAL_GAP_NS: f64 = 5_000.0;
const LONGEST_GAP_NS: f64 = 10_000.0;
const MOST_IN_GAPS: f64 = 0.5;

/// A copy between host and device takes no less and no more time for a byte.
const FASTEST_COPY_NS_A_KB: u64 = 20;
const SLOWEST_COPY_NS_A_KB: u64 = 500;

/// By so many times the time that copies take may be more than it seems.
const MORE_COPYING: f64 = 1.2;

/// As shares of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Word {
    pub without_kernels: f64,
    pub(super) copying: f64,
    /// In calls that allocate and free its memory.
    allocating: f64,
    /// Of that, idle: it had nothing to do, as the host saw.
    idle_allocating: f64,
    launches_per_ns: f64,
}

impl Word {
    pub fn hear(situation: &Situation<'_>, device: Device, said: &GpuWord) -> Option<Self> {
        let window = situation.window;
        let ns = Span { from_ns: window.from_ns, to_ns: window.to_ns }.ns();
        is_answer(said, ns).then(|| Self {
            without_kernels: 1.0 - said.busy,
            copying: share(copying_ns(situation, device), ns).min(1.0),
            allocating: share(sums(situation, device.host, is_memory).map(|sum| sum.sum_ns).sum(), ns).min(1.0),
            idle_allocating: 0.0,
            launches_per_ns: share(sums(situation, device.host, is_launch).map(|sum| sum.calls).sum(), ns),
        })
    }

    /// The host knows that it was idle for at least this part of the time.
    pub fn corrected_by(self, least_idle: f64) -> Self {
        Self { idle_allocating: (least_idle - self.idle()).clamp(0.0, self.allocating), ..self }
    }

    /// The best estimate.
    pub fn idle(&self) -> f64 {
        (self.without_kernels - self.copying + self.in_gaps(USUAL_GAP_NS) + self.idle_allocating).clamp(0.0, 1.0)
    }

    /// What the true share lies between.
    pub fn interval(&self) -> [f64; 2] {
        let least = self.without_kernels - MORE_COPYING * self.copying - LESS_IDLE + self.idle_allocating;
        let most = self.without_kernels + MORE_IDLE + self.in_gaps(LONGEST_GAP_NS) + self.idle_allocating;
        [least.clamp(0.0, 1.0), most.clamp(0.0, 1.0)]
    }

    /// The part of the time that can be lost to whoever keeps it waiting.
    pub fn most_lost(&self) -> f64 {
        (self.without_kernels + LESS_IDLE + self.idle_allocating).min(1.0)
    }

    fn in_gaps(&self, gap_ns: f64) -> f64 {
        (1.0 - self.without_kernels) * (self.launches_per_ns * gap_ns).min(MOST_IN_GAPS)
    }
}

fn is_answer(word: &GpuWord, ns: u64) -> bool {
    word.moments >= LEAST_MOMENTS && word.moments as f64 >= LEAST_MOMENTS_A_SECOND * ns as f64 / 1e9
}

/// A call that copies may return at once, or wait for work that came before.
fn copying_ns(situation: &Situation<'_>, device: Device) -> u64 {
    let is_copy = |op| situation.class_of(op) == Some(CallClass::Copy);
    let mut sum_ns = 0u64;
    let is_there = |call: &&Call| {
        let process = situation.process_id(call.thread);
        process.is_some_and(|process| situation.device(call, process) == device)
    };
    for call in situation.window.calls.rows.iter().filter(is_there) {
        let is_counted = is_copy(call.op) && situation.is_lowest(call.thread, call.op);
        if is_counted && call.direction != Some(Direction::DeviceToDevice) {
            let kilobytes = call.bytes.unwrap_or(0) / 1000;
            let at_least_ns = kilobytes.saturating_mul(FASTEST_COPY_NS_A_KB);
            let at_most_ns = kilobytes.saturating_mul(SLOWEST_COPY_NS_A_KB);
            sum_ns = sum_ns.saturating_add(call.duration_ns.clamp(at_least_ns, at_most_ns));
        }
    }
    sum_ns
}

fn is_launch(situation: &Situation<'_>, op: OpId) -> bool {
    situation.is_launch(op)
}

fn is_memory(situation: &Situation<'_>, op: OpId) -> bool {
    matches!(situation.class_of(op), Some(CallClass::Alloc | CallClass::Free))
}

/// The calls of a host's processes that are wanted, where they reach the driver.
fn sums<'w>(
    situation: &Situation<'w>,
    host: u16,
    is_wanted: fn(&Situation<'_>, OpId) -> bool,
) -> impl Iterator<Item = &'w CallSum> {
    let is_there =
        move |thread| situation.process_id(thread).is_some_and(|process| situation.window.host_of(process) == host);
    let is_counted = move |sum: &&CallSum| {
        is_wanted(situation, sum.op) && situation.is_lowest(sum.thread, sum.op) && is_there(sum.thread)
    };
    situation.window.call_sums.iter().filter(is_counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_no_idle_time_and_kernels_have_gaps_between_them() {
        let quiet = Word { without_kernels: 0.7, ..Word::default() };
        assert_eq!((quiet.idle(), quiet.most_lost()), (0.7, 0.72));
        let copies = Word { copying: 0.5, ..quiet };
        assert!((copies.idle() - 0.2).abs() < 1e-9, "{}", copies.idle());
        assert!(copies.interval()[0] < 0.2 && copies.interval()[1] > 0.7, "copies may run beside kernels");
        let many = Word { without_kernels: 0.1, launches_per_ns: 20_000.0 / 1e9, ..Word::default() };
        assert!((many.idle() - 0.19).abs() < 1e-9, "{}", many.idle());
    }

    #[test]
    fn memory_that_is_allocated_while_nothing_is_to_do_is_no_work() {
        let allocating = Word { without_kernels: 0.02, allocating: 0.4, ..Word::default() };
        let corrected = allocating.corrected_by(0.35);
        assert!((corrected.idle() - 0.35).abs() < 1e-9 && corrected.most_lost() > 0.35, "{corrected:?}");
        assert!(corrected.interval()[0] < 0.35 && corrected.interval()[1] > 0.42, "{corrected:?}");
        assert!((allocating.corrected_by(0.9).idle() - 0.42).abs() < 1e-9, "no longer than it took");
        assert_eq!(allocating.corrected_by(0.01), allocating, "it says more itself");
    }
}
