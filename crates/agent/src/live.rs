//! What is happening right now: totals for the live view, and a door for those who watch.

use std::time::Duration;

use gpuwhy_capture::{TaskId, row};
use gpuwhy_model::{Call, Histogram, Losses};
use hashbrown::HashMap;

use crate::governor::{Counted, Usage};

/// Is told what the trace sees while it is taken.
pub trait Watch: Send {
    /// Whether [`Watch::call`] is of any use; calls are many.
    fn wants_calls(&self) -> bool {
        false
    }

    fn call(&mut self, _call: &CallSeen<'_>) {}

    /// About once a second.
    fn second(&mut self, _live: &Live) {}

    /// Something a person should know, in a sentence.
    fn note(&mut self, _text: &str) {}
}

/// A kept call with names in place of numbers.
pub struct CallSeen<'a> {
    pub call: &'a Call,
    pub pid: u32,
    pub tid: u32,
    pub comm: &'a str,
    pub op: &'static str,
    pub layer: &'static str,
}

/// Totals since the start.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub elapsed: Duration,
    pub seen: u64,
    pub stored: u64,
    pub losses: Losses,
    pub probes: usize,
    pub cost: Cost,
    rows: HashMap<(u32, u16), LiveRow>,
}

/// What tracing costs.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// The share of its time that the thread lost from which most was taken, in the last second.
    pub worst: Option<(TaskId, f64)>,
    /// CPU time of the tracer itself as a share of one CPU, in the last second.
    pub agent: f64,
    /// The largest such share of a thread in any second, leaving out the first ones, in which the tracer finds its feet.
    pub most: f64,
    seconds: u32,
    agent_sum: f64,
}

impl Cost {
    /// CPU time of the tracer itself as a share of one CPU, on the whole.
    pub fn agent_mean(&self) -> f64 {
        self.agent_sum / f64::from(self.seconds.max(1))
    }
}

/// Seconds until the tracer has settled.
const SETTLES: u32 = 3;

/// One function in one process.
#[derive(Clone, Debug)]
pub struct LiveRow {
    pub pid: u32,
    pub comm: String,
    pub op: &'static str,
    /// Calls made, as far as is known.
    pub count: u64,
    /// Of the count; 0 when every call was seen.
    pub variance: f64,
    /// Calls in the last second.
    pub recent: u64,
    pub sum_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub errors: u64,
    pub histogram: Histogram,
}

impl Live {
    pub fn start_second(&mut self) {
        for row in self.rows.values_mut() {
            row.recent = 0;
        }
    }

    pub fn note_cost(&mut self, usage: &Usage, worst: Option<(TaskId, f64)>) {
        let Cost { most, seconds, agent_sum, .. } = self.cost;
        let share = worst.map_or(0.0, |(_, share)| share);
        let agent = usage.cpu_ns as f64 / usage.wall_ns.max(1) as f64;
        self.cost = Cost {
            worst,
            agent,
            most: if seconds >= SETTLES { most.max(share) } else { 0.0 },
            seconds: seconds + 1,
            agent_sum: agent_sum + agent,
        };
    }

    pub fn add(&mut self, counted: &Counted, comm: &str) {
        let delta = &counted.delta;
        self.seen += delta.count;
        let op = row(delta.row.into()).map_or("?", |row| row.api.name);
        let entry = self.rows.entry((delta.task.pid, delta.row)).or_insert_with(|| LiveRow {
            pid: delta.task.pid,
            comm: comm.to_owned(),
            op,
            count: 0,
            variance: 0.0,
            recent: 0,
            sum_ns: 0,
            runqueue_ns: 0,
            blocked_ns: 0,
            errors: 0,
            histogram: Histogram::default(),
        });
        entry.count += counted.estimate;
        entry.variance += counted.variance;
        entry.recent += counted.estimate;
        entry.sum_ns += delta.sum_ns;
        entry.runqueue_ns += delta.runqueue_ns;
        entry.blocked_ns += delta.blocked_ns;
        entry.errors += delta.errors;
        entry.histogram.merge(&delta.histogram);
    }

    /// The functions that took most time, first.
    pub fn top(&self, most: usize) -> Vec<&LiveRow> {
        let mut rows: Vec<_> = self.rows.values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.sum_ns, row.count)));
        rows.truncate(most);
        rows
    }
}
