//! What is happening right now: totals for the live view, and a door for those who watch.

use std::time::Duration;

use gpuwhy_capture::{CountDelta, row};
use gpuwhy_model::{Call, Histogram, Losses};
use hashbrown::HashMap;

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
    rows: HashMap<(u32, u16), LiveRow>,
}

/// One function in one process.
#[derive(Clone, Debug)]
pub struct LiveRow {
    pub pid: u32,
    pub comm: String,
    pub op: &'static str,
    pub count: u64,
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

    pub fn add(&mut self, delta: &CountDelta, comm: &str) {
        self.seen += delta.count;
        let op = row(delta.row.into()).map_or("?", |row| row.api.name);
        let entry = self.rows.entry((delta.task.pid, delta.row)).or_insert_with(|| LiveRow {
            pid: delta.task.pid,
            comm: comm.to_owned(),
            op,
            count: 0,
            recent: 0,
            sum_ns: 0,
            runqueue_ns: 0,
            blocked_ns: 0,
            errors: 0,
            histogram: Histogram::default(),
        });
        entry.count += delta.count;
        entry.recent += delta.count;
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
