//! What tracing takes from each thread: exact numbers of hits, switches and records, times what each costs on this
//! machine.

use std::time::{Duration, Instant};

use gpuwhy_capture::{Calibration, Hits, TaskId, ThreadSnapshot};
use gpuwhy_model::Rung;
use hashbrown::HashMap;

use super::plan::Load;

/// How fast the rate of a function follows when it falls; it rises at once, so that a budget is not overrun.
const FALLING: f64 = 0.3;
/// Rates are read off over this time at least: a call or two in a few milliseconds are no rate.
const RATED_OVER: Duration = Duration::from_millis(200);

/// What is not timed, the way into the kernel and back, is taken to grow as programs do, up to this many times.
const MOST_COLD_ENTRY: f64 = 2.0;

/// What things cost the thread they happen to, where it happens.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    calibration: Calibration,
    /// How many times as long programs at calls run in the traced processes as in the test loop.
    coldness: f64,
}

impl Prices {
    pub fn new(calibration: Calibration, coldness: f64) -> Self {
        Self { calibration, coldness }
    }

    pub fn call_ns(&self, rung: Rung, stepped: bool) -> f64 {
        match rung {
            Rung::Everything | Rung::Bursts => self.kept_ns() + self.extra_ns(stepped),
            Rung::SlowOnly => self.recorded_ns() + self.extra_ns(stepped),
            Rung::Counters => self.cold_ns(self.calibration.counted_ns) + self.extra_ns(stepped),
        }
    }

    pub fn kept_ns(&self) -> f64 {
        self.cold_ns(self.calibration.kept_ns)
    }

    pub fn recorded_ns(&self) -> f64 {
        self.cold_ns(self.calibration.recorded_ns)
    }

    fn skipped_ns(&self) -> f64 {
        self.cold_ns(self.calibration.skipped_ns)
    }

    /// What took this long in the test loop, programs at the entry and the return of a call included.
    fn cold_ns(&self, ns: f64) -> f64 {
        let programs_ns = (2.0 * self.calibration.program_ns).min(ns);
        programs_ns * self.coldness + (ns - programs_ns) * self.coldness.min(MOST_COLD_ENTRY)
    }

    pub fn extra_ns(&self, stepped: bool) -> f64 {
        if stepped { self.calibration.stepped_extra_ns } else { 0.0 }
    }
}

#[derive(Default)]
pub struct Account {
    functions: HashMap<(TaskId, u16), Function>,
    threads: HashMap<TaskId, Thread>,
    /// When rates were last read off; never, or no longer true, when there is none.
    rated: Option<Instant>,
}

#[derive(Default)]
struct Function {
    count: u64,
    /// When rates were last read off.
    rated_count: u64,
    /// Calls per second.
    rate: f64,
}

#[derive(Default)]
struct Thread {
    /// Since it was last reported.
    taken_ns: f64,
    skipped_hits: u64,
    switches: u64,
    stacks_ns: u64,
    at_ns: u64,
    /// Shares of its time in the last second: what its switches cost, probes that were hit in vain, and all together.
    switches_share: f64,
    skipped_share: f64,
    share: f64,
    blocked_ns: u64,
    slack_share: f64,
}

impl Account {
    /// Takes note of the counters. `treatment` says for a function of a process what one call costs and whether its rate
    /// can be read off, which it cannot while it is seen in bursts.
    pub fn glance(&mut self, hits: &[Hits], now: Instant, treatment: impl Fn(u32, u16) -> (f64, bool)) {
        let elapsed = self.rated.map(|rated| now.saturating_duration_since(rated));
        let is_rated = elapsed.is_none_or(|elapsed| elapsed >= RATED_OVER);
        for hit in hits {
            let function = self.functions.entry((hit.task, hit.row)).or_default();
            let calls = hit.count.saturating_sub(function.count) as f64;
            function.count = hit.count;
            let (call_ns, is_seen) = treatment(hit.task.pid, hit.row);
            self.threads.entry(hit.task).or_default().taken_ns += calls * call_ns;
            if !is_rated {
                continue;
            }
            let calls = hit.count.saturating_sub(std::mem::replace(&mut function.rated_count, hit.count)) as f64;
            if let (true, Some(elapsed)) = (is_seen, elapsed) {
                function.follow(calls / elapsed.as_secs_f64());
            }
        }
        if is_rated {
            self.rated = Some(now);
        }
    }

    /// Time has passed in which nothing was seen.
    pub fn resume(&mut self) {
        self.rated = None;
    }

    /// A burst showed this rate.
    pub fn set_rate(&mut self, task: TaskId, row: u16, rate: f64) {
        self.functions.entry((task, row)).or_default().follow(rate);
    }

    /// What was taken from a thread since the last report.
    pub fn report(&mut self, snapshot: &ThreadSnapshot, prices: &Prices) -> u64 {
        let thread = self.threads.entry(snapshot.owner.task).or_default();
        let since_ns = if thread.at_ns == 0 { snapshot.since_ns } else { thread.at_ns };
        let wall_ns = snapshot.at_ns.saturating_sub(since_ns).max(1) as f64;
        let switches_ns = snapshot.switches.saturating_sub(thread.switches) as f64 * prices.calibration.switch_ns;
        let skipped_ns = snapshot.skipped_hits.saturating_sub(thread.skipped_hits) as f64 * prices.skipped_ns();
        // Walks are timed where they happen.
        let stacks_ns = snapshot.stacks_ns.saturating_sub(thread.stacks_ns) as f64;
        let taken_ns = std::mem::take(&mut thread.taken_ns) + switches_ns + stacks_ns + skipped_ns;
        let blocked_ns = snapshot.blocked_ns.iter().sum::<u64>();
        *thread = Thread {
            taken_ns: 0.0,
            skipped_hits: snapshot.skipped_hits,
            switches: snapshot.switches,
            stacks_ns: snapshot.stacks_ns,
            at_ns: snapshot.at_ns,
            switches_share: switches_ns / wall_ns,
            skipped_share: skipped_ns / wall_ns,
            share: taken_ns / wall_ns,
            blocked_ns,
            slack_share: blocked_ns.saturating_sub(thread.blocked_ns) as f64 / wall_ns,
        };
        taken_ns as u64
    }

    pub fn thread_gone(&mut self, task: TaskId) {
        self.threads.remove(&task);
        self.functions.retain(|(of, _), _| *of != task);
    }

    /// Every function of every thread that is called.
    pub fn loads(&self, extra_ns: impl Fn(u16) -> f64, is_spared: impl Fn(u16) -> bool) -> Vec<Load> {
        let load = |(&(task, row), function): (&(TaskId, u16), &Function)| Load {
            pid: task.pid,
            tid: task.tid,
            row,
            rate: function.rate,
            extra_ns: extra_ns(row),
            is_spared: is_spared(row),
        };
        self.functions.iter().filter(|(_, function)| function.rate > 0.0).map(load).collect()
    }

    /// What no rung can change: the share of each thread's time that its switches cost, up to `most`. Stacks have
    /// a part of the budget for themselves.
    pub fn fixed(&self, most: f64) -> HashMap<(u32, u32), f64> {
        let threads = self.threads.iter();
        threads.map(|(task, thread)| ((task.pid, task.tid), thread.switches_share.min(most))).collect()
    }

    /// The share of its time that a thread waited by itself, in the last second.
    pub fn slack_share(&self, task: TaskId) -> f64 {
        self.threads.get(&task).map_or(0.0, |thread| thread.slack_share)
    }

    /// What the edges of windows cost a thread.
    pub fn skipped_share(&self, task: TaskId) -> f64 {
        self.threads.get(&task).map_or(0.0, |thread| thread.skipped_share)
    }

    /// The thread of which most was taken in the last second.
    pub fn worst(&self) -> f64 {
        self.threads.values().map(|thread| thread.share).fold(0.0, f64::max)
    }
}

impl Function {
    fn follow(&mut self, rate: f64) {
        self.rate = if rate > self.rate { rate } else { self.rate + FALLING * (rate - self.rate) };
        if self.rate < 0.01 {
            self.rate = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId { pid: 1, tid: 2 };

    fn glance(account: &mut Account, now: Instant, count: u64) {
        account.glance(&[Hits { task: TASK, row: 3, count }], now, |_, _| (1000.0, true));
    }

    fn rate(account: &Account) -> f64 {
        account.loads(|_| 0.0, |_| false).first().map_or(0.0, |load| load.rate)
    }

    #[test]
    fn a_few_calls_within_a_moment_are_no_rate() {
        let mut account = Account::default();
        let start = Instant::now();
        glance(&mut account, start, 0);
        glance(&mut account, start + Duration::from_millis(250), 25);
        assert_eq!(rate(&account).round(), 100.0);
        glance(&mut account, start + Duration::from_millis(252), 30);
        assert_eq!(rate(&account).round(), 100.0, "five calls in two milliseconds");
        glance(&mut account, start + Duration::from_millis(500), 50);
        assert_eq!(rate(&account).round(), 100.0);
    }

    #[test]
    fn calls_from_before_a_pause_do_not_count_as_made_after_it() {
        let mut account = Account::default();
        let start = Instant::now();
        glance(&mut account, start, 0);
        glance(&mut account, start + Duration::from_millis(250), 25);
        account.resume();
        glance(&mut account, start + Duration::from_millis(251), 5_000);
        assert_eq!(rate(&account).round(), 100.0);
    }

    #[test]
    fn what_is_timed_counts_in_full_and_the_rest_within_reason() {
        let calibration =
            Calibration { kept_ns: 1500.0, program_ns: 250.0, skipped_ns: 400.0, ..Calibration::default() };
        let prices = |coldness| Prices::new(calibration, coldness);
        assert_eq!(prices(1.0).kept_ns(), 1500.0);
        assert_eq!(prices(2.0).kept_ns(), 3000.0);
        assert_eq!(prices(4.0).kept_ns(), 500.0 * 4.0 + 1000.0 * 2.0);
        assert_eq!(prices(4.0).skipped_ns(), 1600.0, "no more than all of it is the program");
    }

    #[test]
    fn a_rate_rises_at_once_and_falls_slowly() {
        let mut account = Account::default();
        let start = Instant::now();
        glance(&mut account, start, 0);
        glance(&mut account, start + Duration::from_secs(1), 1_000);
        glance(&mut account, start + Duration::from_secs(2), 11_000);
        assert_eq!(rate(&account).round(), 10_000.0);
        glance(&mut account, start + Duration::from_secs(3), 11_000);
        assert_eq!(rate(&account).round(), 7_000.0);
    }
}
