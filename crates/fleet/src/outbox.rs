//! Digests on their way from the tracer to whoever sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::digest::Digest;

/// Seconds that wait: who sends takes them each second. Accounts only grow, so the last one says most.
const MOST_SECONDS: usize = 60;

/// One that a sink fills and a sender empties. Nobody waits for the other.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Debug, Default)]
struct Waiting {
    seconds: VecDeque<Vec<Digest>>,
    lost: u64,
    is_over: bool,
}

impl Outbox {
    pub fn put(&self, second: Vec<Digest>) {
        let mut waiting = self.lock();
        waiting.seconds.push_back(second);
        if waiting.seconds.len() > MOST_SECONDS {
            let gone = waiting.seconds.pop_front().map_or(0, |second| second.len());
            waiting.lost += gone as u64;
        }
        self.0.1.notify_all();
    }

    /// Waits for the next second, at most so long: false when there is none any more.
    pub fn wait(&self, longest: Duration) -> bool {
        let is_nothing = |waiting: &mut Waiting| waiting.seconds.is_empty() && !waiting.is_over;
        let waited = self.0.1.wait_timeout_while(self.lock(), longest, is_nothing);
        !waited.map_or_else(|poisoned| poisoned.into_inner().0.is_over, |(waiting, _)| waiting.is_over)
    }

    /// There will be no more.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.0.1.notify_all();
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
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn whoever_waits_for_a_second_has_it_at_once() {
        let (outbox, long) = (Outbox::default(), Duration::from_secs(600));
        let other = outbox.clone();
        let waiting = std::thread::spawn(move || {
            let has_one = other.wait(long);
            (has_one, other.take().len(), other.wait(long))
        });
        outbox.put(vec![Digest::default()]);
        // It has taken it and waits for the next one.
        while !outbox.lock().seconds.is_empty() {
            std::thread::yield_now();
        }
        outbox.end();
        assert_eq!(waiting.join().unwrap(), (true, 1, false));
        assert!(Outbox::default().wait(Duration::ZERO));
    }
}
