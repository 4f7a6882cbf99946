//! What is true about a scenario that has run.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The answer that a diagnosis has to give.
#[derive(Clone, Debug)]
pub struct ScenarioTruth {
    /// `None` for a healthy job.
    pub cause: Option<&'static str>,
    pub victim_pid: u32,
    /// The dispatch threads that the fault hits. In a healthy job: that it would hit.
    pub victim_tids: Vec<u32>,
    pub culprit: Option<CulpritTruth>,
    pub measured: Measured,
}

/// Who is to blame: any of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CulpritTruth {
    pub pids: Vec<u32>,
    /// Empty: any thread of the pids.
    pub tids: Vec<u32>,
}

/// What the job itself measured: sums over its victims' threads.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub elapsed: Duration,
    pub steps: u64,
    /// Time in that part of the steps where the fault is put, or its healthy counterpart.
    pub in_fault: Duration,
    pub run_queue: Duration,
    pub major_faults: u64,
    pub involuntary_switches: u64,
    /// How often the limit of its control group stopped the job.
    pub limit_hits: u64,
}

/// Who is to blame for a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blame {
    Nobody,
    /// The program itself.
    Victim,
    /// Any thread of any peer.
    Peers,
    /// The main threads of the peers.
    PeersMainThreads,
    /// The threads or processes that the victim names.
    Named,
}

impl Blame {
    pub(super) fn culprit(self, victim: u32, peers: &[u32], testimony: &Testimony) -> Option<CulpritTruth> {
        let (pids, tids) = match self {
            Self::Nobody => return None,
            Self::Victim => (vec![victim], Vec::new()),
            Self::Peers => (peers.to_vec(), Vec::new()),
            Self::PeersMainThreads => (peers.to_vec(), peers.to_vec()),
            Self::Named => testimony.named(),
        };
        Some(CulpritTruth { pids, tids })
    }
}

/// What a victim says.
#[derive(Debug, Default)]
pub(super) struct Testimony {
    threads: Vec<ThreadLine>,
    blamed: Vec<BlameLine>,
    end: Option<EndLine>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Thread(ThreadLine),
    Blame(BlameLine),
    End(EndLine),
}

#[derive(Debug, Deserialize)]
struct ThreadLine {
    tid: u32,
    is_victim: bool,
    steps: u64,
    fault_ns: u64,
    major_faults: u64,
    involuntary_switches: u64,
    run_queue_ns: u64,
}

#[derive(Debug, Deserialize)]
struct BlameLine {
    pid: u32,
    tid: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct EndLine {
    elapsed_ns: u64,
    limit_hits: u64,
}

impl Testimony {
    pub(super) fn add(&mut self, line: &str) -> Result<()> {
        match serde_json::from_str(line).with_context(|| format!("read the victim's line {line:?}"))? {
            Line::Thread(thread) => self.threads.push(thread),
            Line::Blame(blame) => self.blamed.push(blame),
            Line::End(end) => self.end = Some(end),
        }
        Ok(())
    }

    pub(super) fn into_truth(
        self,
        cause: Option<&'static str>,
        victim_pid: u32,
        culprit: Option<CulpritTruth>,
    ) -> Result<ScenarioTruth> {
        let victim_tids = self.victims().map(|thread| thread.tid).collect();
        Ok(ScenarioTruth { cause, victim_pid, victim_tids, culprit, measured: self.measured()? })
    }

    fn measured(&self) -> Result<Measured> {
        let end = self.end.as_ref().context("the victim ended before it had told the truth")?;
        let mut measured = Measured {
            elapsed: Duration::from_nanos(end.elapsed_ns),
            limit_hits: end.limit_hits,
            ..Measured::default()
        };
        for thread in self.victims() {
            measured.steps += thread.steps;
            measured.in_fault += Duration::from_nanos(thread.fault_ns);
            measured.run_queue += Duration::from_nanos(thread.run_queue_ns);
            measured.major_faults += thread.major_faults;
            measured.involuntary_switches += thread.involuntary_switches;
        }
        Ok(measured)
    }

    fn victims(&self) -> impl Iterator<Item = &ThreadLine> {
        self.threads.iter().filter(|thread| thread.is_victim)
    }

    fn named(&self) -> (Vec<u32>, Vec<u32>) {
        let pids: BTreeSet<u32> = self.blamed.iter().map(|blame| blame.pid).collect();
        (pids.into_iter().collect(), self.blamed.iter().filter_map(|blame| blame.tid).collect())
    }
}
