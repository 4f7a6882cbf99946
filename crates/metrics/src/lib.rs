//! Numbers with labels for those who scrape. No I/O, no clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`families`] | every metric there is: its name, kind, labels and what it means |
//! | [`Registry`] | their series, never more than a budget allows |
//! | [`Format`] | how they are written: Prometheus's classic text and OpenMetrics |

pub mod families;
mod format;
mod registry;

pub use families::{FAMILIES, Family, Kind};
pub use format::Format;
pub use registry::{BOUNDS_NS, MOST_SERIES, OVERFLOW, Registry, Series, Shared};
