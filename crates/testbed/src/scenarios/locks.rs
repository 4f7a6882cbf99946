//! The dispatch thread waits for a lock that another thread of the process holds for too long.

use super::{Need, Scenario, truth::Blame};

pub(super) const MUTEX_HOLDER: Scenario = Scenario {
    name: "mutex-holder",
    summary: "another thread computes while it holds a mutex that the dispatch thread wants",
    cause: Some("lock-wait"),
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Named)),
};

pub(super) const MUTEX_SLEEPER: Scenario = Scenario {
    name: "mutex-sleeper",
    summary: "another thread sleeps while it holds a mutex that the dispatch thread wants",
    cause: Some("lock-wait"),
    needs: &[],
    stage: |stage| Ok(stage.blame(Blame::Named)),
};

pub(super) const MUTEX_IO_HOLDER: Scenario = Scenario {
    name: "mutex-io-holder",
    summary: "another thread reads from the disk while it holds a mutex that the dispatch thread wants",
    cause: Some("lock-wait"),
    needs: &[Need::DirectIo],
    stage: |stage| Ok(stage.blame(Blame::Named)),
};

pub(super) const GIL_HOLDER: Scenario = Scenario {
    name: "gil-holder",
    summary: "another Python thread computes and keeps the interpreter lock from the one that launches",
    cause: Some("gil-wait"),
    needs: &[Need::Python],
    stage: |stage| Ok(stage.python().blame(Blame::Named)),
};
