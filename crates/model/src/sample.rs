//! Something that is measured again and again: a GPU's temperature, a link's errors, memory pressure.

/// One value of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub at_ns: u64,
    /// What was measured, in words with dots: `gpu.utilization`.
    pub name: String,
    /// Unit of the value; empty for a plain number.
    pub unit: String,
    /// What it was measured on, where there is more than one: a GPU, a link, a cgroup.
    pub device: Option<String>,
    pub value: f64,
}

impl Sample {
    /// How long the tracer has just watched functions that are called too often to be watched all the time.
    pub const WATCHED: &str = "tracer.watched";
    /// The share of a moment in which a GPU worked, as it says itself. The device is its number.
    pub const GPU_UTILIZATION: &str = "gpu.utilization";
    /// Errors of RDMA ports, counted since their drivers were loaded. The device is the port.
    pub const FABRIC_ERRORS: &[&str] = &[
        "rdma.port_rcv_errors",
        "rdma.port_xmit_discards",
        "rdma.symbol_error",
        "rdma.link_downed",
        "rdma.link_error_recovery",
        "rdma.local_link_integrity_errors",
        "rdma.out_of_sequence",
        "rdma.packet_seq_err",
        "rdma.local_ack_timeout_err",
        "rdma.rnr_nak_retry_err",
    ];
    /// Why a GPU runs slower than it could, as bits: those of NVML.
    pub const GPU_THROTTLE: &str = "gpu.throttle.reasons";
    /// The speed of its multiprocessors, and the highest that they have.
    pub const GPU_CLOCK: &str = "gpu.clock.sm";
    pub const GPU_MOST_CLOCK: &str = "gpu.clock.sm.max";
    /// Errors of its memory that could not be corrected, since its driver was loaded.
    pub const GPU_MEMORY_ERRORS: &str = "gpu.ecc.uncorrected";
    /// 1 from when a GPU does not answer any more as if it were gone from its bus, and 0 before; one that was never there in this
    /// trace has another number.
    pub const GPU_LOST: &str = "gpu.lost";
    pub const GPU_NEVER_THERE: f64 = 2.0;
    /// Lanes of the link between a GPU and the host, and the most that both can do.
    pub const GPU_LINK_WIDTH: &str = "gpu.pcie.width";
    pub const GPU_MOST_LINK_WIDTH: &str = "gpu.pcie.width.max";
    /// Generation of that link at moments up to which the GPU worked: idle, it is lower on purpose. And the highest.
    pub const GPU_WORKING_LINK: &str = "gpu.pcie.generation.working";
    pub const GPU_MOST_LINK: &str = "gpu.pcie.generation.max";
    /// 1 as long as a link between GPUs is down that was up before. The device is the GPU and the link: `0/3`.
    pub const GPU_NVLINK_DOWN: &str = "gpu.nvlink.down";
    /// Errors that such a link has counted since it was last asked, where there are any.
    pub const GPU_NVLINK_ERRORS: &[&str] =
        &["gpu.nvlink.errors.replay", "gpu.nvlink.errors.recovery", "gpu.nvlink.errors.crc"];
    /// Whether parts of a GPU's memory wait for a reset to be replaced or taken out of use, and whether one could not be.
    pub const GPU_ROWS_PENDING: &str = "gpu.memory.rows.pending";
    pub const GPU_PAGES_PENDING: &str = "gpu.memory.pages.pending";
    pub const GPU_ROWS_FAILED: &str = "gpu.memory.rows.failed";
    /// What its driver reports as an Xid, by its number, and the process that it names. The device is its number, or its
    /// address where that is not known.
    pub const GPU_XID: &str = "gpu.xid";
    pub const GPU_XID_PID: &str = "gpu.xid.pid";
    /// Processes that have something on a GPU.
    pub const GPU_PROCESSES: &str = "gpu.processes";
    /// The same of a slice of a divided GPU. The device is its UUID.
    pub const GPU_SLICE_PROCESSES: &str = "gpu.slice.processes";
    /// What one of them has of its memory. The device is the number of the GPU, or the UUID of the slice, and the number of the
    /// process: `0/4711`.
    pub const GPU_PROCESS_MEMORY: &str = "gpu.process.memory";
}
