//! A diagnosis: what was lost, who is to blame, and the chain of evidence from one to the other.
//!
//! The fields' names are a contract: the same object is printed, served over HTTP and returned over MCP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Reference;
use crate::api::words;
use crate::cause::Cause;
use crate::gpu_time::{GpuTime, Phase};
use crate::moment::UnixNs;
use crate::stack::{FrameKind, PythonEnd, StackMoment, WalkEnd};

words! {
    /// How much of the victim's time it takes. The order is from harmless to grave.
    Severity {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

words! {
    /// How an edge of a chain is known. The order is from weak to strong.
    Evidence {
        /// A record that it needs was lost or never taken.
        Missing = "missing",
        /// It follows from what was observed.
        Inferred = "inferred",
        /// Seen in the kernel or at the entry and return of a call.
        Observed = "observed",
        /// The program or the kernel said so itself: a return code, an OOM kill.
        Explicit = "explicit",
    }
}

/// The answer to "why is my GPU waiting?".
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Explanation {
    pub schema: u32,
    /// The gpuwhy that found this.
    pub version: String,
    pub window: Span,
    pub coverage: Coverage,
    /// Parts of the run, in the order of time. What an older gpuwhy found has none.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Where the time of each GPU went.
    #[serde(default)]
    pub gpus: Vec<GpuTime>,
    /// Root cause first.
    pub findings: Vec<Finding>,
    pub ruled_out: Vec<RuledOut>,
    /// Where the time of each thread that feeds a GPU went.
    pub threads: Vec<Breakdown>,
    /// How late ranks came to operations of several GPUs, by communicator and rank. Nothing where no operation of all ranks of
    /// a communicator was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankLateness>,
}

impl Explanation {
    pub const SCHEMA: u32 = 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Deserialize, Serialize)]
pub struct Span {
    #[schemars(with = "UnixNs")]
    pub from_ns: u64,
    #[schemars(with = "UnixNs")]
    pub to_ns: u64,
}

impl Span {
    /// How long it is.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// How long both last at once.
    pub fn overlap_ns(&self, other: &Self) -> u64 {
        self.to_ns.min(other.to_ns).saturating_sub(self.from_ns.max(other.from_ns))
    }
}

/// What an answer is based on.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Coverage {
    /// Records of all kinds in the window.
    pub events: u64,
    pub lost: std::collections::BTreeMap<String, u64>,
    /// Functions that were not seen all the time.
    pub sampled: Vec<Sampled>,
    /// What could not be watched, in words.
    pub unattached: Vec<String>,
    /// How the walks over stacks ended, the most frequent first.
    pub stacks: Vec<WalksEnded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Deserialize, Serialize)]
pub struct WalksEnded {
    pub moment: StackMoment,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Sampled {
    pub op: String,
    pub fraction: f64,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Finding {
    pub id: String,
    pub cause: Cause,
    /// The cause in words for somebody who sees it for the first time.
    pub title: String,
    /// False for what is as it should be and only explains: a GPU that is busy.
    pub is_problem: bool,
    pub severity: Severity,
    /// How sure it is that this is the cause and the culprit: 0 to 1.
    pub confidence: f64,
    /// One plain sentence with the numbers.
    pub summary: String,
    /// From when to when it was looked at: shares are of this time. What an older gpuwhy found does not say.
    #[serde(default)]
    pub during: Option<Span>,
    pub impact: Impact,
    pub victim: Victim,
    /// Processes that it happens to in the same way. The victim is the one that loses most.
    #[serde(default = "one")]
    pub victims: u32,
    pub symptom: Option<Symptom>,
    pub culprit: Option<Culprit>,
    pub r#where: Vec<Place>,
    pub chain: Chain,
    pub fix: Vec<String>,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Impact {
    pub lost_ns: u64,
    /// Of the victim's time in the window.
    pub share: f64,
    pub calls_affected: u64,
    pub calls_total: u64,
}

#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Victim {
    /// In a trace of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub rank: Option<u32>,
    pub device: Option<u32>,
    pub cgroup: Option<String>,
    pub container: Option<String>,
    pub pod: Option<String>,
}

impl Victim {
    /// Tells processes apart: two hosts may have the same pid.
    pub fn process(&self) -> (Option<&str>, u32) {
        (self.host.as_deref(), self.pid)
    }
}

impl Culprit {
    /// Tells processes apart: two hosts may have the same pid.
    pub fn process(&self) -> (Option<&str>, u32) {
        (self.host.as_deref(), self.pid)
    }
}

#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Symptom {
    pub op: String,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub worst_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Culprit {
    /// In a trace of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub pid: u32,
    /// 0 when it is the process as a whole.
    pub tid: u32,
    pub comm: String,
    /// What it was doing, or what it is when it is not a thread: a device, a cgroup's quota.
    pub detail: String,
}

/// A place in the code.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Deserialize, Serialize)]
pub struct Place {
    pub kind: PlaceKind,
    /// The source file; the file that holds the code where that is not known.
    pub file: String,
    pub line: Option<u32>,
    pub function: Option<String>,
    pub role: Role,
}

words! {
    /// What kind of code it is.
    PlaceKind {
        Python = "python",
        Native = "native",
        Jit = "jit",
        Kernel = "kernel",
        /// Only the file is known.
        Module = "module",
    }
}

impl From<FrameKind> for PlaceKind {
    fn from(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Python => Self::Python,
            FrameKind::Native => Self::Native,
            FrameKind::Jit => Self::Jit,
            FrameKind::Kernel => Self::Kernel,
        }
    }
}

words! {
    /// Whose code it is.
    Role {
        Victim = "victim",
        Culprit = "culprit",
    }
}

/// From the stalled work to the culprit, one edge after the other. There is always one.
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
#[serde(into = "Vec<Edge>", try_from = "Vec<Edge>")]
pub struct Chain {
    first: Edge,
    rest: Vec<Edge>,
}

impl Chain {
    pub fn starting(first: Edge) -> Self {
        Self { first, rest: Vec::new() }
    }

    #[must_use]
    pub fn then(mut self, edge: Edge) -> Self {
        self.rest.push(edge);
        self
    }

    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// A chain is as strong as its weakest edge.
    pub fn weakest(&self) -> Evidence {
        self.rest.iter().fold(self.first.evidence, |weakest, edge| weakest.min(edge.evidence))
    }
}

impl TryFrom<Vec<Edge>> for Chain {
    type Error = &'static str;

    fn try_from(edges: Vec<Edge>) -> Result<Self, Self::Error> {
        let mut edges = edges.into_iter();
        let first = edges.next().ok_or("a chain of evidence has at least one edge")?;
        Ok(Self { first, rest: edges.collect() })
    }
}

impl From<Chain> for Vec<Edge> {
    fn from(chain: Chain) -> Self {
        std::iter::once(chain.first).chain(chain.rest).collect()
    }
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Edge {
    pub what: String,
    pub evidence: Evidence,
    pub ns: u64,
    /// Records it rests on: `cuda:ID`, `sched:ID`, `io:ID`, `kernel:ID`.
    pub refs: Vec<Reference>,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct RuledOut {
    pub cause: Cause,
    /// The cause in words for somebody who sees it for the first time.
    pub title: String,
    pub why: String,
    /// Share of a thread's time, where that is why: so little is nothing.
    pub share: Option<f64>,
}

/// Where the wall time of a thread that feeds a GPU went; the parts add up to it.
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Breakdown {
    /// In a trace of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub wall_ns: u64,
    pub parts: Vec<Part>,
    /// What it does over and over, where that could be found.
    pub steps: Option<Steps>,
}

/// How late one rank of a communicator came to operations of all ranks: after half of them had asked. What ranks do within 2
/// ms they do together.
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct RankLateness {
    /// The communicator: its `comm_id_hash` in hexadecimal digits, equal on all ranks.
    pub communicator: String,
    pub rank: u32,
    /// In a trace of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub pid: u32,
    pub comm: String,
    /// Operations of all ranks that were seen; those of a launched graph are one.
    pub operations: u64,
    /// To how many of them it was late.
    pub late_operations: u64,
    /// How late it was, in all of them together.
    pub late_ns: u64,
    /// How late it was at a time, on average: it is late once to operations that it asks for together.
    pub at_a_time_ns: u64,
    /// The same as `late_ns`, as a share of the time that was looked at.
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Part {
    pub name: TimePart,
    pub ns: u64,
}

words! {
    /// What a dispatch thread's time goes to.
    TimePart {
        Launching = "launching",
        WaitingForGpu = "waiting for the GPU",
        Copying = "copying",
        /// Allocating and freeing GPU memory.
        Memory = "GPU memory calls",
        /// Loading modules, capturing graphs, everything else inside the GPU's libraries.
        OtherCalls = "other GPU calls",
        WaitingForCpu = "waiting for a CPU",
        Throttled = "stopped by a CPU quota",
        Lock = "waiting for a lock",
        Io = "waiting for a disk",
        Input = "waiting for input",
        Network = "waiting for the network",
        Faults = "waiting for memory",
        Asleep = "asleep on purpose",
        /// Another thread of the process feeds the GPU meanwhile.
        Handover = "another thread's turn",
        OtherWaits = "waiting for something else",
        Application = "application code",
    }
}

/// Iterations of a dispatch thread, found from the order of its calls.
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Steps {
    pub count: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    /// The call that each step has once.
    pub marker: String,
    /// When steps began to take longer or shorter, and by what factor.
    pub change: Option<StepChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct StepChange {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub factor: f64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests end that way")]
mod tests {
    use super::*;

    fn edge(evidence: Evidence) -> Edge {
        Edge { what: String::new(), evidence, ns: 0, refs: Vec::new() }
    }

    #[test]
    fn a_chain_is_as_strong_as_its_weakest_edge() {
        let chain = Chain::starting(edge(Evidence::Explicit)).then(edge(Evidence::Inferred));
        assert_eq!(chain.weakest(), Evidence::Inferred);
        assert_eq!(chain.then(edge(Evidence::Missing)).weakest(), Evidence::Missing);
    }

    #[test]
    fn a_chain_without_an_edge_cannot_be_read() {
        assert!(Chain::try_from(Vec::new()).is_err());
        let edges = vec![edge(Evidence::Explicit), edge(Evidence::Inferred)];
        assert_eq!(Vec::from(Chain::try_from(edges.clone()).unwrap()), edges);
    }
}
