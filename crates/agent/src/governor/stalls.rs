//! Processes that had a stall: at most now and then, everything of theirs is kept for a moment.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

/// How often a process may get more detail than the budget allows, and for how long.
const APART: Duration = Duration::from_secs(30);
const RAISED_FOR: Duration = Duration::from_millis(250);

#[derive(Default)]
pub struct Stalls {
    processes: HashMap<u32, Stall>,
}

struct Stall {
    at: Instant,
    /// A sentence about a stall that nothing has been done about yet.
    news: Option<String>,
    is_raised: bool,
}

impl Stalls {
    /// Takes note of a stall, unless the process had one a moment ago.
    pub fn add(&mut self, pid: u32, now: Instant, news: impl FnOnce() -> String) {
        if self.processes.get(&pid).is_none_or(|stall| now >= stall.at + APART) {
            self.processes.insert(pid, Stall { at: now, news: Some(news()), is_raised: false });
        }
    }

    /// Stalls that something is to be done about now: everything is kept from now on.
    pub fn raise(&mut self, now: Instant) -> Vec<(u32, String)> {
        let raise = |(&pid, stall): (&u32, &mut Stall)| {
            let news = stall.news.take()?;
            (stall.at, stall.is_raised) = (now, true);
            Some((pid, news))
        };
        self.processes.iter_mut().filter_map(raise).collect()
    }

    /// Processes for which the moment is over.
    pub fn lower(&mut self, now: Instant) -> Vec<u32> {
        let lower = |(&pid, stall): (&u32, &mut Stall)| {
            let is_over = stall.is_raised && now >= stall.at + RAISED_FOR;
            stall.is_raised &= !is_over;
            is_over.then_some(pid)
        };
        self.processes.iter_mut().filter_map(lower).collect()
    }

    pub fn is_raised(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|stall| stall.is_raised)
    }

    pub fn process_gone(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_raised_for_a_moment_and_not_again_too_soon() {
        let mut stalls = Stalls::default();
        let start = Instant::now();
        let later = |ms| start + Duration::from_millis(ms);
        let add = |stalls: &mut Stalls, now| stalls.add(7, now, || "it took long".to_owned());
        add(&mut stalls, start);
        assert_eq!(stalls.raise(later(10)), [(7, "it took long".to_owned())]);
        assert!(stalls.is_raised(7) && stalls.raise(later(20)).is_empty());
        assert!(stalls.lower(later(200)).is_empty());
        assert_eq!(stalls.lower(later(260)), [7]);
        assert!(!stalls.is_raised(7) && stalls.lower(later(300)).is_empty());
        add(&mut stalls, later(5_000));
        assert!(stalls.raise(later(5_010)).is_empty(), "too soon");
        add(&mut stalls, later(31_000));
        assert_eq!(stalls.raise(later(31_010)).len(), 1);
    }
}
