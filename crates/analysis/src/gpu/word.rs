//! What a GPU says of itself: for which part of the time kernels ran on it.
//!
//! It takes copies for idle time, and the short gaps between two kernels for work. Both are known from the host: how much
//! was copied, and how many kernels were launched.

use gpuwhy_model::{Call, CallClass, Direction, Span};
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Word {
    pub without_kernels: f64,
    copying: f64,
    launches_per_ns: f64,
}

impl Word {
    pub fn hear(situation: &Situation<'_>, device: Device, processes: u64) -> Option<Self> {
        let window = situation.window;
        let word = window.gpu_words.get(&device)?;
        let ns = Span { from_ns: window.from_ns, to_ns: window.to_ns }.ns();
        // What others do on it is nobody's work here.
        let is_about_these = word.processes.is_none_or(|all| all <= processes);
        (is_answer(word, ns) && is_about_these).then(|| Self {
            without_kernels: 1.0 - word.busy,
            copying: share(copying_ns(situation, device), ns).min(1.0),
            launches_per_ns: share(launches(situation, device.host), ns),
        })
    }

    /// The best estimate.
    pub fn idle(&self) -> f64 {
        (self.without_kernels - self.copying + self.in_gaps(USUAL_GAP_NS)).clamp(0.0, 1.0)
    }

    /// What the true share lies between.
    pub fn interval(&self) -> [f64; 2] {
        let least = self.without_kernels - MORE_COPYING * self.copying - LESS_IDLE;
        let most = self.without_kernels + MORE_IDLE + self.in_gaps(LONGEST_GAP_NS);
        [least.clamp(0.0, 1.0), most.clamp(0.0, 1.0)]
    }

    /// The part of the time that can be lost to whoever keeps it waiting.
    pub fn most_lost(&self) -> f64 {
        (self.without_kernels + LESS_IDLE).min(1.0)
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

fn launches(situation: &Situation<'_>, host: u16) -> u64 {
    let is_there =
        |thread| situation.process_id(thread).is_some_and(|process| situation.window.host_of(process) == host);
    let is_counted =
        |sum: &&CallSum| situation.is_launch(sum.op) && situation.is_lowest(sum.thread, sum.op) && is_there(sum.thread);
    let sums = situation.window.call_sums.iter().filter(is_counted);
    sums.fold(0, |all, sum| all.saturating_add(sum.calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_no_idle_time_and_kernels_have_gaps_between_them() {
        let quiet = Word { without_kernels: 0.7, copying: 0.0, launches_per_ns: 0.0 };
        assert_eq!((quiet.idle(), quiet.most_lost()), (0.7, 0.72));
        let copies = Word { copying: 0.5, ..quiet };
        assert!((copies.idle() - 0.2).abs() < 1e-9, "{}", copies.idle());
        assert!(copies.interval()[0] < 0.2 && copies.interval()[1] > 0.7, "copies may run beside kernels");
        let many = Word { without_kernels: 0.1, copying: 0.0, launches_per_ns: 20_000.0 / 1e9 };
        assert!((many.idle() - 0.19).abs() < 1e-9, "{}", many.idle());
    }
}
