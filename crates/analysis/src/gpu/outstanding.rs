//! What a process has asked of a GPU and does not know to be done.

use std::collections::HashMap;

use gpuwhy_model::{Awaited, Span, ThreadId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All is done.
    Idle,
    /// Somebody waits for it.
    Busy,
    /// It has work, and nobody waits.
    Unknown,
    /// Nobody sees whether it gets work, and nobody waits.
    Unseen,
}

/// In the order of time, one right after the other, each with who ended it.
pub type States = Vec<(Span, State, Option<ThreadId>)>;

/// Follows the calls of a process in the order of time.
pub struct Outstanding {
    /// When each stream that may have work was last given some.
    streams: HashMap<u64, u64>,
    /// Where an event lies: in which stream, since when.
    events: HashMap<u64, (u64, u64)>,
    waits: u32,
    /// Who last gave it work.
    feeder: Option<ThreadId>,
    is_blind: bool,
    state: State,
    since_ns: u64,
    /// How long it has been given work since somebody last waited.
    submitting_ns: u64,
    /// When it was first given work since somebody last waited.
    fed_since_ns: Option<u64>,
    starved_ns: u64,
    /// From the first work to the wait for all of it, where the wait was next to nothing.
    kept_up: Vec<Span>,
    states: States,
}

/// What came of it.
pub struct Followed {
    pub states: States,
    /// How long the host was late.
    pub starved_ns: u64,
    /// Times in which work was done as soon as it came.
    pub kept_up: Vec<Span>,
}

/// A wait that takes this part of the time in which the work was given found most of it done.
const NEXT_TO_NOTHING: u64 = 20;

/// Programs make new events all the time; so many are remembered.
const MOST_EVENTS: usize = 1 << 16;

impl Outstanding {
    pub fn new(from_ns: u64, first: State) -> Self {
        Self {
            streams: HashMap::new(),
            events: HashMap::new(),
            waits: 0,
            feeder: None,
            is_blind: false,
            state: first,
            since_ns: from_ns,
            submitting_ns: 0,
            fed_since_ns: None,
            starved_ns: 0,
            kept_up: Vec::new(),
            states: Vec::new(),
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The first work. Nobody is late before there is any.
    pub fn begin(&mut self, at_ns: u64, stream: u64) {
        self.streams.insert(stream, at_ns);
        self.turn(at_ns, State::Unknown, None);
    }

    /// From here on work may come that nobody sees. Whoever gave it work before is taken to do so again.
    pub fn close_eyes(&mut self, at_ns: u64) {
        self.is_blind = true;
        self.turn(at_ns, self.with_waits(State::Unseen), self.feeder);
        self.submitting_ns = 0;
        self.fed_since_ns = None;
    }

    /// From here on all work is seen. These streams may have some, given until `last_ns`.
    pub fn open_eyes(&mut self, at_ns: u64, streams: &[u64], last_ns: u64) {
        self.is_blind = false;
        self.streams.extend(streams.iter().map(|&stream| (stream, last_ns)));
        self.turn(at_ns, self.with_waits(State::Unknown), None);
    }

    fn with_waits(&self, without: State) -> State {
        if self.waits > 0 { State::Busy } else { without }
    }

    pub fn submit(&mut self, at_ns: u64, stream: u64, by: ThreadId) {
        self.feeder = Some(by);
        self.streams.insert(stream, at_ns);
        self.fed_since_ns = self.fed_since_ns.or(Some(at_ns));
        if self.state == State::Idle {
            self.turn(at_ns, State::Unknown, Some(by));
        }
    }

    pub fn mark(&mut self, at_ns: u64, event: u64, stream: u64) {
        if self.events.len() >= MOST_EVENTS {
            self.events.clear();
        }
        self.events.insert(event, (stream, at_ns));
    }

    pub fn begin_wait(&mut self, at_ns: u64, has_to_wait: bool) {
        if !has_to_wait {
            return;
        }
        self.waits += 1;
        if matches!(self.state, State::Unknown | State::Unseen) {
            self.turn(at_ns, State::Busy, None);
        }
    }

    pub fn end_wait(&mut self, at_ns: u64, began_ns: u64, scope: Awaited, had_to_wait: bool) {
        self.waits = self.waits.saturating_sub(u32::from(had_to_wait));
        // What others have asked for since the wait began may not be done.
        match scope {
            Awaited::All => self.streams.retain(|_, last_ns| *last_ns > began_ns),
            Awaited::Stream(stream) => self.done(stream, began_ns),
            Awaited::Event(event) => {
                if let Some(&(stream, marked_ns)) = self.events.get(&event) {
                    self.done(stream, marked_ns);
                }
            }
        }
        if !had_to_wait {
            self.starved_ns = self.starved_ns.saturating_add(self.submitting_ns + self.unknown_until(at_ns));
        }
        self.submitting_ns = 0;
        if let Some(from_ns) = self.fed_since_ns.take()
            && at_ns.saturating_sub(began_ns) <= began_ns.saturating_sub(from_ns) / NEXT_TO_NOTHING
        {
            self.kept_up.push(Span { from_ns, to_ns: began_ns });
        }
        let next = match (self.is_blind, self.streams.is_empty()) {
            (true, _) => self.with_waits(State::Unseen),
            (false, true) => State::Idle,
            (false, false) => self.with_waits(State::Unknown),
        };
        if next != self.state {
            self.turn(at_ns, next, None);
        }
    }

    /// Up to here, a stream has done its work. The default stream waits for all others of its kind.
    fn done(&mut self, stream: u64, until_ns: u64) {
        const DEFAULT: u64 = 0;
        match stream {
            DEFAULT => self.streams.retain(|_, last_ns| *last_ns > until_ns),
            _ => {
                if self.streams.get(&stream).is_some_and(|last_ns| *last_ns <= until_ns) {
                    self.streams.remove(&stream);
                }
            }
        }
    }

    fn unknown_until(&self, at_ns: u64) -> u64 {
        if self.state == State::Unknown { at_ns.saturating_sub(self.since_ns) } else { 0 }
    }

    fn turn(&mut self, at_ns: u64, next: State, by: Option<ThreadId>) {
        self.submitting_ns = self.submitting_ns.saturating_add(self.unknown_until(at_ns));
        if at_ns > self.since_ns {
            self.states.push((Span { from_ns: self.since_ns, to_ns: at_ns }, self.state, by));
        }
        (self.state, self.since_ns) = (next, at_ns.max(self.since_ns));
    }

    pub fn finish(mut self, to_ns: u64) -> Followed {
        self.turn(to_ns, State::Unknown, None);
        Followed { states: self.states, starved_ns: self.starved_ns, kept_up: self.kept_up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId(1);

    fn states(outstanding: Outstanding, to_ns: u64) -> Vec<(u64, u64, State)> {
        outstanding.finish(to_ns).states.into_iter().map(|(span, state, _)| (span.from_ns, span.to_ns, state)).collect()
    }

    #[test]
    fn from_a_wait_that_returned_to_the_next_work_the_gpu_is_idle() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.submit(10, 1, THREAD);
        gpu.begin_wait(30, true);
        gpu.end_wait(50, 30, Awaited::Stream(1), true);
        gpu.submit(80, 1, THREAD);
        let expected = [
            (0, 10, State::Idle),
            (10, 30, State::Unknown),
            (30, 50, State::Busy),
            (50, 80, State::Idle),
            (80, 90, State::Unknown),
        ];
        assert_eq!(states(gpu, 90), expected);
    }

    #[test]
    fn a_wait_for_one_stream_leaves_the_work_of_another() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.submit(10, 1, THREAD);
        gpu.submit(20, 2, THREAD);
        gpu.begin_wait(30, true);
        gpu.end_wait(50, 30, Awaited::Stream(1), true);
        assert_eq!(gpu.state(), State::Unknown);
        gpu.end_wait(60, 60, Awaited::All, false);
        assert_eq!(gpu.state(), State::Idle);
    }

    #[test]
    fn work_that_another_thread_asks_for_during_a_wait_is_not_done_with_it() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.submit(10, 1, THREAD);
        gpu.begin_wait(20, true);
        gpu.submit(30, 1, ThreadId(2));
        gpu.end_wait(40, 20, Awaited::Stream(1), true);
        assert_eq!(gpu.state(), State::Unknown);
    }

    #[test]
    fn an_event_is_as_far_as_its_stream_was_when_it_was_recorded() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.submit(10, 1, THREAD);
        gpu.mark(20, 7, 1);
        gpu.end_wait(30, 25, Awaited::Event(7), false);
        assert_eq!(gpu.state(), State::Idle);
        gpu.submit(40, 1, THREAD);
        gpu.end_wait(50, 45, Awaited::Event(7), false);
        assert_eq!(gpu.state(), State::Unknown, "the work came after the event");
    }

    #[test]
    fn a_wait_that_did_not_have_to_wait_says_that_the_host_was_late() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.submit(10, 1, THREAD);
        gpu.end_wait(70, 69, Awaited::Stream(1), false);
        let followed = gpu.finish(100);
        assert_eq!(followed.starved_ns, 60);
        assert_eq!(followed.kept_up, [Span { from_ns: 10, to_ns: 69 }]);
    }

    #[test]
    fn what_happens_while_nobody_looks_is_only_known_when_somebody_waits() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.close_eyes(10);
        gpu.begin_wait(20, true);
        gpu.end_wait(30, 20, Awaited::All, true);
        gpu.open_eyes(40, &[1], 0);
        gpu.end_wait(50, 50, Awaited::Stream(1), false);
        gpu.submit(60, 1, THREAD);
        let states: Vec<(u64, State)> =
            gpu.finish(70).states.iter().map(|(span, state, _)| (span.from_ns, *state)).collect();
        let expected =
            [State::Idle, State::Unseen, State::Busy, State::Unseen, State::Unknown, State::Idle, State::Unknown];
        assert_eq!(states, [0, 10, 20, 30, 40, 50, 60].into_iter().zip(expected).collect::<Vec<_>>());
    }

    #[test]
    fn a_wait_that_began_before_somebody_looked_ends_what_was_asked_before_it() {
        let mut gpu = Outstanding::new(0, State::Idle);
        gpu.close_eyes(0);
        gpu.begin_wait(20, true);
        gpu.open_eyes(40, &[1], 0);
        assert_eq!(gpu.state(), State::Busy);
        gpu.end_wait(50, 20, Awaited::Stream(1), true);
        assert_eq!(gpu.state(), State::Idle);
        gpu.open_eyes(60, &[1], 60);
        gpu.end_wait(70, 55, Awaited::Stream(1), true);
        assert_eq!(gpu.state(), State::Unknown, "another thread may have asked for something since the wait began");
    }
}
