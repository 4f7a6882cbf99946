//! What a worker did in one second. A worker is a process that feeds a GPU.

use std::collections::BTreeMap;

use gpuwhy_model::WaitReason;
use ring::digest::{Context, SHA256};

/// What threads that feed a GPU do with their time: `blocked` for each reason, after these two.
pub const STATES: usize = 2 + WaitReason::ALL.len();

/// A process that feeds a GPU, as others in the cluster know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker {
    pub pid: u32,
    pub comm: String,
    /// Which GPU, as its program counts them.
    pub device: Option<u16>,
    /// What kind of GPU it is: `NVIDIA H200`.
    pub gpu: Option<String>,
    /// What its surroundings call it: job, pod, rank, user.
    pub labels: BTreeMap<String, String>,
}

impl Worker {
    /// Its number for good, the same wherever and whenever it is told of: from all that is known of it, and its node.
    pub fn id(&self, node: &str) -> u64 {
        let mut context = Context::new(&SHA256);
        let device = self.device.map_or(String::new(), |device| device.to_string());
        let pid = self.pid.to_string();
        let own = [node, pid.as_str(), self.comm.as_str(), device.as_str(), self.gpu.as_deref().unwrap_or("")];
        let labels = self.labels.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
        for text in own.into_iter().chain(labels) {
            context.update(&(text.len() as u64).to_le_bytes());
            context.update(text.as_bytes());
        }
        let hash = context.finish();
        // A database's whole numbers have a sign.
        hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)) >> 1
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    /// When the second was over, by the clock of its host.
    pub at_ns: u64,
    pub worker: Worker,
    /// How often the pattern of its waits and operations came round, and how long that took on average.
    pub steps: u32,
    pub step_ns: Option<u64>,
    /// Shares of the second: from waits that returned to the next work, and while it waited. Of the rest nobody knows.
    pub gpu_idle: f64,
    pub gpu_busy: f64,
    /// Of the time of threads that feed the GPU: running, waiting for a CPU, blocked by reason.
    pub thread_time: [f64; STATES],
    /// Its communicators.
    pub parts: Vec<Part>,
    /// Records that were lost on its host, since the trace began.
    pub lost: u64,
}

/// The part that a worker has in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub communicator: u64,
    pub rank: u32,
    pub ranks: u32,
    /// Operations that it was done with when it last waited: the same number on all ranks for the same operation.
    pub operations: u64,
    /// How long it has waited for these operations, since its host knows the communicator.
    pub waited_ns: u64,
    /// When the last of these waits was over, by the clock of its host.
    pub done_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_keeps_its_number_and_shares_it_with_nobody() {
        let one = Worker { pid: 1, comm: "python".to_owned(), device: Some(0), ..Worker::default() };
        let mut others = vec![one.clone(); 5];
        (others[0].pid, others[1].device, others[2].gpu) = (2, None, Some("NVIDIA H200".to_owned()));
        others[3].comm = "pytho".to_owned();
        others[4].labels = [("n".to_owned(), "x".to_owned())].into();
        let mut ids: Vec<u64> = others.iter().map(|other| other.id("a")).chain([one.id("a"), one.id("b")]).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), one.clone().id("a")), (7, one.id("a")));
        assert_eq!(one.id("a"), 1_419_669_481_066_508_508, "files that are there hold it");
    }
}
