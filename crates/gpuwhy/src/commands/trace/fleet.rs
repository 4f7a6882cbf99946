//! `trace --fleet`: what the workers of this host do is told to a fleet each second, and what holds one of them up once the fleet
//! says that others wait for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_fleet::Outbox;
use gpuwhy_model::{Explanation, Finding, Severity};
use gpuwhy_outputs::{FleetAddress, LogEntry, Mode, Push, PushError};

use super::found::entry;
use crate::print;
use crate::top::{Asking, Pace};

/// How often a fleet is told.
const EVERY: Duration = Duration::from_secs(1);
/// While a worker is late, this much of the trace is explained.
const PACE: Pace = Pace { span: Duration::from_secs(10), every: Duration::from_secs(2) };

/// Until this is dropped, a fleet is told.
pub struct Fleet {
    is_over: Arc<AtomicBool>,
    asking: Option<Asking>,
    thread: Option<JoinHandle<()>>,
}

/// The workers that others wait for.
type Late = Arc<Mutex<BTreeSet<u32>>>;

impl Fleet {
    pub fn start(address: FleetAddress, outbox: Outbox, file: &Path) -> Result<Self> {
        let (late, is_over): (Late, Arc<AtomicBool>) = Default::default();
        let (found, findings) = channel();
        let of_whom = Arc::clone(&late);
        let is_any_late = Arc::clone(&late);
        let has_begun = move || !lock(&is_any_late).is_empty();
        let tell = move |answer: Result<Explanation, _>| {
            if let Ok(explanation) = answer {
                tell(&explanation, &lock(&of_whom), &found);
            }
        };
        let asking = Asking::start(file.to_owned(), PACE, has_begun, tell);
        let telling = Telling { push: Push::new(address), outbox, late, findings, mode: None, is_away: false };
        let over = Arc::clone(&is_over);
        let run = move || telling.run(&over);
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(run).context("start to tell the fleet")?;
        Ok(Self { is_over, asking: Some(asking), thread: Some(thread) })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.asking.take());
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn lock(late: &Late) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
    late.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What holds late workers up: what they suffer from themselves, and what another rank of this host says of them.
fn tell(explanation: &Explanation, late: &BTreeSet<u32>, found: &Sender<LogEntry>) {
    let is_about = |finding: &&Finding| {
        let blames = finding.culprit.as_ref().is_some_and(|culprit| late.contains(&culprit.pid));
        finding.severity > Severity::Low
            && (late.contains(&finding.victim.pid) || (finding.cause.as_str() == "straggler" && blames))
    };
    for finding in explanation.findings.iter().filter(is_about) {
        let mut about = finding.clone();
        if let Some(culprit) =
            about.culprit.as_ref().filter(|culprit| !late.contains(&finding.victim.pid) && late.contains(&culprit.pid))
        {
            (about.victim.pid, about.victim.comm) = (culprit.pid, culprit.comm.clone());
        }
        // Nobody listens any more at the end.
        let _ = found.send(entry(&about, explanation.window.to_ns));
    }
}

struct Telling {
    push: Push,
    outbox: Outbox,
    late: Late,
    findings: Receiver<LogEntry>,
    mode: Option<Mode>,
    is_away: bool,
}

impl Telling {
    fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            thread::park_timeout(EVERY);
            self.second();
        }
    }

    fn second(&mut self) {
        let told = self.push.tell(&self.outbox.take());
        self.note(told);
        let (mode, late) = self.push.late();
        if self.mode.replace(mode).is_some_and(|before| before != mode) {
            tracing::info!("who is late is known by: {}", mode.as_str());
        }
        *lock(&self.late) = late.iter().map(|standing| standing.pid).collect();
        let findings: Vec<LogEntry> = self.findings.try_iter().collect();
        let told = self.push.tell_findings(findings);
        self.note(told);
    }

    /// A fleet that goes away or says no is told once, and so is its return.
    fn note(&mut self, told: Result<(), PushError>) {
        match told {
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    print::note(&format!("the fleet is not told: {error}"));
                }
                return;
            }
        }
        let (mode, _) = self.push.late();
        if mode == Mode::Fleet && std::mem::take(&mut self.is_away) {
            print::note("the fleet is told again");
        }
    }
}
