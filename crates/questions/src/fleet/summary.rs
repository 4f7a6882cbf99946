use clap::Args;
use gpuwhy_fleet::{Common, Straggler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// How a cluster is doing now: how many nodes, workers and GPUs are heard, how much of their time GPUs are idle, who holds
/// others up most and what these have in common.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Summary {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct HowItIs {
    #[serde(flatten)]
    pub heard: Heard,
    pub workers: usize,
    /// What its jobs are called.
    pub jobs: usize,
    /// Of the last second, on average: the share in which GPUs are known to have had no work.
    pub gpu_idle: f64,
    /// Workers that are late or slow now.
    pub late: usize,
    /// GPUs that are idle for these, on average.
    pub gpus_idle_for_them: f64,
    /// The worst of them.
    pub worst: Vec<Straggler>,
    /// What they have in common that the others have not.
    pub common: Option<Common>,
    /// Records that tracers lost.
    pub lost: u64,
}

const MOST: usize = 5;

impl Ask for Summary {
    const NAME: &'static str = "summary";

    type Answer = HowItIs;

    fn ask(&self, asked: &Asked<'_>) -> Result<HowItIs, AskError> {
        let (heard, answer) = self.which.read(asked, |cluster, at_ns| {
            let (mut workers, mut idle, mut jobs) = (0, 0.0, std::collections::BTreeSet::new());
            for ranked in cluster.ranks(at_ns).filter(|ranked| ranked.is_here) {
                workers += 1;
                idle += ranked.digest.gpu_idle;
                jobs.extend(ranked.digest.worker.labels.get("job"));
            }
            let mut worst = cluster.stragglers(at_ns);
            let (late, common) = (worst.len(), cluster.common_of(&worst));
            let gpus_idle_for_them = worst.iter().map(|one| one.gpus_idle).sum();
            worst.truncate(MOST);
            let gpu_idle = idle / f64::from(u32::try_from(workers).unwrap_or(u32::MAX).max(1));
            let (jobs, lost) = (jobs.len(), cluster.nodes().iter().map(|node| node.lost).sum());
            move |heard| HowItIs { heard, workers, jobs, gpu_idle, late, gpus_idle_for_them, worst, common, lost }
        })?;
        Ok(answer(heard))
    }
}
