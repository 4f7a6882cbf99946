//! Ranks that wait for each other.

use super::{Scenario, truth::Blame};

pub(super) const LATE_RANK: Scenario = Scenario {
    name: "late-rank",
    summary: "the other of two ranks computes longer before each all-reduce",
    cause: Some("straggler"),
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Named)),
};
