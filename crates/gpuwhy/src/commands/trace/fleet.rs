//! `trace --fleet`: what the workers of this host do is told to a fleet each second, and what holds one of them up once the fleet
//! says that others wait for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_fleet::Outbox;
use gpuwhy_model::{Explanation, Finding, Severity};
use gpuwhy_outputs::{FleetAddress, LogEntry, Mode, Push, PushError};

use super::found::entry;
use crate::print;
use crate::top::{Asking, Pace};

/// A fleet is told each second as soon as it is over, and what else there is at least so often.
const EVERY: Duration = Duration::from_secs(1);
/// While a worker is late, this much of the trace is explained.
const PACE: Pace = Pace { span: Duration::from_secs(10), every: Duration::from_secs(2) };

/// Of this finding the culprit is the one that is late.
const STRAGGLER: &str = "straggler";

/// Until this is dropped, a fleet is told.
pub struct Fleet {
    outbox: Outbox,
    asking: Option<Asking>,
    thread: Option<JoinHandle<()>>,
}

/// The workers that others wait for.
type Late = Arc<Mutex<BTreeSet<u32>>>;

impl Fleet {
    pub fn start(address: FleetAddress, outbox: Outbox, file: &Path) -> Result<Self> {
        let late = Late::default();
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
        let push = Push::new(address);
        let telling = Telling { push, outbox: outbox.clone(), late, findings, mode: None, is_away: false };
        let run = move || telling.run();
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(run).context("start to tell the fleet")?;
        Ok(Self { outbox, asking: Some(asking), thread: Some(thread) })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.outbox.end();
        drop(self.asking.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(late: &Late) -> MutexGuard<'_, BTreeSet<u32>> {
    late.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells what holds late workers up.
fn tell(explanation: &Explanation, late: &BTreeSet<u32>, found: &Sender<LogEntry>) {
    let grave = explanation.findings.iter().filter(|finding| finding.severity > Severity::Low);
    for finding in grave.filter_map(|finding| about_late(finding, late)) {
        // Nobody listens any more at the end.
        let _ = found.send(entry(&finding, explanation.window.to_ns));
    }
}

/// A finding as one about a late worker: what it suffers from itself, or why another rank of this host waits for it.
fn about_late(finding: &Finding, late: &BTreeSet<u32>) -> Option<Finding> {
    if finding.cause.as_str() != STRAGGLER {
        return late.contains(&finding.victim.pid).then(|| finding.clone());
    }
    let culprit = finding.culprit.clone().filter(|culprit| late.contains(&culprit.pid))?;
    let mut about = finding.clone();
    (about.victim.pid, about.victim.comm) = (culprit.pid, culprit.comm);
    Some(about)
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
    fn run(mut self) {
        while self.outbox.wait(EVERY) {
            self.second();
        }
        // Nobody waits at the end for a fleet that is away.
        if !self.is_away {
            self.second();
        }
        let (lost, waiting) = (self.outbox.lost() + self.push.lost(), self.push.waiting());
        if lost + waiting > 0 {
            print::note(&format!(
                "of what the fleet was to be told, {} seconds of workers and findings are lost",
                lost + waiting
            ));
        }
    }

    fn second(&mut self) {
        self.push.tell_findings(self.findings.try_iter().collect());
        let told = self.push.tell(&self.outbox.take());
        let (mode, late) = self.push.late();
        if self.mode.replace(mode).is_some_and(|before| before != mode) {
            tracing::info!("who is late is known by: {}", mode.as_str());
        }
        self.note(told);
        *lock(&self.late) = late.iter().map(|standing| standing.pid).collect();
    }

    /// A fleet that goes away or says no is told once, and so is its return.
    fn note(&mut self, told: Result<(), PushError>) {
        match told {
            Err(error) if !std::mem::replace(&mut self.is_away, true) => {
                print::note(&format!("the fleet is not told: {error}"));
            }
            Ok(()) if self.mode == Some(Mode::Fleet) && std::mem::take(&mut self.is_away) => {
                print::note("the fleet is told again");
            }
            _ => {}
        }
    }
}
