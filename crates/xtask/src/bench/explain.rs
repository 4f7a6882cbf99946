//! How long `gpuwhy explain` takes on large traces, and how much memory: it has to grow no faster than the trace.

use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::{Value, json};

use super::Place;
use super::gpuwhy;
use super::large_trace::write_trace;
use super::statistics::median;

/// Rows of the traces, calls and stretches together.
const ROWS: [u64; 3] = [1_000_000, 3_000_000, 10_000_000];
const ROUNDS: usize = 5;

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let mut sizes = Vec::new();
    for rows in ROWS {
        let rows = if place.quick { rows / 10 } else { rows };
        let file = place.dir.path().join("large.db");
        write_trace(&file, rows)?;
        let explain = || gpuwhy::timed(Command::new(&binary).arg("explain").arg(&file).stdout(Stdio::null()));
        let rounds = (0..ROUNDS).map(|_| explain()).collect::<Result<Vec<_>>>()?;
        let seconds = median(rounds.iter().map(|round| round.0).collect());
        let megabytes = median(rounds.iter().map(|round| round.1).collect());
        let file_mb = std::fs::metadata(&file)?.len() as f64 / 1e6;
        sizes.push(json!({ "rows": rows, "file_mb": file_mb, "seconds": seconds, "peak_mb": megabytes }));
        std::fs::remove_file(&file)?;
    }
    Ok(json!({ "rounds": ROUNDS, "sizes": sizes }))
}
