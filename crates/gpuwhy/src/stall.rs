//! A real stall, made and explained on this machine. No GPU is needed: the driver is a fake one that keeps a GPU's
//! timeline, and all that goes wrong around it is real.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuwhy_agent::{Signals, Target, TraceOptions, Watch, trace};
use gpuwhy_capture::{RunningKernel, capabilities, required_features};
use gpuwhy_model::Explanation;
use gpuwhy_questions::Control;
use gpuwhy_questions::questions::demo::Demo;
use gpuwhy_questions::questions::findings::Findings;
use gpuwhy_testbed::{Scenario, Setup, Testbed};

use crate::{findings, print};

const DEFAULT: &str = "slow-worker-io";

/// A trace of the default scenario, for those who may not load BPF programs.
const RECORDED: &[u8] = include_bytes!("../data/demo.trace");

/// One stall that is made, traced and explained.
pub struct Stall<'a> {
    pub demo: &'a Demo,
    pub duration: Duration,
    /// Where the trace is kept, if it is.
    pub out: Option<&'a Path>,
    pub control: &'a Control,
}

impl Stall<'_> {
    pub fn explained(&self) -> Result<Explanation> {
        let name = self.demo.scenario.as_deref().unwrap_or(DEFAULT);
        let Some(scenario) = Scenario::find(name) else {
            bail!("there is no scenario {name:?}; see gpuwhy demo --list");
        };
        let folder = tempfile::tempdir().context("make a folder for the demo")?;
        let file = self.out.map_or_else(|| folder.path().join("demo.db"), Path::to_owned);
        let features = required_features(&RunningKernel::look());
        let problem = capabilities(&features).into_iter().filter(|one| one.required).find_map(|one| one.found.err());
        match &problem {
            None => self.make(scenario, folder.path(), &file)?,
            Some(problem) => unpack_recording(&file, &problem.what)?,
        }
        (self.control.progress)(0.9, "explaining it");
        let explanation = findings::ask(&file, &Findings::default(), self.control)?;
        if problem.is_none() {
            findings::keep(&file, &explanation);
        }
        Ok(explanation)
    }

    /// Runs the scenario under the tracer.
    fn make(&self, scenario: &Scenario, folder: &Path, file: &Path) -> Result<()> {
        let testbed = Testbed::unpack(folder)?;
        let unmet = scenario.unmet_needs(&testbed)?;
        if !unmet.is_empty() {
            bail!("{} cannot run here: {}", scenario.name, unmet.join("; "));
        }
        let healthy = self.demo.healthy;
        let setup = Setup { seed: 1, threads: 1, background: false, healthy, duration: self.duration };
        let mut running = scenario.start(&testbed, &setup)?;
        let story = if healthy { "the same program without the fault" } else { scenario.summary };
        let said = format!("{}: {story}. Tracing it for {} s.", scenario.name, self.duration.as_secs_f64());
        print::note(&said);
        (self.control.progress)(0.1, &said);
        let target = Target { pids: running.pids(), ..Target::default() };
        let options = TraceOptions { out: file.to_owned(), target, ..TraceOptions::default() };
        running.go()?;
        // It ends by itself with the last process of the scenario.
        let signals = Signals { stop: Arc::clone(&self.control.cancelled), ..Signals::default() };
        trace(&options, Box::new(Quiet), &signals)?;
        if self.control.cancelled.load(Ordering::Relaxed) {
            bail!("the demo was stopped");
        }
        running.finish().map(drop)
    }
}

/// Nobody watches.
struct Quiet;

impl Watch for Quiet {}

fn unpack_recording(file: &Path, why: &str) -> Result<()> {
    print::note(&format!("This is a recording of {DEFAULT}, made on another machine, because {why}."));
    std::fs::write(file, RECORDED).with_context(|| format!("write {}", file.display()))
}
