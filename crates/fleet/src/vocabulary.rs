//! What the numbers of a digest are called, wherever they are told.

/// A number that a digest has.
#[derive(Debug)]
pub struct Quantity {
    pub name: &'static str,
    pub unit: &'static str,
    /// Attributes of its points.
    pub attributes: &'static [&'static str],
    pub help: &'static str,
    pub kind: QuantityKind,
}

/// What it is of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityKind {
    Steps,
    StepTime,
    GpuIdle,
    GpuBusy,
    ThreadTime,
    Operations,
    OperationsWait,
    Lost,
}

impl Quantity {
    /// Whether it is the number since the worker began.
    pub fn is_sum(&self) -> bool {
        matches!(self.kind, QuantityKind::Operations | QuantityKind::OperationsWait | QuantityKind::Lost)
    }
}

const fn quantity(
    kind: QuantityKind,
    name: &'static str,
    unit: &'static str,
    attributes: &'static [&'static str],
    help: &'static str,
) -> Quantity {
    Quantity { name, unit, attributes, help, kind }
}

pub const STATE: &str = "state";
pub const COMMUNICATOR: &str = "communicator";
pub const RANK: &str = "rank";
pub const RANKS: &str = "ranks";
const OF_PART: &[&str] = &[COMMUNICATOR, RANK, RANKS];

/// Every number of a digest.
pub const QUANTITIES: &[Quantity] = &[
    quantity(
        QuantityKind::Steps,
        "gpuwhy.worker.steps",
        "{step}",
        &[],
        "How often the program came round in the last second.",
    ),
    quantity(QuantityKind::StepTime, "gpuwhy.worker.step_time", "s", &[], "How long that took, on average."),
    quantity(
        QuantityKind::GpuIdle,
        "gpuwhy.worker.gpu_idle",
        "1",
        &[],
        "The share of the last second in which the GPU is known to have had no work of this worker.",
    ),
    quantity(
        QuantityKind::GpuBusy,
        "gpuwhy.worker.gpu_busy",
        "1",
        &[],
        "The share in which the worker waited for the GPU.",
    ),
    quantity(
        QuantityKind::ThreadTime,
        "gpuwhy.worker.thread_time",
        "1",
        &[STATE],
        "Shares of the time of threads that feed the GPU: running, waiting for a CPU, blocked by reason.",
    ),
    quantity(
        QuantityKind::Operations,
        "gpuwhy.worker.operations",
        "{operation}",
        OF_PART,
        "Operations of several GPUs that the worker was done with when it last waited, which is the time of the point. \
         Equal on all ranks for the same operation.",
    ),
    quantity(
        QuantityKind::OperationsWait,
        "gpuwhy.worker.operations_wait",
        "s",
        OF_PART,
        "How long the worker waited for these operations, all together.",
    ),
    quantity(
        QuantityKind::Lost,
        "gpuwhy.worker.lost",
        "{record}",
        &[],
        "Records that the tracer of this host has lost.",
    ),
];
