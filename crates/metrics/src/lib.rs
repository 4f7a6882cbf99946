//! Numbers with labels for those who scrape. No I/O, no clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`families`] | every metric there is: its name, kind, labels and what it means |
//! | [`Registry`] | their series, never more than a budget allows |
//! | [`Durations`] | how long calls took, with single calls as examples |
//! | [`Format`] | how they are written: Prometheus's classic text and OpenMetrics |

mod durations;
pub mod families;
mod format;
mod registry;

pub use durations::{BOUNDS_NS, BUCKETS, Bucket, Durations, Exemplar, bucket_of};
pub use families::{FAMILIES, Family, Kind};
pub use format::Format;
pub use registry::{MOST_SERIES, OVERFLOW, Registry, Series, Shared};
