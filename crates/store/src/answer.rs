//! What a query may take and what it gives back.

use std::time::Duration;

use rusqlite::types::{Value as Parameter, ValueRef};

/// How much a query may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub time: Duration,
    pub rows: usize,
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(10), rows: 10_000, bytes: 16 << 20 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
    /// Set when there is more than was returned.
    pub truncated: Option<Truncation>,
}

/// Which limit cut an answer short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    Rows,
    Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl Value {
    /// As JSON. A blob becomes a string of hexadecimal digits.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Integer(number) => (*number).into(),
            Self::Real(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => size_of::<Self>() + text.len(),
            Self::Blob(bytes) => size_of::<Self>() + bytes.len(),
            _ => size_of::<Self>(),
        }
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(text) => Self::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

impl From<Value> for Parameter {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Real(number) => Self::Real(number),
            Value::Text(text) => Self::Text(text),
            Value::Blob(bytes) => Self::Blob(bytes),
        }
    }
}
