//! Asks over and over why the GPU waits, of the file that is being written, on a thread of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpuwhy_model::Explanation;
use gpuwhy_questions::questions::findings::Findings;
use gpuwhy_questions::{Ask, AskError, Asked, Control, Length, NoHost, Part, Traces};

/// What an answer is about, and how often there is one.
#[derive(Clone, Copy)]
pub struct Pace {
    pub span: Duration,
    pub every: Duration,
}

/// Answers that take long come less often, so that they take a tenth of a CPU at most.
const REST: u32 = 9;
/// Below everybody who traces, and everybody who is traced.
const NICENESS: i32 = 10;

pub struct Asking {
    cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Tells each answer to `tell`, from when on there is a file to ask.
    pub fn start(
        file: PathBuf,
        pace: Pace,
        has_begun: impl Fn() -> bool + Send + 'static,
        tell: impl FnMut(Result<Explanation, AskError>) + Send + 'static,
    ) -> Self {
        let cancelled = Arc::new(AtomicBool::new(false));
        let control = Control { cancelled: Arc::clone(&cancelled), ..Control::default() };
        let ask = move || ask_until_cancelled(&Traces::new([file]), pace, &control, has_begun, tell);
        let thread = thread::spawn(ask);
        Self { cancelled, thread: Some(thread) }
    }

    /// Tells what is found. A trace without any call yet cannot be explained.
    pub fn findings(file: PathBuf, pace: Pace, tell: impl Fn(&Explanation) + Send + 'static) -> Self {
        Self::start(file, pace, || true, move |answer| answer.iter().for_each(&tell))
    }

    /// Nobody waits for an answer any more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for Asking {
    /// Waits: the file may be deleted next, and who reads it would put parts of it back.
    fn drop(&mut self) {
        self.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask_until_cancelled(
    traces: &Traces,
    pace: Pace,
    control: &Control,
    has_begun: impl Fn() -> bool,
    mut tell: impl FnMut(Result<Explanation, AskError>),
) {
    // SAFETY: it takes numbers only; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
    let mut next = Instant::now() + pace.every;
    while !control.cancelled.load(Ordering::Relaxed) {
        if !has_begun() {
            next = Instant::now() + pace.every;
        }
        let wait = next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            thread::park_timeout(wait);
            continue;
        }
        let begun = Instant::now();
        match ask(traces, pace.span, control) {
            Err(AskError::Cancelled) => break,
            answer => tell(answer),
        }
        next = Instant::now() + pace.every.max(begun.elapsed() * REST);
    }
}

fn ask(traces: &Traces, span: Duration, control: &Control) -> Result<Explanation, AskError> {
    let part = Part { since: Some(Length(span)), ..Part::default() };
    let asked = Asked { control: control.clone(), ..Asked::new(traces, &NoHost) };
    asked.go_on()?;
    Findings { part, ..Findings::default() }.ask(&asked)
}
