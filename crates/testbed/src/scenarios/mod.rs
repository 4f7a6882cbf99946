//! Jobs with one real fault each, whose cause and culprit are known, and their healthy twins. No GPU is needed: the
//! fake driver keeps a GPU's timeline, and all that goes wrong around it is real.
//!
//! A scenario is one row of [`SCENARIOS`]. Its program is `scenario` (or `scenario.py`) with the fault of a name, next
//! to peers, which are processes of their own. Comments in their sources say which line is to blame.

mod calls;
mod cpu;
mod input;
mod lines;
mod locks;
mod memory;
mod need;
mod plain;
mod ranks;
mod running;
mod stage;
mod storage;
mod truth;

use crate::Testbed;
use anyhow::{Context, Result, ensure};
use stage::Stage;
use std::time::Duration;

pub use lines::SourceLine;
pub use need::Need;
pub use running::RunningScenario;
pub use truth::{CulpritTruth, Measured, ScenarioTruth};

pub const SCENARIOS: &[Scenario] = &[
    cpu::HOG,
    cpu::HOG_THREADS,
    cpu::CROWD,
    cpu::QUOTA,
    locks::MUTEX_HOLDER,
    locks::MUTEX_SLEEPER,
    locks::MUTEX_IO_HOLDER,
    locks::GIL_HOLDER,
    storage::DIRECT_READ,
    storage::DISK_HOG,
    storage::MAPPED_FILE,
    storage::MEMORY_LIMIT,
    input::SLOW_PEER,
    input::SLOW_PIPE,
    input::SLOW_WORKER_IO,
    input::SLOW_QUEUE,
    input::PYTHON_DATALOADER,
    input::CHILD_PER_STEP,
    input::SLOW_READER,
    calls::SLOW_IOCTL,
    calls::SYNC_PER_OP,
    calls::TINY_KERNELS,
    calls::PAGEABLE_COPY,
    calls::MODULE_PER_STEP,
    calls::CAPTURE_PER_STEP,
    memory::MALLOC_PER_STEP,
    memory::OUT_OF_MEMORY,
    memory::LEAK,
    memory::OOM,
    ranks::LATE_RANK,
    plain::LONG_KERNELS,
    plain::APP_COMPUTES,
    plain::SLEEPS_ON_PURPOSE,
    plain::IDLE_SERVER,
];

/// A job with a fault.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// What goes wrong, in one sentence.
    pub summary: &'static str,
    /// `None`: nothing above low severity may be found.
    pub cause: Option<&'static str>,
    pub needs: &'static [Need],
    /// Who takes part besides the victim.
    stage: for<'a> fn(Stage<'a>) -> Result<Stage<'a>>,
}

impl Scenario {
    pub fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Starts all processes. They do nothing before `go`.
    pub fn start(&self, testbed: &Testbed, setup: &Setup) -> Result<RunningScenario> {
        setup.check()?;
        let stage = Stage::new(testbed, setup, self.name);
        (self.stage)(stage)
            .and_then(|stage| stage.start(self.cause))
            .with_context(|| format!("start the scenario {}", self.name))
    }

    /// Why it cannot run on this machine, one sentence for each of its needs that is not met.
    pub fn unmet_needs(&self, testbed: &Testbed) -> Result<Vec<String>> {
        let reasons = self.needs.iter().map(|need| need.unmet(testbed)).collect::<Result<Vec<_>>>()?;
        Ok(reasons.into_iter().flatten().collect())
    }
}

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides the length of a step, the launches in it, the strength of the fault and the like.
    pub seed: u64,
    /// Dispatch threads: 1 to 3.
    pub threads: u32,
    /// With some harmless load on another CPU.
    pub background: bool,
    /// The twin: the same program with the fault switched off.
    pub healthy: bool,
    /// From `go` to the end of the last step, about.
    pub duration: Duration,
}

impl Setup {
    pub const MAX_THREADS: u32 = 3;

    fn check(&self) -> Result<()> {
        let range = 1..=Self::MAX_THREADS;
        ensure!(range.contains(&self.threads), "{} dispatch threads: it must be 1 to 3", self.threads);
        ensure!(self.duration >= Duration::from_millis(1), "a scenario must last at least a millisecond");
        Ok(())
    }
}
