//! Compiles the unwind tables of files and says what that took: `table_build FILE...`

use std::fs::File;
use std::time::Instant;

use anyhow::{Context, Result};
use gpuwhy_stacks::table::{Reason, Row, Table};

const MB: f64 = 1e6;

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let file = File::open(&path).with_context(|| format!("open {path}"))?;
        let start = Instant::now();
        match Table::of_file(&file) {
            Ok(table) => print(&path, &table, start.elapsed().as_secs_f64()),
            Err(error) => println!("{path}: {error:#}"),
        }
    }
    Ok(())
}

fn print(path: &str, table: &Table, seconds: f64) {
    let rows_mb = size_of_val::<[Row]>(&table.rows) as f64 / MB;
    println!("{path}");
    println!("  .eh_frame {:.1} MB, {} rows, {rows_mb:.1} MB", table.source_bytes as f64 / MB, table.rows.len());
    println!("  {seconds:.3} s, peak so far {:.1} MB", peak_mb());
    println!("  frame pointers trusted: {}, {} segments", table.trusts_frame_pointers, table.segments.len());
    for reason in Reason::ALL {
        match table.skipped.count(reason) {
            0 => (),
            count => println!("  skipped {reason:?}: {count}"),
        }
    }
}

/// Of the whole process, with all files before.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.split_whitespace().next()).and_then(|number| number.parse::<f64>().ok());
    kilobytes.unwrap_or_default() * 1024.0 / MB
}
