//! `trace --rules`: limits that are watched while the trace is taken.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use gpuwhy_alerts::conditions::{FINDING, GPU_IDLE};
use gpuwhy_alerts::{Condition, Event, LOG, Measured, Rules, Shared};
use gpuwhy_model::Explanation;
use gpuwhy_outputs::Actions;
use gpuwhy_questions::units::count;

use crate::print;
use crate::top::{Asking, Pace};

/// What keeps GPUs waiting, right now.
const PACE: Pace = Pace { span: Duration::from_secs(5), every: Duration::from_secs(1) };
const FOUND: &[&Condition] = &[&GPU_IDLE, &FINDING];

/// Limits, and what is done when one is broken.
pub struct Alerted {
    pub shared: Shared,
    /// Until the trace is over.
    actions: Arc<Mutex<Option<Actions>>>,
    has_found: bool,
}

impl Alerted {
    pub fn read(file: &Path) -> Result<Self> {
        let name = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("read the rules in {name}"))?;
        let rules = Rules::parse(&text).map_err(|error| anyhow!("{name}: {error}"))?;
        let actions = Actions::start(&rules.actions).context("start the actions of alerts")?;
        let actions = Arc::new(Mutex::new(Some(actions)));
        let told = Arc::clone(&actions);
        let shared = Shared::new(&rules, move |event| tell(&told, &event));
        let has_found = rules.alerts.iter().any(|alert| FOUND.contains(&alert.condition));
        Ok(Self { shared, actions, has_found })
    }

    /// Where there are limits on what is found, `trace` is asked as long as the answer is kept.
    pub fn ask(&self, trace: &Path) -> Option<Asking> {
        let shared = self.shared.clone();
        self.has_found.then(|| Asking::findings(trace.to_owned(), PACE, move |found| measure(found, &shared)))
    }

    /// Says what could not be done.
    pub fn finish(self) {
        let actions = self.actions.lock().unwrap_or_else(PoisonError::into_inner).take();
        for done in actions.into_iter().flat_map(Actions::finish).filter(|done| done.lost > 0) {
            let (lost, told) = (count(done.lost), count(done.done));
            print::note(&format!("alerts: {} was told {told} times and could not be told {lost} times", done.name));
        }
        if self.shared.not_watched() > 0 {
            print::note("alerts: there was more to watch than there is room for; name processes in the rules");
        }
    }
}

fn tell(actions: &Mutex<Option<Actions>>, event: &Event) {
    if event.actions.iter().any(|name| name == LOG) {
        print::note(&format!("alert {}", event.text));
    }
    actions.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|actions| actions.tell(event));
}

fn measure(explanation: &Explanation, shared: &Shared) {
    let at_ns = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0);
    let gpus: Vec<String> = explanation.gpus.iter().map(|gpu| format!("GPU {}", gpu.device)).collect();
    let idle = explanation.gpus.iter().zip(&gpus).map(|(gpu, name)| Measured {
        condition: &GPU_IDLE,
        pid: None,
        comm: "",
        what: name,
        value: gpu.idle_share,
        severity: None,
    });
    let found = explanation.findings.iter().filter(|finding| finding.is_problem).map(|finding| Measured {
        condition: &FINDING,
        pid: Some(finding.victim.pid),
        comm: &finding.victim.comm,
        what: finding.cause.as_str(),
        value: finding.impact.share,
        severity: Some(finding.severity),
    });
    shared.take(at_ns, FOUND, &idle.chain(found).collect::<Vec<_>>());
}
