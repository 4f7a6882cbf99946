//! The program calls the driver in a way that costs time, or the driver is slow itself.

use super::stage::alone;
use super::{Need, Scenario};

pub(super) const SLOW_IOCTL: Scenario = Scenario {
    name: "slow-ioctl",
    summary: "a driver call spends milliseconds in an ioctl in every step",
    cause: Some("driver-call"),
    needs: &[Need::Extents],
    stage: alone,
};

pub(super) const SYNC_PER_OP: Scenario = Scenario {
    name: "sync-per-op",
    summary: "the job waits for the GPU after every single launch",
    cause: Some("sync-storm"),
    needs: &[],
    stage: alone,
};

pub(super) const TINY_KERNELS: Scenario = Scenario {
    name: "tiny-kernels",
    summary: "the job launches kernels that are shorter than their launch",
    cause: Some("launch-bound"),
    needs: &[],
    stage: alone,
};

pub(super) const PAGEABLE_COPY: Scenario = Scenario {
    name: "pageable-copy",
    summary: "asynchronous copies block since they come from pageable memory",
    cause: Some("pageable-copy"),
    needs: &[],
    stage: alone,
};

pub(super) const MODULE_PER_STEP: Scenario = Scenario {
    name: "module-per-step",
    summary: "the job loads a module in every step",
    cause: Some("lazy-load"),
    needs: &[],
    stage: alone,
};

pub(super) const CAPTURE_PER_STEP: Scenario = Scenario {
    name: "capture-per-step",
    summary: "the job captures and instantiates its CUDA graph again in every step",
    cause: Some("graph-recapture"),
    needs: &[],
    stage: alone,
};
