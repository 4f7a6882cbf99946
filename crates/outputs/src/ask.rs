//! Asks a question on a thread of its own. There is an end to how many are asked at once, how many wait for their turn, how
//! long one takes and how big its answer is; and one that nobody waits for any more is withdrawn.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gpuwhy_questions::{AskError, Asked, Control, FLEET_QUESTIONS, Granted, Host, NoHost, QUESTIONS, Question, Traces};
use gpuwhy_store::{Limits, QueryError};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::Refusal;
use crate::cache::{Cache, Key};
use crate::fleet::Fleet;

/// What is told while an answer is being found: how much is done, from 0 to 1, and what.
pub type Progress = Arc<gpuwhy_questions::Progress>;

/// An answer and the size of its text.
#[derive(Debug)]
pub struct Answer {
    pub value: Value,
    pub bytes: usize,
}

/// How much questions may take, all together and each.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub at_once: usize,
    pub waiting: usize,
    pub time: Duration,
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { at_once: 2 * cores, waiting: 64, time: Duration::from_secs(60), bytes: 8 << 20 }
    }
}

pub struct Asker {
    files: Vec<PathBuf>,
    traces: Traces,
    /// What is asked instead of traces.
    fleet: Option<Fleet>,
    host: Arc<dyn Host>,
    bounds: Bounds,
    turns: Arc<Semaphore>,
    /// What acts on this host does so one at a time.
    acts: Arc<Semaphore>,
    waiting: AtomicUsize,
    running: Arc<AtomicUsize>,
    cache: Cache,
    stopping: CancellationToken,
}

impl Asker {
    pub fn new(files: Vec<PathBuf>, host: Arc<dyn Host>, bounds: Bounds) -> Self {
        Self {
            traces: Traces::new(files.clone()),
            files,
            fleet: None,
            host,
            bounds,
            turns: Arc::new(Semaphore::new(bounds.at_once)),
            acts: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            running: Arc::default(),
            cache: Cache::default(),
            stopping: CancellationToken::new(),
        }
    }

    /// One that is asked of clusters.
    pub fn of_fleet(fleet: Fleet, bounds: Bounds) -> Self {
        Self { fleet: Some(fleet), ..Self::new(Vec::new(), Arc::new(NoHost), bounds) }
    }

    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    /// What can be asked.
    pub fn questions(&self) -> &'static [Question] {
        if self.fleet.is_some() { FLEET_QUESTIONS } else { QUESTIONS }
    }

    /// The question of this name or alias.
    pub fn question(&self, name: &str) -> Option<&'static Question> {
        self.questions().iter().find(|question| question.has_name(name))
    }

    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// How many questions are being answered now.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Withdraws all questions; no other is asked from now on.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Whether no question is asked any more.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Asks it, for somebody who may hear of the clusters that are granted. Dropping the future withdraws the question.
    pub async fn ask(
        self: &Arc<Self>,
        question: &'static Question,
        parameters: Value,
        granted: Granted,
        progress: Progress,
    ) -> Result<Arc<Answer>, Refusal> {
        let parameters = with_integers(parameters);
        let is_kept = self.fleet.is_none() && depends_on_traces(question);
        let key = is_kept.then(|| Key::new(question.name, &parameters, &self.files));
        let known = || key.as_ref().and_then(|key| self.cache.find(key));
        if let Some(known) = known() {
            return Ok(known);
        }
        let turn = self.turn(question).await?;
        // While this one waited for its turn, another may have asked the same.
        if let Some(known) = known() {
            return Ok(known);
        }
        let (answer, _turn) = self.answer(turn, question, parameters, granted, progress).await?;
        let answer = Arc::new(answer);
        if let Some(key) = key {
            self.cache.keep(key, &answer);
        }
        Ok(answer)
    }

    /// The answer, with the turn back: the next one has its turn when this answer is known.
    async fn answer(
        self: &Arc<Self>,
        turn: Turn,
        question: &'static Question,
        parameters: Value,
        granted: Granted,
        progress: Progress,
    ) -> Result<(Answer, Turn), Refusal> {
        let asker = Arc::clone(self);
        let ask = move |cancelled| asker.ask_here(question, parameters, granted, Control { cancelled, progress });
        let (answer, turn) = self.on_a_thread(turn, question.name, ask).await?;
        let value = answer.map_err(|error| self.without_folders(error))?;
        let bytes = serde_json::to_string(&value).map_or(usize::MAX, |text| text.len());
        match bytes <= self.bounds.bytes {
            true => Ok((Answer { value, bytes }, turn)),
            false => Err(Refusal::TooLarge { bytes, most: self.bounds.bytes }),
        }
    }

    /// Works where the disk may be waited for, and gives the turn back. The work is told when nobody waits for it any more.
    pub(crate) async fn on_a_thread<T: Send + 'static>(
        &self,
        turn: Turn,
        name: &str,
        work: impl FnOnce(Arc<AtomicBool>) -> T + Send + 'static,
    ) -> Result<(T, Turn), Refusal> {
        let withdrawn = Withdrawn::default();
        let cancelled = Arc::clone(&withdrawn.0);
        let thread = tokio::task::spawn_blocking(move || (work(cancelled), turn));
        let ended = tokio::select! {
            ended = tokio::time::timeout(self.bounds.time, thread) => ended,
            () = self.stopping.cancelled() => return Err(Refusal::Stopping),
        };
        match ended {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(AskError::Failed { message: format!("{name} broke off") }.into()),
            Err(_) => Err(AskError::Query(QueryError::TimedOut { limit: self.bounds.time }).into()),
        }
    }

    /// On the thread that waits for the disk.
    fn ask_here(
        &self,
        question: &Question,
        parameters: Value,
        granted: Granted,
        control: Control,
    ) -> Result<Value, AskError> {
        let limits = Limits { time: self.bounds.time, ..Limits::default() };
        let fleet = self.fleet.as_ref().map(|fleet| (fleet.gathered(), granted));
        let asked = Asked { limits, control, fleet, ..Asked::new(&self.traces, self.host.as_ref()) };
        question.ask(parameters, &asked)
    }

    /// A client knows traces by name.
    pub(crate) fn without_folders(&self, error: AskError) -> Refusal {
        if !matches!(error, AskError::Trace(_)) {
            return error.into();
        }
        tracing::warn!(%error, "a trace cannot be read");
        let folders = self.files.iter().filter_map(|file| file.parent()).filter(|folder| *folder != Path::new(""));
        let message =
            folders.fold(error.to_string(), |text, folder| text.replace(&format!("{}/", folder.display()), ""));
        Refusal::Trace { error, message }
    }

    /// A place among those that are asked at once, held until the question's thread is done, also when nobody waits for it.
    async fn turn(&self, question: &Question) -> Result<Turn, Refusal> {
        self.turn_among(if question.acts { &self.acts } else { &self.turns }).await
    }

    /// The same for what is done one at a time.
    pub(crate) async fn turn_to_act(&self) -> Result<Turn, Refusal> {
        self.turn_among(&self.acts).await
    }

    async fn turn_among(&self, turns: &Arc<Semaphore>) -> Result<Turn, Refusal> {
        if self.stopping.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        let permit = match Arc::clone(turns).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.in_line(Arc::clone(turns)).await?,
        };
        Ok(Turn::new(permit, Arc::clone(&self.running)))
    }

    async fn in_line(&self, turns: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
        let _place = Place::take(&self.waiting, self.bounds.waiting).ok_or(Refusal::Busy)?;
        tokio::select! {
            permit = tokio::time::timeout(self.bounds.time, turns.acquire_owned()) => match permit {
                Ok(Ok(permit)) => Ok(permit),
                _ => Err(Refusal::Busy),
            },
            () = self.stopping.cancelled() => Err(Refusal::Stopping),
        }
    }
}

/// In JSON 5.0 is an integer, and some clients write it so.
fn with_integers(parameters: Value) -> Value {
    const MOST: f64 = 9_007_199_254_740_991.0;
    let integer = |value: Value| match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() <= MOST => Value::from(number as i64),
        _ => value,
    };
    match parameters {
        Value::Object(all) => all.into_iter().map(|(name, value)| (name, integer(value))).collect(),
        other => other,
    }
}

/// Whether the answer follows from traces alone. Such a question has a parameter that names a trace.
fn depends_on_traces(question: &Question) -> bool {
    !question.acts && question.input().pointer("/properties/trace").is_some()
}

/// Tells the question's thread that nobody waits any more, however the waiting ends.
#[derive(Default)]
struct Withdrawn(Arc<AtomicBool>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    running: Arc<AtomicUsize>,
}

impl Turn {
    fn new(permit: OwnedSemaphorePermit, running: Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, Ordering::Relaxed);
        Self { _permit: permit, running }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in the line, given up however the wait ends.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let one_more = |count| (count < most).then_some(count + 1);
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(waiting))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
