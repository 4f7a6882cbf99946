//! Why the GPU waits in a trace: asked as every other door asks it, and kept in the trace once it has ended.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use gpuwhy_model::Explanation;
use gpuwhy_questions::questions::findings::Findings;
use gpuwhy_questions::{Ask, AskError, Asked, Control, NoHost, Traces};
use gpuwhy_store::{KeptExplanation, keep_explanation};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::print;
use crate::top::register;

/// A trace that takes longer to explain is left without its findings.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Asks a trace.
pub fn ask(file: &Path, question: &Findings, control: &Control) -> Result<Explanation, AskError> {
    let traces = Traces::new([file.to_owned()]);
    question.ask(&Asked { control: control.clone(), ..Asked::new(&traces, &NoHost) })
}

/// Finds out why the GPU waited in a trace that has just ended, and keeps that in it. The trace is there, with its
/// findings or without: what goes wrong is told, and that is all.
pub fn find_and_keep(file: &Path, max_size: Option<u64>) {
    tell(find_in_time(file).and_then(|explanation| write(file, &explanation, max_size)));
}

/// Keeps what was found in a trace.
pub fn keep(file: &Path, explanation: &Explanation) {
    tell(write(file, explanation, None));
}

fn tell(kept: Result<()>) {
    if let Err(error) = kept {
        print::note(&format!("the findings are not kept in the trace: {error:#}"));
    }
}

fn find_in_time(file: &Path) -> Result<Explanation> {
    let control = Control::default();
    for signal in [SIGINT, SIGTERM] {
        register(signal, &control.cancelled)?;
    }
    let _deadline = withdraw_after(MOST_TIME, &control);
    Ok(ask(file, &Findings::default(), &control)?)
}

fn write(file: &Path, explanation: &Explanation, max_size: Option<u64>) -> Result<()> {
    let at_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let kept = KeptExplanation {
        at_ns: u64::try_from(at_ns).unwrap_or(u64::MAX),
        version: explanation.version.clone(),
        json: serde_json::to_string(explanation)?,
    };
    if kept.json.len() > KeptExplanation::MOST_BYTES {
        bail!("there are too many of them");
    }
    Ok(keep_explanation(file, &kept, max_size)?)
}

/// Withdraws the question when the time is up, unless what is returned is dropped before.
fn withdraw_after(time: Duration, control: &Control) -> SyncSender<()> {
    let (answered, wait) = sync_channel(1);
    let cancelled = Arc::clone(&control.cancelled);
    thread::spawn(move || {
        if wait.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
            cancelled.store(true, Ordering::Relaxed);
        }
    });
    answered
}
