//! How a schema says that a number is a moment and not a length of time.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Stands for `u64` in schemas: `#[schemars(with = "UnixNs")]`. Such numbers have more digits than a double can hold, so
/// that readers have to treat them differently.
pub enum UnixNs {}

impl UnixNs {
    pub const FORMAT: &'static str = "unix-ns";
}

impl JsonSchema for UnixNs {
    fn schema_name() -> Cow<'static, str> {
        "UnixNs".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "format": Self::FORMAT, "minimum": 0})
    }
}
