//! What tracing takes from each thread: exact numbers of hits, switches and records, times what each costs on this
//! machine.

use std::time::Duration;

use gpuwhy_capture::{Calibration, Hits, TaskId, ThreadSnapshot};
use gpuwhy_model::Rung;
use hashbrown::HashMap;

use super::plan::Load;

/// How fast the rate of a function follows when it falls; it rises at once, so that a budget is not overrun.
const FALLING: f64 = 0.3;

/// What things cost the thread they happen to, where it happens.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    calibration: Calibration,
    /// How many times as much probes cost in the traced programs as in the test loop.
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
            Rung::Counters => self.calibration.counted_ns * self.coldness + self.extra_ns(stepped),
        }
    }

    pub fn kept_ns(&self) -> f64 {
        self.calibration.kept_ns * self.coldness
    }

    pub fn recorded_ns(&self) -> f64 {
        self.calibration.recorded_ns * self.coldness
    }

    fn skipped_ns(&self) -> f64 {
        self.calibration.skipped_ns * self.coldness
    }

    pub fn extra_ns(&self, stepped: bool) -> f64 {
        if stepped { self.calibration.stepped_extra_ns } else { 0.0 }
    }
}

#[derive(Default)]
pub struct Account {
    functions: HashMap<(TaskId, u16), Function>,
    threads: HashMap<TaskId, Thread>,
}

#[derive(Default)]
struct Function {
    count: u64,
    /// Calls per second.
    rate: f64,
}

#[derive(Default)]
struct Thread {
    /// Since it was last reported.
    taken_ns: f64,
    skipped_hits: u64,
    switches: u64,
    at_ns: u64,
    /// Shares of its time in the last second: what its switches cost, probes that were hit in vain, and all together.
    switches_share: f64,
    skipped_share: f64,
    share: f64,
    blocked_ns: u64,
    slack_share: f64,
}

impl Account {
    /// Takes note of the counters, `elapsed` after the last time. `treatment` says for a function of a process what one
    /// call costs and whether its rate can be read off, which it cannot while it is seen in bursts.
    pub fn glance(&mut self, hits: &[Hits], elapsed: Duration, treatment: impl Fn(u32, u16) -> (f64, bool)) {
        for hit in hits {
            let function = self.functions.entry((hit.task, hit.row)).or_default();
            let calls = hit.count.saturating_sub(function.count) as f64;
            function.count = hit.count;
            let (call_ns, is_seen) = treatment(hit.task.pid, hit.row);
            self.threads.entry(hit.task).or_default().taken_ns += calls * call_ns;
            if is_seen {
                function.follow(calls / elapsed.as_secs_f64().max(1e-3), FALLING);
            }
        }
    }

    /// A burst showed this rate.
    pub fn set_rate(&mut self, task: TaskId, row: u16, rate: f64) {
        self.functions.entry((task, row)).or_default().follow(rate, FALLING);
    }

    /// What was taken from a thread since the last report.
    pub fn report(&mut self, snapshot: &ThreadSnapshot, prices: &Prices) -> u64 {
        let thread = self.threads.entry(snapshot.owner.task).or_default();
        let since_ns = if thread.at_ns == 0 { snapshot.since_ns } else { thread.at_ns };
        let wall_ns = snapshot.at_ns.saturating_sub(since_ns).max(1) as f64;
        let switches_ns = snapshot.switches.saturating_sub(thread.switches) as f64 * prices.calibration.switch_ns;
        let skipped_ns = snapshot.skipped_hits.saturating_sub(thread.skipped_hits) as f64 * prices.skipped_ns();
        let taken_ns = std::mem::take(&mut thread.taken_ns) + switches_ns + skipped_ns;
        let blocked_ns = snapshot.blocked_ns.iter().sum::<u64>();
        *thread = Thread {
            taken_ns: 0.0,
            skipped_hits: snapshot.skipped_hits,
            switches: snapshot.switches,
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
    pub fn loads(&self, extra_ns: impl Fn(u16) -> f64) -> Vec<Load> {
        let load = |(&(task, row), function): (&(TaskId, u16), &Function)| Load {
            pid: task.pid,
            tid: task.tid,
            row,
            rate: function.rate,
            extra_ns: extra_ns(row),
        };
        self.functions.iter().filter(|(_, function)| function.rate > 0.0).map(load).collect()
    }

    /// What no rung can change: the share of each thread's time that its switches cost, up to `most`.
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
    pub fn worst(&self) -> Option<(TaskId, f64)> {
        let shares = self.threads.iter().map(|(&task, thread)| (task, thread.share));
        shares.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Function {
    fn follow(&mut self, rate: f64, falling: f64) {
        self.rate = if rate > self.rate { rate } else { self.rate + falling * (rate - self.rate) };
        if self.rate < 0.01 {
            self.rate = 0.0;
        }
    }
}
