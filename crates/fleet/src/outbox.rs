//! Digests on their way from the tracer to whoever sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::digest::Digest;

/// Seconds that wait: who sends takes them each second. Accounts only grow, so the last one says most.
const MOST_SECONDS: usize = 60;

/// One that a sink fills and a sender empties. Nobody waits for the other.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    seconds: VecDeque<Vec<Digest>>,
    lost: u64,
}

impl Outbox {
    pub fn put(&self, second: Vec<Digest>) {
        let mut waiting = self.lock();
        waiting.seconds.push_back(second);
        if waiting.seconds.len() > MOST_SECONDS {
            let gone = waiting.seconds.pop_front().map_or(0, |second| second.len());
            waiting.lost += gone as u64;
        }
    }

    /// All that wait, the oldest first.
    pub fn take(&self) -> Vec<Digest> {
        self.lock().seconds.drain(..).flatten().collect()
    }

    /// Digests for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_bounded_and_counted() {
        let outbox = Outbox::default();
        for at_ns in 0..100 {
            outbox.put(vec![Digest { at_ns, ..Digest::default() }; 2]);
        }
        let taken = outbox.take();
        assert_eq!((taken.len(), taken[0].at_ns, outbox.lost()), (120, 40, 80));
        assert!(outbox.take().is_empty());
    }
}
