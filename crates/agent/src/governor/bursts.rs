//! When functions that are called too often are looked at, and what follows from what was seen for the time between.
//!
//! A cycle is a gap and the window at its end. What windows cost decides how long gaps are, so that the share that they
//! take is kept whatever a call costs or how often it comes. It is what the last dozen windows cost on average: a gap
//! that followed the last window alone would be long after a busy one and short after a quiet one, and counts would
//! be off by that. Gaps vary, so that no habit of a program stays in step with them.

use std::time::{Duration, Instant};

use gpuwhy_capture::{CountDelta, TaskId};
use hashbrown::HashMap;

use super::estimate::{Cycle, Estimated, Estimator};
use crate::items::Counted;

/// A gap and its window together last about this long.
const CYCLE: Duration = Duration::from_millis(500);
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// Windows that are averaged.
const MEMORY: u32 = 8;
/// Attaching and removing probes costs calls too, so that a shorter window would be all edge.
const SHORTEST_WINDOW: Duration = Duration::from_millis(10);
const LONGEST_WINDOW: Duration = Duration::from_millis(250);
/// The links of the last window are gone by then, as a rule.
const SHORTEST_GAP: Duration = Duration::from_millis(60);
/// How long to look when something has gone wrong.
const LONG_LOOK: Duration = LONGEST_WINDOW;

pub struct Bursts {
    functions: HashMap<(TaskId, u16), Sampled>,
    /// From when on a function of a process is seen in bursts only, and a function of everybody.
    since_ns: HashMap<(u32, u16), u64>,
    state: State,
    window: Duration,
    /// The time from one window to the next that what windows cost asks for, for each second of window.
    cycle_per_window: f64,
    windows: u32,
    opened: Instant,
    looks_long: bool,
    random: u64,
}

struct Sampled {
    estimator: Estimator,
    /// The end of the last cycle.
    since_ns: u64,
    /// The shortest and the longest call of the last window.
    extremes_ns: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed { until: Instant },
    Open { since_ns: u64, until: Instant },
}

/// What is to be done about windows right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    Open,
    Close,
}

impl Bursts {
    pub fn new(now: Instant, seed: u64) -> Self {
        Self {
            functions: HashMap::new(),
            since_ns: HashMap::new(),
            state: State::Closed { until: now },
            window: SHORTEST_WINDOW,
            cycle_per_window: 0.0,
            windows: 0,
            opened: now,
            looks_long: false,
            random: seed | 1,
        }
    }

    pub fn due(&self, now: Instant) -> Due {
        match self.state {
            State::Closed { until } if until <= now => Due::Open,
            State::Open { until, .. } if until <= now => Due::Close,
            _ => Due::Nothing,
        }
    }

    pub fn due_at(&self) -> Instant {
        match self.state {
            State::Closed { until } | State::Open { until, .. } => until,
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// How long the window that closes now was open.
    pub fn window(&self, closed_ns: u64) -> Duration {
        match self.state {
            State::Open { since_ns, .. } => Duration::from_nanos(closed_ns.saturating_sub(since_ns)),
            State::Closed { .. } => Duration::ZERO,
        }
    }

    /// Something has gone wrong: look at once, and longer.
    pub fn look_now(&mut self, now: Instant) {
        self.looks_long = true;
        match &mut self.state {
            State::Closed { until } => *until = now,
            State::Open { until, .. } => *until = now + LONG_LOOK,
        }
    }

    /// Whether the present or next window is one in which everything is kept.
    pub fn looks_long(&self) -> bool {
        self.looks_long
    }

    pub fn opened(&mut self, now: Instant, at_ns: u64) {
        let window = if self.looks_long { LONG_LOOK } else { self.window };
        self.opened = now;
        self.state = State::Open { since_ns: at_ns, until: now + window };
    }

    /// The window could not be opened yet.
    pub fn try_again(&mut self, now: Instant) {
        self.state = State::Closed { until: now + SHORTEST_WINDOW };
    }

    /// The share of time that windows take as things are.
    pub fn share(&self) -> f64 {
        (self.window.as_secs_f64() / CYCLE.as_secs_f64()).min(1.0)
    }

    /// Ends a window. `least_cycle` is the time that has to pass from one window to the next for what this one cost.
    pub fn closed(&mut self, now: Instant, least_cycle: Duration) {
        let width = now.saturating_duration_since(self.opened).max(Duration::from_micros(100));
        let asked = least_cycle.as_secs_f64() / width.as_secs_f64();
        self.windows = self.windows.saturating_add(1);
        self.cycle_per_window += (asked - self.cycle_per_window) / f64::from(self.windows.min(MEMORY));
        let times = self.cycle_per_window.max(1.0);
        self.window = CYCLE.div_f64(times).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        // A long look is paid for by the gap after it.
        let gap = width.mul_f64(times - 1.0).mul_f64(0.5 + self.next_random()).clamp(SHORTEST_GAP, LONGEST_GAP);
        self.looks_long = false;
        self.state = State::Closed { until: now + gap };
    }

    /// Functions come and go: what windows cost has to be learnt again.
    pub fn begin_anew(&mut self, now: Instant, share: f64) {
        self.windows = 0;
        self.window = CYCLE.mul_f64(share.clamp(0.0, 1.0)).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        self.state = State::Closed { until: now + SHORTEST_GAP };
    }

    /// Nothing was seen until this moment.
    pub fn resume(&mut self, now: Instant, moment_ns: u64) {
        self.functions.clear();
        self.since_ns.values_mut().for_each(|since_ns| *since_ns = moment_ns);
        self.state = State::Closed { until: now + CYCLE.mul_f64(self.next_random()) };
    }

    fn next_random(&mut self) -> f64 {
        // Xorshift: the gaps need to be uneven, not unpredictable.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From this moment on a function of a process is seen in bursts only. Says whether this is the first time.
    pub fn begin(&mut self, pid: u32, row: u16, moment_ns: u64) -> bool {
        self.since_ns.insert((pid, row), moment_ns).is_none()
    }

    /// What a window that closed now says about a function of a thread. `otherwise_ns` is when the process was first
    /// seen in bursts, for one that `begin` was never said of.
    ///
    /// `held_up_ns` is how long the probes held the thread up in the window. It would have made as many calls in so much
    /// less time, and it does so between windows.
    pub fn cycle(&mut self, delta: CountDelta, closed_ns: u64, otherwise_ns: u64, held_up_ns: u64) -> Counted {
        let State::Open { since_ns: opened_ns, .. } = self.state else { return self.tail(delta, closed_ns) };
        let started_ns = delta.thread_started_ns;
        let sampled = self.sampled(&delta, otherwise_ns);
        let window_ns = closed_ns.saturating_sub(opened_ns.max(started_ns));
        let held_up_ns = held_up_ns.min(window_ns / 2);
        let cycle = Cycle {
            length_ns: closed_ns.saturating_sub(sampled.since_ns.max(started_ns)).saturating_sub(held_up_ns),
            window_ns: window_ns - held_up_ns,
            seen: delta.count,
            held_up_ns,
        };
        sampled.since_ns = closed_ns;
        let estimated = sampled.estimator.cycle(&cycle);
        sampled.remember_extremes(&delta);
        about(delta, estimated)
    }

    /// The function is seen all the time from now on, or its thread is gone: what happened since the last window.
    pub fn tail(&mut self, mut delta: CountDelta, moment_ns: u64) -> Counted {
        let Some(mut sampled) = self.functions.remove(&(delta.task, delta.row)) else {
            return Counted::exactly(delta);
        };
        let estimated = sampled.estimator.tail(moment_ns.saturating_sub(sampled.since_ns));
        if delta.count == 0 {
            (delta.min_ns, delta.max_ns) = sampled.extremes_ns;
        }
        about(delta, estimated)
    }

    /// A thread ended.
    pub fn thread_gone(&mut self, delta: CountDelta, moment_ns: u64, otherwise_ns: u64) -> Counted {
        let counted = match self.is_open() {
            true => self.cycle(delta, moment_ns, otherwise_ns, 0),
            false => self.tail(delta, moment_ns),
        };
        self.functions.remove(&(counted.delta.task, counted.delta.row));
        counted
    }

    pub fn process_gone(&mut self, pid: u32) {
        self.since_ns.retain(|(of, _), _| *of != pid);
        self.functions.retain(|(task, _), _| task.pid != pid);
    }

    fn sampled(&mut self, delta: &CountDelta, otherwise_ns: u64) -> &mut Sampled {
        let since_ns = self.since_ns.get(&(delta.task.pid, delta.row)).copied().unwrap_or(otherwise_ns);
        self.functions.entry((delta.task, delta.row)).or_insert_with(|| Sampled {
            estimator: Estimator::default(),
            since_ns,
            extremes_ns: (0, 0),
        })
    }
}

impl Sampled {
    fn remember_extremes(&mut self, delta: &CountDelta) {
        if delta.count > 0 {
            self.extremes_ns = (delta.min_ns, delta.max_ns);
        }
    }
}

/// Counts that stand for more calls than were seen.
fn about(delta: CountDelta, estimated: Estimated) -> Counted {
    Counted { estimate: estimated.count.max(delta.count), variance: estimated.variance, delta }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TASK: TaskId = TaskId { pid: 1, tid: 2 };

    fn calls(count: u64) -> CountDelta {
        CountDelta { task: TASK, row: 3, count, min_ns: 5, max_ns: 9, ..CountDelta::default() }
    }

    /// Opens a window at one time and closes it at another, in which a function was called so many times.
    fn window(bursts: &mut Bursts, opened_ns: u64, closed_ns: u64, delta: CountDelta, held_up_ns: u64) -> Counted {
        bursts.opened(Instant::now(), opened_ns);
        let counted = bursts.cycle(delta, closed_ns, 0, held_up_ns);
        bursts.closed(Instant::now(), Duration::from_millis(1));
        counted
    }

    #[test]
    fn windows_are_as_far_apart_as_what_they_cost_asks() {
        let mut now = Instant::now();
        let mut bursts = Bursts::new(now, 42);
        let (mut open, mut all) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..200 {
            let begun = now;
            bursts.opened(now, 0);
            let width = bursts.due_at() - now;
            now = bursts.due_at();
            bursts.closed(now, width * 20);
            now = bursts.due_at();
            open += width;
            all += now - begun;
        }
        let share = open.as_secs_f64() / all.as_secs_f64();
        assert!((0.045..0.055).contains(&share), "{share}");
    }

    #[test]
    fn one_quiet_window_does_not_bring_the_next_one_forward() {
        let mut now = Instant::now();
        let mut bursts = Bursts::new(now, 42);
        for turn in 0..MEMORY * 2 {
            bursts.opened(now, 0);
            let width = bursts.due_at() - now;
            now = bursts.due_at();
            let is_last = turn == MEMORY * 2 - 1;
            bursts.closed(now, if is_last { Duration::ZERO } else { width * 20 });
            assert!(bursts.due_at() - now > width * 5, "a gap of {:?}", bursts.due_at() - now);
            now = bursts.due_at();
        }
    }

    #[test]
    fn a_window_stands_for_the_gap_before_it() {
        let mut bursts = Bursts::new(Instant::now(), 1);
        bursts.begin(1, 3, 100 * MS);
        let counted = window(&mut bursts, 180 * MS, 200 * MS, calls(50), 0);
        assert_eq!((counted.delta.count, counted.estimate), (50, 250));
        assert!(counted.variance > 0.0 && counted.fraction() == 0.2);
        let counted = window(&mut bursts, 290 * MS, 300 * MS, calls(30), 0);
        assert_eq!(counted.estimate, 300);
    }

    #[test]
    fn calls_that_probes_held_up_come_faster_between_windows() {
        let mut bursts = Bursts::new(Instant::now(), 1);
        bursts.begin(1, 3, 0);
        // Of 20 ms the probes took two: 18 ms of the program's own time for 90 calls.
        assert_eq!(window(&mut bursts, 80 * MS, 100 * MS, calls(90), 2 * MS).estimate, 490);
    }

    #[test]
    fn a_thread_that_has_just_begun_made_no_calls_before() {
        let mut bursts = Bursts::new(Instant::now(), 1);
        bursts.begin(1, 3, 0);
        let young = CountDelta { thread_started_ns: 960 * MS, ..calls(10) };
        assert_eq!(window(&mut bursts, 980 * MS, 1000 * MS, young, 0).estimate, 20);
    }

    #[test]
    fn what_follows_the_last_window_goes_on_like_it_and_has_its_extremes() {
        let mut bursts = Bursts::new(Instant::now(), 1);
        bursts.begin(1, 3, 0);
        window(&mut bursts, 90 * MS, 100 * MS, calls(10), 0);
        let unseen = CountDelta { min_ns: 0, max_ns: 0, ..calls(0) };
        let tail = bursts.tail(unseen, 150 * MS);
        assert_eq!((tail.estimate, tail.delta.min_ns, tail.delta.max_ns), (50, 5, 9));
        assert_eq!(bursts.tail(calls(4), 200 * MS).estimate, 4, "it is seen all the time now");
    }
}
