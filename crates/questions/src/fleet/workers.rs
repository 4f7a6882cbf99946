use std::collections::BTreeMap;

use clap::Args;
use gpuwhy_fleet::Digest;
use gpuwhy_model::{UnixNs, WaitReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// What the workers of a node did in the last second: how long their steps take, how long the GPU was idle, where the time of
/// threads that feed it went, how far they are in the operations of their communicators and how long they waited for them.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Workers {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    /// The node.
    pub node: String,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WorkersOfNode {
    #[serde(flatten)]
    pub heard: Heard,
    pub workers: Vec<Worker>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Worker {
    /// By the clock of its node.
    #[schemars(with = "UnixNs")]
    pub told_ns: u64,
    pub pid: u32,
    pub comm: String,
    pub device: Option<u16>,
    /// What kind of GPU it is.
    pub gpu: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub steps: u32,
    pub step_ns: Option<u64>,
    pub gpu_idle: f64,
    pub gpu_busy: f64,
    /// Shares of the time of threads that feed the GPU.
    pub running: f64,
    pub waiting_for_cpu: f64,
    pub blocked: BTreeMap<&'static str, f64>,
    pub communicators: Vec<Part>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Part {
    pub communicator: String,
    pub rank: u32,
    pub ranks: u32,
    pub operations: u64,
    pub waited_ns: u64,
}

impl Ask for Workers {
    const NAME: &'static str = "workers";

    type Answer = WorkersOfNode;

    fn ask(&self, asked: &Asked<'_>) -> Result<WorkersOfNode, AskError> {
        let read = |cluster: &gpuwhy_fleet::Cluster, _| {
            cluster.workers(&self.node).into_iter().map(worker).collect::<Vec<_>>()
        };
        let (heard, workers) = self.which.read(asked, read)?;
        if workers.is_empty() {
            return Err(AskError::NotFound { message: format!("no node {:?} tells of workers", self.node) });
        }
        Ok(WorkersOfNode { heard, workers })
    }
}

fn worker(digest: &Digest) -> Worker {
    let gpuwhy_fleet::Worker { pid, comm, device, gpu, labels } = digest.worker.clone();
    let [running, waiting_for_cpu, blocked @ ..] = digest.thread_time;
    let blocked = WaitReason::ALL.iter().zip(blocked).filter(|(_, share)| *share > 0.0);
    let part = |part: &gpuwhy_fleet::Part| Part {
        communicator: format!("{:016x}", part.communicator),
        rank: part.rank,
        ranks: part.ranks,
        operations: part.operations,
        waited_ns: part.waited_ns,
    };
    Worker {
        told_ns: digest.at_ns,
        pid,
        comm,
        device,
        gpu,
        labels,
        steps: digest.steps,
        step_ns: digest.step_ns,
        gpu_idle: digest.gpu_idle,
        gpu_busy: digest.gpu_busy,
        running,
        waiting_for_cpu,
        blocked: blocked.map(|(reason, share)| (reason.as_str(), share)).collect(),
        communicators: digest.parts.iter().map(part).collect(),
    }
}
