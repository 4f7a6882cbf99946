//! One file per format.

pub mod chrome;
pub mod flamegraph;
pub mod folded;
pub mod ndjson;
pub mod parquet;
pub mod perfetto;
pub mod pprof;
