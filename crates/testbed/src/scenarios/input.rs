//! The dispatch thread waits for someone else's bytes.

use super::{Need, Scenario, truth::Blame};

pub(super) const SLOW_PEER: Scenario = Scenario {
    name: "slow-peer",
    summary: "a server that the dispatch thread asks over TCP answers late",
    cause: Some("net-wait"),
    needs: &[],
    stage: |stage| stage.blame(Blame::PeersMainThreads).server("server"),
};

pub(super) const SLOW_PIPE: Scenario = Scenario {
    name: "slow-pipe",
    summary: "the process that makes the batches computes longer than the GPU takes for a step",
    cause: Some("input-starved"),
    needs: &[],
    stage: |stage| Ok(stage.producer("loader").blame(Blame::PeersMainThreads)),
};

pub(super) const SLOW_WORKER_IO: Scenario = Scenario {
    name: "slow-worker-io",
    summary: "the process that makes the batches reads the disk longer than the GPU takes for a step",
    cause: Some("input-starved"),
    needs: &[Need::DirectIo],
    stage: |stage| Ok(stage.fault("slow-pipe").producer("disk-loader").blame(Blame::PeersMainThreads)),
};

pub(super) const SLOW_QUEUE: Scenario = Scenario {
    name: "slow-queue",
    summary: "the thread that fills the queue of batches computes longer than the GPU takes for a step",
    cause: Some("input-starved"),
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Named)),
};

pub(super) const PYTHON_DATALOADER: Scenario = Scenario {
    name: "python-dataloader",
    summary: "a Python worker process makes batches more slowly than the training loop uses them",
    cause: Some("input-starved"),
    needs: &[Need::Python],
    stage: |stage| Ok(stage.python().blame(Blame::Named)),
};

pub(super) const CHILD_PER_STEP: Scenario = Scenario {
    name: "child-per-step",
    summary: "every step of a Python job starts a process and waits for its end",
    cause: Some("child-wait"),
    needs: &[Need::Python],
    stage: |stage| Ok(stage.python().blame(Blame::Named)),
};

pub(super) const SLOW_READER: Scenario = Scenario {
    name: "slow-reader",
    summary: "the process that reads what a Python job writes takes longer than a step",
    cause: Some("output-blocked"),
    needs: &[Need::Python],
    stage: |stage| Ok(stage.python().blame(Blame::Named)),
};
