//! Kept results in `docs/results`, and how their figures are written.

use anyhow::{Context, Result};
use serde_json::Value;

use super::root;

/// The results in this file, if there are any.
pub fn load(name: &str) -> Result<Option<Value>> {
    let path = root().join("docs/results").join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(|| format!("read {}", path.display()))?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("open {}", path.display())),
    }
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// What the figures were measured on, in words.
pub fn machine(facts: &Value) -> String {
    format!(
        "Linux {}, {} x {}{}",
        facts["kernel"].as_str().unwrap_or("?"),
        facts["cpus"],
        facts["cpu"].as_str().unwrap_or("?"),
        if facts["virtual_machine"] == true { ", a virtual machine" } else { "" },
    )
}
