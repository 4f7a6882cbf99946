//! Rows per second into SQLite on one core, and bytes per row on disk.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Place;

pub fn run(place: &Place) -> Result<Value> {
    let millions = if place.quick { "0.5" } else { "5" };
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "-p", "gpuwhy-store", "--example", "write_rate", "--", millions])
        .arg(place.dir.path().join("write_rate.db"))
        .output()
        .context("run the store's example")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("read its result")
}
