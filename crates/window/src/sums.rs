//! Calls and times of threads, added up: over the whole window, and second by second.

use gpuwhy_model::{Histogram, OpId, ThreadId, ThreadTimes};

/// Every call of one thread into one function. What was only seen part of the time is scaled up to all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSum {
    pub thread: ThreadId,
    pub op: OpId,
    /// Calls that were seen.
    pub seen: u64,
    /// Calls that were made, estimated where not all were seen.
    pub calls: u64,
    pub sum_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub bytes: u64,
    pub errors: u64,
    pub max_ns: u64,
    pub histogram: Histogram,
    /// Seconds with at least one call.
    pub seconds: u64,
}

impl CallSum {
    /// Of no calls yet.
    pub fn new(thread: ThreadId, op: OpId) -> Self {
        Self {
            thread,
            op,
            seen: 0,
            calls: 0,
            sum_ns: 0,
            runqueue_ns: 0,
            blocked_ns: 0,
            bytes: 0,
            errors: 0,
            max_ns: 0,
            histogram: Histogram::default(),
            seconds: 0,
        }
    }

    /// On the CPU inside the calls.
    pub fn running_ns(&self) -> u64 {
        self.sum_ns.saturating_sub(self.runqueue_ns).saturating_sub(self.blocked_ns)
    }

    /// Share of the calls that were seen.
    pub fn fraction(&self) -> f64 {
        if self.calls == 0 { 1.0 } else { (self.seen as f64 / self.calls as f64).min(1.0) }
    }
}

/// The same for about one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallSecond {
    /// When the second begins.
    pub bucket_ns: u64,
    pub thread: ThreadId,
    pub op: OpId,
    /// Calls that were seen.
    pub seen: u64,
    /// Calls that were made.
    pub calls: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
    pub errors: u64,
}

/// Where a thread's time went in the window.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSum {
    /// `bucket_ns` is when it was first seen.
    pub times: ThreadTimes,
    /// When its last second begins.
    pub last_bucket_ns: u64,
    pub seconds: u64,
}

/// About a second of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSecond {
    pub times: ThreadTimes,
    /// One for each function it called.
    pub calls: Vec<CallSum>,
}
