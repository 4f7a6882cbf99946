//! Sinks that block for ever, panic, fail or are slow: the others get every row, and what is missed is counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use gpuwhy_model::{Call, CallStats, Name, OpId, ProcessId, Row, SessionEnd, ThreadId};

use super::{Outlet, Request, Sink};

/// What a sink under test does with a batch.
type Work = Box<dyn FnMut(&[Row]) -> Result<Request> + Send>;

struct Trial {
    work: Work,
    taken: Arc<Taken>,
}

#[derive(Default)]
struct Taken {
    calls: AtomicU64,
    names: AtomicU64,
    sums: AtomicU64,
    end: Mutex<Option<(SessionEnd, u64)>>,
}

impl Sink for Trial {
    fn name(&self) -> &'static str {
        "the trial"
    }

    fn take(&mut self, rows: &[Row]) -> Result<Request> {
        let request = (self.work)(rows)?;
        for row in rows {
            self.taken.calls.fetch_add(row.calls() as u64, Ordering::SeqCst);
            self.taken.names.fetch_add(u64::from(matches!(row, Row::Name(_))), Ordering::SeqCst);
            self.taken.sums.fetch_add(u64::from(matches!(row, Row::CallStats(_))), Ordering::SeqCst);
        }
        Ok(request)
    }

    fn finish(self: Box<Self>, end: &SessionEnd, lost_calls: u64) -> Result<()> {
        *self.taken.end.lock().unwrap() = Some((end.clone(), lost_calls));
        Ok(())
    }
}

fn outlet(work: impl FnMut(&[Row]) -> Result<Request> + Send + 'static) -> (Outlet, Arc<Taken>) {
    let taken = Arc::new(Taken::default());
    (Outlet::start(Box::new(Trial { work: Box::new(work), taken: Arc::clone(&taken) })), taken)
}

fn willing(_: &[Row]) -> Result<Request> {
    Ok(Request::Nothing)
}

/// A name and a thousand calls.
fn batch() -> Arc<Vec<Row>> {
    let name = Name::Thread { id: ThreadId(1), process: ProcessId(1), tid: 7, comm: "python".to_owned() };
    let calls = (0..1000).map(|start_ns| Call::new(ThreadId(1), OpId(0), start_ns, 1)).collect();
    let sums = vec![CallStats::alike(0, ThreadId(1), OpId(0), 1000, 1)];
    Arc::new(vec![Row::Name(name), Row::Calls(calls), Row::CallStats(sums)])
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Waits while it is shut.
fn gate() -> (Arc<AtomicBool>, impl FnMut(&[Row]) -> Result<Request> + Send + 'static) {
    let is_open = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_open);
    let work = move |_: &[Row]| {
        while !own.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(Request::Nothing)
    };
    (is_open, work)
}

#[test]
fn a_sink_that_blocks_for_ever_holds_up_nobody_and_what_it_misses_is_counted() {
    let (_never_opened, work) = gate();
    let (blocked, _) = outlet(work);
    let (other, taken) = outlet(willing);
    for given in 1..=200 {
        let rows = batch();
        blocked.give(&rows);
        other.give(&rows);
        wait_until("the other takes every batch", || taken.calls.load(Ordering::SeqCst) == given * 1000);
    }
    let lost = blocked.state().lost_rows;
    assert!((150_000..200_000).contains(&lost), "{lost} of 200000 calls, 32768 may wait");
    assert_eq!(other.state().lost_rows, 0);
}

#[test]
fn a_sink_that_lets_names_gather_without_end_is_given_up() {
    let (_never_opened, work) = gate();
    let (blocked, _) = outlet(work);
    for _ in 0..1200 {
        blocked.give(&batch());
    }
    assert_eq!(blocked.state().ended.as_deref(), Some("it does not take rows any more"));
    let started = Instant::now();
    let (state, result) = blocked.finish(SessionEnd::default());
    assert!(result.is_err() && state.ended.is_some());
    assert!(started.elapsed() < Duration::from_secs(4), "nobody waits for it at the end");
}

#[test]
fn a_sink_that_panics_or_fails_ends_alone_and_says_why() {
    let (panicking, _) = outlet(|_| panic!("out of luck"));
    let (failing, _) = outlet(|_| bail!("no room"));
    for _ in 0..3 {
        panicking.give(&batch());
        failing.give(&batch());
    }
    wait_until("both end", || panicking.state().ended.is_some() && failing.state().ended.is_some());
    assert_eq!(panicking.state().ended.as_deref(), Some("panicked: out of luck"));
    assert_eq!(failing.state().ended.as_deref(), Some("no room"));
    panicking.give(&batch());
    wait_until("what comes later is counted", || panicking.state().lost_rows >= 1001);
    let (state, result) = failing.finish(SessionEnd::default());
    assert_eq!((format!("{:#}", result.unwrap_err()).as_str(), state.ended.as_deref()), ("no room", Some("no room")));
}

#[test]
fn a_slow_sink_misses_calls_but_neither_names_nor_sums_and_catches_up() {
    let (is_open, work) = gate();
    let (slow, taken) = outlet(work);
    for _ in 0..100 {
        slow.give(&batch());
    }
    let lost = slow.lost_calls();
    assert!(lost > 0, "32768 of 100000 calls may wait");
    is_open.store(true, Ordering::SeqCst);
    wait_until("it takes what waited", || taken.calls.load(Ordering::SeqCst) == 100_000 - lost);
    wait_until("it takes names and sums", || taken.sums.load(Ordering::SeqCst) == 100);
    assert_eq!(taken.names.load(Ordering::SeqCst), 100);
    slow.give(&batch());
    let (state, result) = slow.finish(SessionEnd { reason: "over".to_owned(), ..SessionEnd::default() });
    result.unwrap();
    assert_eq!((state.lost_rows, state.ended), (lost, None));
    assert_eq!(taken.calls.load(Ordering::SeqCst), 101_000 - lost);
    let (end, lost_calls) = taken.end.lock().unwrap().take().unwrap();
    assert_eq!((end.reason.as_str(), lost_calls), ("over", lost));
}

#[test]
fn the_file_learns_why_it_could_not_be_finished() {
    let (failing, taken) = outlet(|_| bail!("the disk is full"));
    failing.give(&batch());
    let (_, result) = failing.finish(SessionEnd { reason: "duration over".to_owned(), ..SessionEnd::default() });
    assert!(result.is_err());
    assert_eq!(taken.end.lock().unwrap().as_ref().unwrap().0.reason, "the disk is full");
}
