//! What the user wants of a trace.

use std::path::PathBuf;
use std::time::Duration;

use gpuwhy_capture::{AttachPath, Filter, Layers, Options};
use gpuwhy_metrics::Shared;
use gpuwhy_model::Label;

use crate::governor::CostOptions;
use crate::target::Target;

#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    pub out: PathBuf,
    pub target: Target,
    pub duration: Option<Duration>,
    pub max_size: Option<u64>,
    pub layers: Layers,
    /// Also what programs are told of the fabric between hosts.
    pub fabric: bool,
    pub attach_path: Option<AttachPath>,
    pub ring_bytes: Option<usize>,
    /// Calls shorter than this are counted but get no row.
    pub keep_min: Duration,
    pub cost: CostOptions,
    /// What the user calls all processes of the trace.
    pub labels: Vec<Label>,
    /// The folder where programs find the socket that they annotate through.
    pub annotations: Option<PathBuf>,
    /// What those get who scrape.
    pub metrics: Option<Shared>,
    /// What the cluster is told, second by second.
    pub digests: Option<gpuwhy_fleet::Outbox>,
    /// Limits that are watched.
    pub alerts: Option<gpuwhy_alerts::Shared>,
}

impl TraceOptions {
    pub(crate) fn for_capture(&self, pids: &[u32]) -> Options {
        let defaults = Options::default();
        Options {
            filter: Filter { pids: pids.to_vec(), only_targets: self.target.is_limited(), uid: self.target.uid },
            layers: self.layers,
            fabric: self.fabric,
            path: self.attach_path,
            ring_bytes: self.ring_bytes.unwrap_or(defaults.ring_bytes),
            keep_min_ns: self.keep_min_ns(),
        }
    }

    pub(crate) fn keep_min_ns(&self) -> u64 {
        self.keep_min.as_nanos() as u64
    }
}
