//! A sink behind a bounded queue, in a thread of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use gpuwhy_model::{Row, SessionEnd, SinkState};

use super::{Request, Sink};

/// Things that may wait for a sink. Beyond that it misses details, but neither names nor sums.
const MOST_WAITING: usize = 1 << 15;
/// Batches that may wait. A sink that lets so many gather does not come back.
const MOST_BATCHES: usize = 1 << 10;
/// How long a sink may take to finish.
const LAST_ROWS: Duration = Duration::from_secs(5);
const LAST_ROWS_OF_ESSENTIAL: Duration = Duration::from_secs(60);

pub struct Outlet {
    name: &'static str,
    is_essential: bool,
    patience: Duration,
    wants: fn(&Row) -> bool,
    batches: Sender<Arc<Vec<Row>>>,
    end: Sender<SessionEnd>,
    thread: JoinHandle<Result<()>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    waiting: AtomicUsize,
    lost_rows: AtomicU64,
    lost_calls: AtomicU64,
    wants_stacks: AtomicBool,
    has_ended: AtomicBool,
    /// Since when too much waits for it.
    behind_since: Mutex<Option<Instant>>,
    /// It has let too much gather, and may never come back.
    is_given_up: AtomicBool,
    ended: Mutex<Option<String>>,
}

impl State {
    fn lose<'a>(&self, rows: impl Iterator<Item = &'a Row>) {
        for row in rows {
            self.lost_rows.fetch_add(row.len() as u64, Ordering::Relaxed);
            self.lost_calls.fetch_add(row.calls() as u64, Ordering::Relaxed);
        }
    }

    /// The first reason stays.
    fn end(&self, why: String) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether it is behind, but not yet for longer than this.
    fn is_waited_for(&self, patience: Duration) -> bool {
        let mut since = self.behind_since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_ended() || self.waiting.load(Ordering::Relaxed) <= MOST_WAITING / 2 {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() < patience
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

impl Outlet {
    pub fn start(sink: Box<dyn Sink>) -> Self {
        let (batches, inbox) = bounded(MOST_BATCHES);
        let (end, ends) = bounded(1);
        let state = Arc::new(State::default());
        let (name, is_essential, patience, wants) = (sink.name(), sink.is_essential(), sink.patience(), sink.wants());
        let own_state = Arc::clone(&state);
        let thread = thread::spawn(move || run(sink, &inbox, &ends, &own_state));
        Self { name, is_essential, patience, wants, batches, end, thread, state }
    }

    /// Never waits. Details that the sink has no room for are counted, once its patience is over.
    pub fn give(&self, rows: &Arc<Vec<Row>>) {
        if !rows.iter().any(self.wants) {
            return;
        }
        let wanted = rows.iter().filter(|row| (self.wants)(row));
        if self.state.has_ended() {
            return self.state.lose(wanted);
        }
        let waiting = self.state.waiting.load(Ordering::Relaxed);
        let has_room = waiting == 0 || waiting + weight(rows) <= MOST_WAITING;
        if has_room || self.state.is_waited_for(self.patience) {
            return self.send(Arc::clone(rows));
        }
        let (missed, kept): (Vec<&Row>, Vec<&Row>) = wanted.partition(|row| row.is_detail());
        self.state.lose(missed.into_iter());
        if !kept.is_empty() {
            self.send(Arc::new(kept.into_iter().cloned().collect()));
        }
    }

    fn send(&self, rows: Arc<Vec<Row>>) {
        self.state.waiting.fetch_add(weight(&rows), Ordering::Relaxed);
        match self.batches.try_send(rows) {
            Ok(()) => {}
            Err(TrySendError::Full(rows)) => {
                self.state.lose(rows.iter());
                self.state.is_given_up.store(true, Ordering::Relaxed);
                self.state.end("it does not take rows any more".to_owned());
            }
            Err(TrySendError::Disconnected(rows)) => self.state.lose(rows.iter()),
        }
    }

    pub fn is_essential(&self) -> bool {
        self.is_essential
    }

    pub fn lost_calls(&self) -> u64 {
        self.state.lost_calls.load(Ordering::Relaxed)
    }

    /// Whether the sink wants stacks again, since this was last asked.
    pub fn wants_stacks(&self) -> bool {
        self.state.wants_stacks.swap(false, Ordering::Relaxed)
    }

    pub fn state(&self) -> SinkState {
        SinkState {
            name: self.name,
            lost_rows: self.state.lost_rows.load(Ordering::Relaxed),
            ended: self.state.ended.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Waits until the sink has taken what waits for it, but not for ever. Returns how it ended.
    pub fn finish(self, end: SessionEnd) -> (SinkState, Result<()>) {
        let state = self.state();
        let Self { name, is_essential, batches, end: ends, thread, state: shared, .. } = self;
        // There is room for one, and this is the only one.
        let _ = ends.try_send(end);
        drop(batches);
        let deadline = Instant::now() + if is_essential { LAST_ROWS_OF_ESSENTIAL } else { LAST_ROWS };
        let is_given_up = shared.is_given_up.load(Ordering::Relaxed);
        while !thread.is_finished() && !is_given_up && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let result = match thread.is_finished() {
            true => thread.join().unwrap_or_else(|_| Err(anyhow!("{name} panicked"))),
            false => Err(anyhow!("{name} did not take its last rows in time")),
        };
        let ended = result.as_ref().err().map(|error| format!("{error:#}"));
        (
            SinkState { lost_rows: shared.lost_rows.load(Ordering::Relaxed), ended: ended.or(state.ended), ..state },
            result,
        )
    }
}

fn weight(rows: &[Row]) -> usize {
    rows.iter().map(Row::len).sum()
}

fn run(
    mut sink: Box<dyn Sink>,
    inbox: &Receiver<Arc<Vec<Row>>>,
    ends: &Receiver<SessionEnd>,
    state: &State,
) -> Result<()> {
    let mut result = Ok(());
    for rows in inbox {
        match result {
            Ok(()) => match guarded(|| sink.take(&rows)) {
                Ok(Request::Nothing) => {}
                Ok(Request::StacksAgain) => state.wants_stacks.store(true, Ordering::Relaxed),
                Err(error) => {
                    state.end(format!("{error:#}"));
                    result = Err(error);
                }
            },
            Err(_) => state.lose(rows.iter()),
        }
        state.waiting.fetch_sub(weight(&rows), Ordering::Relaxed);
    }
    let Ok(mut end) = ends.try_recv() else { bail!("the trace ended without a word") };
    if let Err(error) = &result {
        end.reason = format!("{error:#}");
    }
    let lost_calls = state.lost_calls.load(Ordering::Relaxed);
    let finished = guarded(|| sink.finish(&end, lost_calls));
    result.and(finished)
}

/// A sink that panics has failed, and takes nobody along.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(anyhow!("{}", words_of(&*panic))).context("panicked"))
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// How far sinks are behind, as the draining thread sees it.
pub struct Backlog(Vec<(Arc<State>, Duration)>);

impl Backlog {
    pub fn new(outlets: &[Outlet]) -> Self {
        Self(outlets.iter().map(|outlet| (Arc::clone(&outlet.state), outlet.patience)).collect())
    }

    /// Whether records should stay in the rings, where there is an end to them, so that a sink can catch up.
    pub fn is_to_wait_for(&self) -> bool {
        self.0.iter().any(|(state, patience)| state.is_waited_for(*patience))
    }
}
