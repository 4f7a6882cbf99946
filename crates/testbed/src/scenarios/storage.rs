//! The dispatch thread waits for the disk or for memory.

use super::stage::alone;
use super::{Need, Scenario, truth::Blame};

pub(super) const DIRECT_READ: Scenario = Scenario {
    name: "direct-read",
    summary: "the dispatch thread reads its input from the disk, past the page cache, in every step",
    cause: Some("io-wait"),
    needs: &[Need::DirectIo],
    stage: alone,
};

pub(super) const DISK_HOG: Scenario = Scenario {
    name: "disk-hog",
    summary: "small reads of the dispatch thread take long since another process saturates the disk",
    cause: Some("io-wait"),
    needs: &[Need::DirectIo],
    stage: |stage| Ok(stage.hogs("disk-hog", 1).blame(Blame::Peers)),
};

pub(super) const MAPPED_FILE: Scenario = Scenario {
    name: "mapped-file",
    summary: "the dispatch thread touches pages of a mapped file that are no longer in memory",
    cause: Some("page-fault"),
    needs: &[Need::DirectIo],
    stage: alone,
};

/// Bytes: far less than the job writes.
const LITTLE_MEMORY: &str = "16777216";

pub(super) const MEMORY_LIMIT: Scenario = Scenario {
    name: "memory-limit",
    summary: "the job's control group has so little memory that each write first has to take pages back",
    cause: Some("memory-reclaim"),
    needs: &[Need::MemoryCgroup, Need::DirectIo],
    stage: |stage| stage.cgroup("memory", LITTLE_MEMORY),
};
