//! The ways in which a program is watched, or not.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::super::Place;
use super::super::bpftrace::{Bpftrace, HISTOGRAM};
use super::super::gpuwhy::Gpuwhy;

/// Where budgets and rungs are compared, with one thread.
pub const BUSY_RATE: u32 = 100_000;

/// Every way, in the order in which they take turns.
pub const WAYS: &[Way] = &[
    Way { name: "untraced", tool: Tool::Nothing, ..Way::EVERYWHERE },
    Way { name: "everything", tool: Tool::Gpuwhy(&["--budget", "0"]), ..Way::EVERYWHERE },
    Way { name: "default", tool: Tool::Gpuwhy(&[]), budget: Some(0.01), ..Way::EVERYWHERE },
    budget("budget 0.5 %", 0.005, &["--budget", "0.5%"]),
    budget("budget 2 %", 0.02, &["--budget", "2%"]),
    budget("budget 5 %", 0.05, &["--budget", "5%"]),
    rung("everything", &["--rung", "everything"]),
    rung("slow-only", &["--rung", "slow-only"]),
    rung("bursts", &["--rung", "bursts"]),
    rung("counters", &["--rung", "counters"]),
    Way { name: "bpftrace", tool: Tool::Bpftrace, only_at: &[10_000, BUSY_RATE], ..Way::EVERYWHERE },
];

/// Slices for a pair where fractions of a percent count.
pub const MOST_TURNS: usize = 5;

/// Time for the governor to get to its rung.
const SETTLE: Duration = Duration::from_secs(3);
/// Time for what does not change while it runs.
const SETTLE_FIXED: Duration = Duration::from_millis(500);

pub struct Way {
    pub name: &'static str,
    pub budget: Option<f64>,
    pub rung: Option<&'static str>,
    tool: Tool,
    /// Tried at these rates with one thread; everywhere when empty.
    only_at: &'static [u32],
}

enum Tool {
    Nothing,
    /// With these options.
    Gpuwhy(&'static [&'static str]),
    Bpftrace,
}

const fn budget(name: &'static str, budget: f64, options: &'static [&'static str]) -> Way {
    Way { name, budget: Some(budget), rung: None, tool: Tool::Gpuwhy(options), only_at: &[BUSY_RATE] }
}

const fn rung(rung: &'static str, options: &'static [&'static str]) -> Way {
    Way { name: "rung", budget: None, rung: Some(rung), tool: Tool::Gpuwhy(options), only_at: &[BUSY_RATE] }
}

impl Way {
    const EVERYWHERE: Self = Self { name: "", budget: None, rung: None, tool: Tool::Nothing, only_at: &[] };

    pub fn is_for(&self, rate: u32, threads: u32) -> bool {
        self.only_at.is_empty() || (threads == 1 && self.only_at.contains(&rate))
    }

    /// How many slices make up a pair. A budget is a matter of fractions of a percent, and so is the noise beside it.
    pub fn turns(&self, is_busy: bool) -> usize {
        let is_fine = self.budget.is_some() || matches!(self.tool, Tool::Nothing);
        if is_busy && is_fine { MOST_TURNS } else { 2 }
    }

    pub fn settle(&self) -> Duration {
        if self.budget.is_some() || self.rung.is_some() { SETTLE } else { SETTLE_FIXED }
    }

    pub fn start(&self, place: &Place, binary: &Path, pid: u32, out: &Path) -> Result<Watching> {
        Ok(match self.tool {
            Tool::Nothing => Watching::Nobody,
            Tool::Gpuwhy(options) => Watching::Gpuwhy(Gpuwhy::trace(binary, &[pid], out, options)?),
            Tool::Bpftrace => {
                Watching::Bpftrace(Bpftrace::start(&place.testbed.libcuda(), "cuLaunchKernel", HISTOGRAM)?)
            }
        })
    }
}

/// Whoever watches now.
pub enum Watching {
    Nobody,
    Gpuwhy(Gpuwhy),
    Bpftrace(Bpftrace),
}

impl Watching {
    /// Ends it, and says whether it leaves a trace file.
    pub fn stop(self) -> Result<bool> {
        match self {
            Self::Nobody => Ok(false),
            Self::Gpuwhy(gpuwhy) => gpuwhy.stop().map(|()| true),
            Self::Bpftrace(bpftrace) => {
                drop(bpftrace);
                Ok(false)
            }
        }
    }
}
