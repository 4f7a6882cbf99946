//! Every metric there is. To add one, write its line here and in [`FAMILIES`], and its rows in a sink.

/// What numbers of one name have in common.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows. Its name ends in `_total`.
    Counter,
    Gauge,
    /// Durations in seconds. Its name ends in `_seconds`.
    Histogram,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! families {
    ($($(#[doc = $help:literal])+ $id:ident: $kind:ident $name:literal [$($label:literal),*];)+) => {
        $(
            $(#[doc = $help])+
            pub static $id: Family = Family {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: concat!($($help),+).trim_ascii(),
            };
        )+

        /// All of them, in the order in which they are written.
        pub static FAMILIES: &[&Family] = &[$(&$id),+];
    };
}

families! {
    /// Finished calls of a function, estimated where not all were seen.
    CALLS: Counter "gpuwhy_calls_total" ["pid", "comm", "function"];
    /// Calls that returned an error, of those that were seen.
    CALL_ERRORS: Counter "gpuwhy_call_errors_total" ["pid", "comm", "function"];
    /// Bytes that calls allocated, copied or asked other ranks for, of those that were seen.
    CALL_BYTES: Counter "gpuwhy_call_bytes_total" ["pid", "comm", "function"];
    /// How long calls took, of those that were seen, in all processes.
    CALL_SECONDS: Histogram "gpuwhy_call_duration_seconds" ["function"];
    /// Time of threads that launch work on a GPU, by what they did. The parts add up to their life.
    THREAD_SECONDS: Counter "gpuwhy_dispatch_thread_seconds_total" ["pid", "comm", "state"];
    /// Operations of several GPUs that a rank asked for: collective ones, sends and receives. Of those that a graph asks for when
    /// it is launched, `op` is `GRAPH`.
    COLLECTIVES: Counter "gpuwhy_collective_operations_total" ["pid", "comm", "communicator", "rank", "op"];
    /// Bytes that a rank gave to these operations, or got where it gave more than that.
    COLLECTIVE_BYTES: Counter "gpuwhy_collective_bytes_total" ["pid", "comm", "communicator", "rank", "op"];
    /// How long a rank waited until its operations were done: for ranks that came later, and for the operations themselves.
    COLLECTIVE_WAIT: Counter "gpuwhy_collective_wait_seconds_total" ["pid", "comm", "communicator", "rank"];
    /// How late a rank came to operations after half of the ranks of its communicator had, in the last minute: at a time, on
    /// average. 0 for one that came with the others.
    COLLECTIVE_LAG: Gauge "gpuwhy_collective_lag_seconds" ["pid", "comm", "communicator", "rank"];
    /// The same in all of them together, as a share of that minute: the others waited no longer for it.
    COLLECTIVE_LAG_SHARE: Gauge "gpuwhy_collective_lag_ratio" ["pid", "comm", "communicator", "rank"];
    /// TCP segments that a process sent again.
    RETRANSMITS: Counter "gpuwhy_tcp_retransmits_total" ["pid", "comm"];
    /// The last value of what samplers measure, in its unit.
    SAMPLE: Gauge "gpuwhy_sample" ["name", "device", "unit"];
    /// Bytes that a process has of a GPU's memory, as the GPU's driver says.
    PROCESS_MEMORY: Gauge "gpuwhy_gpu_process_memory" ["device", "pid"];
    /// Bytes that a port has sent, since its driver was loaded, as are all of these.
    RDMA_XMIT_DATA: Gauge "gpuwhy_rdma_port_xmit_data" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Bytes that a port has received.
    RDMA_RCV_DATA: Gauge "gpuwhy_rdma_port_rcv_data" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Ticks in which a port had something to send and was not allowed to.
    RDMA_XMIT_WAIT: Gauge "gpuwhy_rdma_port_xmit_wait" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Packets with errors that a port has received.
    RDMA_RCV_ERRORS: Gauge "gpuwhy_rdma_port_rcv_errors" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Packets that a port could not send.
    RDMA_XMIT_DISCARDS: Gauge "gpuwhy_rdma_port_xmit_discards" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Errors of a link's signal.
    RDMA_SYMBOL: Gauge "gpuwhy_rdma_symbol_error" ["rdma_device", "rdma_port", "rdma_transport"];
    /// How often a link went down.
    RDMA_LINK_DOWNED: Gauge "gpuwhy_rdma_link_downed" ["rdma_device", "rdma_port", "rdma_transport"];
    /// How often a link was set up anew.
    RDMA_LINK_RECOVERY: Gauge "gpuwhy_rdma_link_error_recovery" ["rdma_device", "rdma_port", "rdma_transport"];
    /// How often a link had too many errors.
    RDMA_INTEGRITY: Gauge "gpuwhy_rdma_local_link_integrity_errors" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Packets that came in another order than they were sent in.
    RDMA_OUT_OF_SEQUENCE: Gauge "gpuwhy_rdma_out_of_sequence" ["rdma_device", "rdma_port", "rdma_transport"];
    /// How often the other side said that packets were missing.
    RDMA_PACKET_SEQ: Gauge "gpuwhy_rdma_packet_seq_err" ["rdma_device", "rdma_port", "rdma_transport"];
    /// How often the other side did not answer in time.
    RDMA_ACK_TIMEOUT: Gauge "gpuwhy_rdma_local_ack_timeout_err" ["rdma_device", "rdma_port", "rdma_transport"];
    /// How often the other side was not ready until nobody tried any more.
    RDMA_RNR: Gauge "gpuwhy_rdma_rnr_nak_retry_err" ["rdma_device", "rdma_port", "rdma_transport"];
    /// Events of RDMA devices as programs are told of them.
    RDMA_EVENTS: Counter "gpuwhy_rdma_async_event_total" ["rdma_event_type", "rdma_fabric_error"];
    /// The share of its last minute in which a GPU had nothing to do, as far as is known.
    GPU_IDLE: Gauge "gpuwhy_gpu_idle_ratio" ["device"];
    /// The least that this share can be.
    GPU_IDLE_LEAST: Gauge "gpuwhy_gpu_idle_ratio_min" ["device"];
    /// The most that this share can be.
    GPU_IDLE_MOST: Gauge "gpuwhy_gpu_idle_ratio_max" ["device"];
    /// What keeps a GPU waiting in the last minute: the share of its victim's time that it took.
    FINDING: Gauge "gpuwhy_finding_ratio" ["cause", "severity", "pid", "comm"];
    /// The part of its time that tracing took from the thread that lost most, in the last second.
    OVERHEAD: Gauge "gpuwhy_tracer_overhead_ratio" [];
    /// The most that it may take from any thread; 0 without a limit.
    BUDGET: Gauge "gpuwhy_tracer_budget_ratio" [];
    /// CPU time of the tracer itself as a part of one CPU, in the last second.
    TRACER_CPU: Gauge "gpuwhy_tracer_cpu_ratio" [];
    /// Probes that are in place.
    PROBES: Gauge "gpuwhy_tracer_probes" [];
    /// Functions by how closely they are watched: 1 for the rung that a function of a process is on.
    RUNG: Gauge "gpuwhy_tracer_rung" ["pid", "comm", "function", "rung"];
    /// Calls that are in the trace file.
    STORED: Counter "gpuwhy_tracer_stored_calls_total" [];
    /// Records that were lost on the way out of the kernel, by why.
    LOST: Counter "gpuwhy_tracer_lost_records_total" ["reason"];
    /// Rows that somebody missed who was too slow for them.
    LOST_ROWS: Counter "gpuwhy_tracer_lost_rows_total" ["sink"];
    /// Requests to an OpenTelemetry receiver that failed. They are tried again.
    OTLP_FAILED: Counter "gpuwhy_otlp_failed_requests_total" [];
    /// Numbers, findings and spans that no OpenTelemetry receiver took, by what they are.
    OTLP_LOST: Counter "gpuwhy_otlp_lost_total" ["signal"];
    /// Series that are kept for these metrics.
    SERIES: Gauge "gpuwhy_metrics_series" [];
    /// The most that are kept. What comes then is summed up under the label `overflow`.
    SERIES_BUDGET: Gauge "gpuwhy_metrics_series_budget" [];
    /// Additions to a series that had no room and went to the one with the label `overflow`.
    OVERFLOWED: Counter "gpuwhy_metrics_overflowed_total" [];
}
