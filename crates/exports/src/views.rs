//! Rows of the views, for formats that consist of them.

use gpuwhy_questions::Reading;
use gpuwhy_store::{Cells, QueryError};

/// The views that are exported, with the column that says when, and the one that says which process.
pub const VIEWS: &[View] = &[
    View { name: "cuda_events", time: "timestamp_ns", process: Some("pid") },
    View { name: "call_stats", time: "bucket_ns", process: Some("pid") },
    View { name: "nccl_events", time: "timestamp_ns", process: Some("pid") },
    View { name: "nccl_replays", time: "timestamp_ns", process: Some("pid") },
    View { name: "sched_events", time: "timestamp_ns", process: Some("pid") },
    View { name: "thread_times", time: "bucket_ns", process: Some("pid") },
    View { name: "kernel_events", time: "timestamp_ns", process: Some("pid") },
    View { name: "io_events", time: "timestamp_ns", process: Some("pid") },
    View { name: "tcp_events", time: "timestamp_ns", process: None },
    View { name: "annotations", time: "timestamp_ns", process: None },
    View { name: "sample_values", time: "at_ns", process: None },
];

pub struct View {
    pub name: &'static str,
    pub(crate) time: &'static str,
    process: Option<&'static str>,
}

impl View {
    pub fn find(name: &str) -> Option<&'static Self> {
        VIEWS.iter().find(|view| view.name == name)
    }

    /// Its rows of the part that is read.
    pub fn each<E: From<QueryError>>(
        &self,
        reading: &Reading,
        look: impl FnMut(&Cells<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { name, time, process } = self;
        let [from, until, one, same] = reading.bounds();
        let (only, values) = match process {
            Some(pid) => (format!("AND (? IS NULL OR {pid} = ?)"), vec![from, until, one, same]),
            None => (String::new(), vec![from, until]),
        };
        let sql = format!("SELECT * FROM {name} WHERE {time} >= ? AND {time} < ? {only}");
        reading.trace.each(&sql, &values, look)
    }
}
