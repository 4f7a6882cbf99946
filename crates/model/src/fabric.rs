//! News of the fabric between hosts.

use crate::ProcessId;
use crate::api::words;
use crate::record::record;

words! {
    /// What happened, in the order and by the words of `ibv_event_type`.
    FabricEventKind {
        CqErr = "CQ_ERR",
        QpFatal = "QP_FATAL",
        QpReqErr = "QP_REQ_ERR",
        QpAccessErr = "QP_ACCESS_ERR",
        CommEst = "COMM_EST",
        SqDrained = "SQ_DRAINED",
        PathMig = "PATH_MIG",
        PathMigErr = "PATH_MIG_ERR",
        DeviceFatal = "DEVICE_FATAL",
        PortActive = "PORT_ACTIVE",
        PortErr = "PORT_ERR",
        LidChange = "LID_CHANGE",
        PkeyChange = "PKEY_CHANGE",
        SmChange = "SM_CHANGE",
        SrqErr = "SRQ_ERR",
        SrqLimitReached = "SRQ_LIMIT_REACHED",
        QpLastWqeReached = "QP_LAST_WQE_REACHED",
        ClientReregister = "CLIENT_REREGISTER",
        GidChange = "GID_CHANGE",
        WqFatal = "WQ_FATAL",
    }
}

impl FabricEventKind {
    /// Whether a link or a device has failed. The others are about how programs use it, or are no errors.
    pub fn is_fabric_error(self) -> bool {
        matches!(self, Self::QpFatal | Self::PathMigErr | Self::DeviceFatal | Self::PortErr)
    }
}

record! {
    /// News that a process got of an RDMA device.
    #[derive(Clone, Debug, PartialEq, Eq)]
    FabricEvent in rdma_events () since 8 "One row per asynchronous event of an RDMA device, as a traced process got it (`--rdma-verbs`)."
    {
        /// When the process got it.
        at_ns in timestamp_ns: u64 [unit("ns since epoch")];
        /// Process that got it.
        pid: u32;
        /// What happened, as libibverbs calls it: `PORT_ERR`, `DEVICE_FATAL`, `PORT_ACTIVE`...
        kind in event: FabricEventKind;
        /// 1 when a link or a device has failed.
        is_fabric_error: bool;
        /// `processes.id` of who got it.
        process in process_id: ProcessId;
    }
}
