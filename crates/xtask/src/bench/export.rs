//! How long `gpuwhy export` takes on large traces, and how much memory: rows are streamed, so a larger trace takes no more of it.

use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::Place;
use super::gpuwhy;
use super::large_trace::write_trace;

/// Rows of the traces, calls and stretches together.
const ROWS: [u64; 2] = [1_000_000, 10_000_000];
const FORMATS: &[&str] = &["perfetto", "chrome", "ndjson", "parquet"];

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let (file, out) = (place.dir.path().join("large.db"), place.dir.path().join("exported"));
    let mut exports = Vec::new();
    for rows in ROWS {
        let rows = if place.quick { rows / 10 } else { rows };
        write_trace(&file, rows)?;
        for format in FORMATS {
            let mut command = Command::new(&binary);
            command.arg("export").arg(&file).args(["--format", format, "--out"]).arg(&out);
            let (seconds, peak_mb) = gpuwhy::timed(&mut command)?;
            let out_mb = std::fs::metadata(&out)?.len() as f64 / 1e6;
            std::fs::remove_file(&out)?;
            exports.push(json!({
                "format": format, "rows": rows, "seconds": seconds, "peak_mb": peak_mb, "out_mb": out_mb,
            }));
        }
        std::fs::remove_file(&file)?;
    }
    Ok(json!({ "exports": exports }))
}
