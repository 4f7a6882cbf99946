//! The job uses memory, the GPU's or its own, in a way that costs time or ends badly.

use super::stage::alone;
use super::{Need, Scenario, truth::Blame};

pub(super) const MALLOC_PER_STEP: Scenario = Scenario {
    name: "malloc-per-step",
    summary: "the job allocates and frees GPU memory many times in every step",
    cause: Some("alloc-churn"),
    needs: &[],
    stage: alone,
};

pub(super) const OUT_OF_MEMORY: Scenario = Scenario {
    name: "out-of-memory",
    summary: "GPU memory runs out now and then; the job frees what it kept and goes on",
    cause: Some("alloc-failed"),
    needs: &[],
    stage: alone,
};

pub(super) const LEAK: Scenario = Scenario {
    name: "leak",
    summary: "the job allocates GPU memory in every step and never frees it",
    cause: Some("memory-leak"),
    needs: &[],
    stage: alone,
};

/// Bytes: four times what the healthy worker takes, a quarter of what the faulty one wants.
const WORKERS_MEMORY: &str = "33554432";

pub(super) const OOM: Scenario = Scenario {
    name: "oom",
    summary: "a worker of the job takes more memory than its control group has and is killed",
    cause: Some("oom-kill"),
    needs: &[Need::MemoryCgroup],
    stage: |stage| stage.blame(Blame::Named).limited_cgroup("memory", WORKERS_MEMORY),
};
