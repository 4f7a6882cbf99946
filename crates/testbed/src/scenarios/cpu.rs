//! The dispatch threads want a CPU and do not get it.

use super::{Need, Scenario, truth::Blame};

pub(super) const HOG: Scenario = Scenario {
    name: "cpu-hog",
    summary: "another process burns the CPU on which the job's dispatch threads run",
    cause: Some("cpu-preempted"),
    needs: &[],
    stage: |stage| Ok(stage.hogs("hog", 1).blame(Blame::PeersMainThreads)),
};

pub(super) const HOG_THREADS: Scenario = Scenario {
    name: "cpu-hog-threads",
    summary: "a thread of the job itself burns the CPU on which its dispatch threads run",
    cause: Some("cpu-preempted"),
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Named)),
};

pub(super) const CROWD: Scenario = Scenario {
    name: "cpu-crowd",
    summary: "three processes share a CPU with the job's dispatch threads",
    cause: Some("cpu-preempted"),
    needs: &[],
    stage: |stage| Ok(stage.hogs("hog", 3).blame(Blame::PeersMainThreads)),
};

/// A fifth of a CPU, handed out in these portions: quota and period in microseconds.
const QUOTAS: [&str; 3] = ["20000 100000", "10000 50000", "4000 20000"];

pub(super) const QUOTA: Scenario = Scenario {
    name: "cpu-quota",
    summary: "the CPU quota of the job's control group stops its dispatch threads",
    cause: Some("cpu-throttled"),
    needs: &[Need::CpuCgroup],
    stage: |stage| {
        let quota = QUOTAS[stage.seed() as usize % QUOTAS.len()];
        stage.cgroup("cpu", quota)
    },
};
