//! Jobs that are slow although nothing is wrong with the machine.

use super::stage::alone;
use super::{Scenario, truth::Blame};

pub(super) const LONG_KERNELS: Scenario = Scenario {
    name: "long-kernels",
    summary: "the GPU has long kernels to work on, and the job waits for it",
    cause: Some("gpu-busy"),
    needs: &[],
    stage: alone,
};

pub(super) const APP_COMPUTES: Scenario = Scenario {
    name: "app-computes",
    summary: "the job computes on the CPU between its steps, when the GPU has nothing to do",
    cause: Some("host-compute"),
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Victim)),
};

pub(super) const SLEEPS_ON_PURPOSE: Scenario = Scenario {
    name: "sleeps-on-purpose",
    summary: "the job sleeps between its steps",
    cause: None,
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Nobody)),
};

pub(super) const IDLE_SERVER: Scenario = Scenario {
    name: "idle-server",
    summary: "the job serves a client that has nothing to ask most of the time",
    cause: None,
    needs: &[],
    stage: |stage| Ok(stage.client("client").blame(Blame::Nobody)),
};
