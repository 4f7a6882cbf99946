//! The time of a GPU: how long it worked, how long it had nothing to do, and what the host did meanwhile.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::words;
use crate::moment::UnixNs;
use crate::{Evidence, Span};

words! {
    /// A part of a program's run.
    PhaseName {
        /// Before its first work for the GPU: imports, loading.
        Load = "load",
        /// The first work, which loads code and fills caches.
        WarmUp = "warm-up",
        /// What it does from then on.
        Steady = "steady",
        /// A long time without any work for the GPU, with work before and after.
        Idle = "idle",
        /// After its last work for the GPU.
        End = "end",
    }
}

/// From when to when a phase lasted.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Phase {
    pub name: PhaseName,
    #[schemars(with = "UnixNs")]
    pub from_ns: u64,
    #[schemars(with = "UnixNs")]
    pub to_ns: u64,
    /// Steps of the thread that feeds the GPU most, where they are known.
    pub steps: Option<u64>,
    pub step_p50_ns: Option<u64>,
}

impl Phase {
    pub fn span(&self) -> Span {
        Span { from_ns: self.from_ns, to_ns: self.to_ns }
    }
}

/// Where the time of one GPU went in a phase, as far as the host can tell.
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct GpuTime {
    pub device: u32,
    /// The host it is in, in a trace of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub uuid: Option<String>,
    /// The phase that the times are of; `all` for the whole window.
    pub phase: String,
    /// Somebody waited for its work.
    pub busy_ns: u64,
    /// All that was asked of it was done, and nothing new had come.
    pub idle_ns: u64,
    /// It had been given work, and nobody waited for the end of it.
    pub unknown_ns: u64,
    /// Of the busy time, what it spent at least on waiting for other GPUs in operations of several.
    pub communicating_ns: u64,
    /// How the idle time is known.
    pub known_by: Evidence,
    /// Share of the time in which it was idle: the best estimate.
    pub idle_share: f64,
    /// The share lies between these.
    pub interval: [f64; 2],
    /// What the host did while it was idle, the most first.
    pub idle_because: Vec<IdleBecause>,
    /// Where calls and the GPU itself say what cannot both be true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
}

/// What calls tell of a GPU's idle time, and what it says itself.
#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct Contradiction {
    /// Its idle share lies between these, as far as calls tell.
    pub by_calls: [f64; 2],
    /// And between these, by its own word.
    pub by_itself: [f64; 2],
    /// By how much they differ at least.
    pub difference: f64,
    /// Why, most likely.
    pub because: String,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Deserialize, Serialize)]
pub struct IdleBecause {
    /// The finding that explains it, where one does.
    pub finding: Option<String>,
    /// What the thread did that would have had to feed the GPU.
    pub why: String,
    pub ns: u64,
    pub share_of_idle: f64,
}
