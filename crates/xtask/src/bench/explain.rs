//! How long `gpuwhy explain` takes on large traces, and how much memory: it has to grow no faster than the trace.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
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
        let rounds = (0..ROUNDS).map(|_| time(&binary, &file)).collect::<Result<Vec<_>>>()?;
        let seconds = median(rounds.iter().map(|round| round.0).collect());
        let megabytes = median(rounds.iter().map(|round| round.1).collect());
        let file_mb = std::fs::metadata(&file)?.len() as f64 / 1e6;
        sizes.push(json!({ "rows": rows, "file_mb": file_mb, "seconds": seconds, "peak_mb": megabytes }));
        std::fs::remove_file(&file)?;
    }
    Ok(json!({ "rounds": ROUNDS, "sizes": sizes }))
}

/// Seconds until the page is printed, and the most memory it took.
fn time(binary: &Path, file: &Path) -> Result<(f64, f64)> {
    let start = Instant::now();
    let child = Command::new(binary).arg("explain").arg(file).stdout(Stdio::null()).spawn().context("start gpuwhy")?;
    let mut status = 0;
    // SAFETY: rusage is a struct of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and has not been waited for; both places outlive the call.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    ensure!(waited == child.id() as i32, "wait for gpuwhy");
    let status = ExitStatus::from_raw(status);
    ensure!(status.success(), "gpuwhy explain: {status}");
    Ok((start.elapsed().as_secs_f64(), usage.ru_maxrss as f64 * 1024.0 / 1e6))
}
