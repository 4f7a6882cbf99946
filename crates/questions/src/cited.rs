//! Columns that name a record by its start, read as references.

use gpuwhy_model::{RecordKind, Reference};
use serde::{Deserialize, Deserializer};

pub fn call<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reference, D::Error> {
    u64::deserialize(deserializer).map(|start_ns| RecordKind::Cuda.at(start_ns))
}

pub fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reference, D::Error> {
    u64::deserialize(deserializer).map(|start_ns| RecordKind::Sched.at(start_ns))
}
