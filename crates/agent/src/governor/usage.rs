//! What the tracer itself uses: CPU time of its process, and run time of its hooks in the kernel.

use std::os::fd::OwnedFd;
use std::time::Instant;

use gpuwhy_capture::{RunTime, Tracer};

use crate::discovery::FileId;
use crate::items::Usage;
use crate::session::own_cpu_ns;
use crate::stacks::background_cpu_ns;

/// The kernel times BPF programs in one second out of these, since timing them costs something too.
const TIME_PROGRAMS_EVERY: u32 = 8;
/// Runs of programs at calls from which their mean can be told, and the most it is believed to grow.
const ENOUGH_RUNS: u64 = 500;
const MOST_COLD: f64 = 5.0;
/// A mean that is this many times the last one is measured again.
const SURPRISING: f64 = 1.5;
/// CPU time to take a record from the ring to the file, until it has been seen here.
const RECORD_NS: f64 = 1500.0;
/// Records in a second from which that can be told.
const ENOUGH_RECORDS: u64 = 5000;
const SMOOTH: f64 = 0.3;

pub struct OwnUsage {
    cpus: f64,
    since: Instant,
    cpu_ns: u64,
    background_ns: u64,
    records: u64,
    record_ns: f64,
    /// Share of the machine, without what records cost.
    base_share: f64,
    seconds: u32,
    timing: Option<(OwnedFd, RunTime)>,
    /// Of a wall second.
    hooks_share: f64,
    call_program: MeanTime,
}

impl OwnUsage {
    pub fn start(now: Instant, tracer: &Tracer<FileId>) -> Self {
        let mut usage = Self {
            cpus: std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64),
            since: now,
            cpu_ns: own_cpu_ns(),
            background_ns: background_cpu_ns(),
            records: 0,
            record_ns: RECORD_NS,
            base_share: 0.0,
            seconds: 0,
            timing: None,
            hooks_share: 0.0,
            call_program: MeanTime::new(tracer.calibration.program_ns),
        };
        usage.begin_timing(tracer);
        usage
    }

    /// How many times as long programs at calls run as they did in the test loop: what a program does between its calls
    /// drives the kernel's code out of the caches.
    pub fn coldness(&self, tracer: &Tracer<FileId>) -> f64 {
        (self.call_program.ns / tracer.calibration.program_ns.max(1.0)).clamp(1.0, MOST_COLD)
    }

    pub fn add_record(&mut self) {
        self.records += 1;
    }

    /// What a record costs, spread over all CPUs.
    pub fn record_ns_per_cpu(&self) -> f64 {
        self.record_ns / self.cpus
    }

    pub fn base_share(&self) -> f64 {
        self.base_share
    }

    pub fn second(&mut self, now: Instant, tracer: &Tracer<FileId>) -> Usage {
        let wall_ns = now.saturating_duration_since(self.since).as_nanos().max(1) as u64;
        let cpu_now_ns = own_cpu_ns();
        let cpu_ns = cpu_now_ns - self.cpu_ns;
        self.time_programs(tracer, wall_ns);
        let hooks_ns = (self.hooks_share * wall_ns as f64) as u64;
        let records = std::mem::take(&mut self.records);
        if records >= ENOUGH_RECORDS {
            self.record_ns += SMOOTH * (cpu_ns as f64 / records as f64 - self.record_ns);
        }
        // What hooks cost is on the accounts of the threads that switch.
        // What is looked up about stacks is looked up once, when nobody else wants the CPU.
        let background_ns = background_cpu_ns();
        let looking_up_ns = background_ns - std::mem::replace(&mut self.background_ns, background_ns);
        let base_ns = (cpu_ns as f64 - looking_up_ns as f64 - records as f64 * self.record_ns).max(0.0);
        self.base_share += SMOOTH * (base_ns / wall_ns as f64 / self.cpus - self.base_share);
        self.since = now;
        self.cpu_ns = cpu_now_ns;
        Usage { wall_ns, cpu_ns, hooks_ns, call_program_ns: self.call_program.ns as u64 }
    }

    /// A kernel that does not time programs leaves the hooks out of the account.
    fn begin_timing(&mut self, tracer: &Tracer<FileId>) {
        self.timing = tracer.time_programs().ok().map(|timing| (timing, tracer.run_time()));
    }

    fn time_programs(&mut self, tracer: &Tracer<FileId>, wall_ns: u64) {
        self.seconds += 1;
        if let Some((_, before)) = self.timing.take() {
            let now = tracer.run_time();
            self.hooks_share = now.hooks.since(before.hooks).ns as f64 / wall_ns as f64;
            let mut calls = now.calls.since(before.calls);
            // Walks are on the accounts of their threads, by themselves.
            calls.ns = calls.ns.saturating_sub(now.call_stacks_ns - before.call_stacks_ns);
            let is_sure = self.call_program.learn((calls.count >= ENOUGH_RUNS).then(|| calls.mean_ns()));
            if !is_sure {
                self.begin_timing(tracer);
            }
        } else if self.seconds.is_multiple_of(TIME_PROGRAMS_EVERY) {
            self.begin_timing(tracer);
        }
    }
}

/// A mean that is not believed at once when it is much larger than before: programs that lost their CPU while they ran
/// were timed with what they waited, and a few of them are enough. The smaller one of two measurements counts.
struct MeanTime {
    ns: f64,
    surprise_ns: Option<f64>,
}

impl MeanTime {
    fn new(ns: f64) -> Self {
        Self { ns, surprise_ns: None }
    }

    /// Takes what was measured, if enough was. Returns whether that settles it.
    fn learn(&mut self, measured_ns: Option<f64>) -> bool {
        match (self.surprise_ns.take(), measured_ns) {
            (None, Some(ns)) if ns > self.ns * SURPRISING => self.surprise_ns = Some(ns),
            (Some(before_ns), Some(ns)) => self.ns = ns.min(before_ns),
            (None, Some(ns)) => self.ns = ns,
            (_, None) => {}
        }
        self.surprise_ns.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::MeanTime;

    #[test]
    fn a_surprise_counts_when_it_comes_twice() {
        let mut time = MeanTime::new(200.0);
        assert!(!time.learn(Some(2000.0)));
        assert_eq!(time.ns, 200.0);
        assert!(time.learn(Some(450.0)));
        assert_eq!(time.ns, 450.0);
        assert!(time.learn(Some(500.0)));
        assert_eq!(time.ns, 500.0);
        assert!(time.learn(Some(100.0)), "less is never a surprise");
        assert_eq!(time.ns, 100.0);
    }

    #[test]
    fn a_surprise_that_cannot_be_measured_again_is_forgotten() {
        let mut time = MeanTime::new(200.0);
        assert!(!time.learn(Some(2000.0)));
        assert!(time.learn(None));
        assert!(!time.learn(Some(2000.0)));
        assert_eq!(time.ns, 200.0);
    }
}
