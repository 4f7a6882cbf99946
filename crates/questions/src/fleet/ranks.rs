use clap::Args;
use gpuwhy_fleet::{Ranked, Why};
use gpuwhy_model::UnixNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// The ranks of a job or a communicator, in their order: where each runs, how long its steps take, for how much of the time
/// the others wait for it, since when, and what its own node found.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Ranks {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    /// Only of this job.
    #[arg(long)]
    #[serde(default)]
    pub job: Option<String>,
    /// Only of this communicator.
    #[arg(long, value_name = "ID")]
    #[serde(default)]
    pub communicator: Option<String>,
    /// So many at most.
    #[arg(long, default_value_t = MOST)]
    #[serde(default = "most")]
    pub limit: u64,
}

const MOST: u64 = 1000;

fn most() -> u64 {
    MOST
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RanksOfJob {
    #[serde(flatten)]
    pub heard: Heard,
    pub ranks: Vec<Rank>,
    /// How many there are in all.
    pub of: usize,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Rank {
    pub job: Option<String>,
    pub communicator: Option<String>,
    pub rank: Option<u32>,
    pub of: Option<u32>,
    pub node: String,
    pub pid: u32,
    pub comm: String,
    pub device: Option<u16>,
    /// Whether it was heard a short while ago.
    pub is_here: bool,
    pub step_ns: Option<u64>,
    pub gpu_idle: f64,
    /// The share of the time for which others wait for it, as it was last compared.
    pub share: f64,
    /// From which share on it is late.
    pub threshold: f64,
    /// Since when it is late or slow.
    #[schemars(with = "Option<UnixNs>")]
    pub since_ns: Option<u64>,
    pub why: Option<Why>,
}

impl Ask for Ranks {
    const NAME: &'static str = "ranks";

    type Answer = RanksOfJob;

    fn ask(&self, asked: &Asked<'_>) -> Result<RanksOfJob, AskError> {
        let (heard, mut ranks) = self.which.read(asked, |cluster, at_ns| {
            let of_job = |ranked: &Ranked<'_>| {
                self.job.as_ref().is_none_or(|job| ranked.digest.worker.labels.get("job") == Some(job))
            };
            cluster.ranks(at_ns).filter(of_job).flat_map(ranks_of).collect::<Vec<_>>()
        })?;
        if let Some(communicator) = &self.communicator {
            ranks.retain(|rank| rank.communicator.as_ref() == Some(communicator));
        }
        if ranks.is_empty() && (self.job.is_some() || self.communicator.is_some()) {
            return Err(AskError::NotFound { message: "no worker of this job or communicator is heard".to_owned() });
        }
        ranks.sort_by(|one, other| place(one).cmp(&place(other)));
        let of = ranks.len();
        ranks.truncate(usize::try_from(self.limit.clamp(1, 10 * MOST)).unwrap_or(usize::MAX));
        Ok(RanksOfJob { heard, ranks, of })
    }
}

fn place(rank: &Rank) -> (Option<&str>, Option<&str>, Option<u32>, &str, u32) {
    (rank.job.as_deref(), rank.communicator.as_deref(), rank.rank, &rank.node, rank.pid)
}

/// A worker has a rank in each of its communicators, and one line where it has none.
fn ranks_of(ranked: Ranked<'_>) -> Vec<Rank> {
    let worker = &ranked.digest.worker;
    let alone = Rank {
        job: worker.labels.get("job").cloned(),
        communicator: None,
        rank: None,
        of: None,
        node: ranked.node.to_owned(),
        pid: worker.pid,
        comm: worker.comm.clone(),
        device: worker.device,
        is_here: ranked.is_here,
        step_ns: ranked.digest.step_ns,
        gpu_idle: ranked.digest.gpu_idle,
        share: 0.0,
        threshold: 0.0,
        since_ns: ranked.pace.since_ns,
        why: ranked.why,
    };
    if ranked.seats.is_empty() {
        return vec![alone];
    }
    let of_seat = |(part, standing): &(gpuwhy_fleet::Part, gpuwhy_fleet::Standing)| Rank {
        communicator: Some(format!("{:016x}", part.communicator)),
        rank: Some(part.rank),
        of: Some(part.ranks),
        share: standing.share,
        threshold: standing.threshold,
        since_ns: standing.since_ns,
        ..alone.clone()
    };
    ranked.seats.iter().map(of_seat).collect()
}
