//! Traces from which records are missing, as if the rings had been full.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rusqlite::{Connection, params};

/// Tables of records, and the loss that each of their rows would have been.
const RECORDS: &[(&str, &str, &str)] = &[
    ("calls", "start_ns", "ring_full"),
    ("stretches", "start_ns", "wait_ring_full"),
    ("kernel_work", "start_ns", "wait_ring_full"),
    ("io_requests", "start_ns", "wait_ring_full"),
];

const PRIME: i64 = 1_000_003;

/// A copy of a finished trace without this share of its records, which are counted as lost. The same seed drops the same.
pub fn without(file: &Path, share: f64, seed: u64) -> Result<PathBuf> {
    let copy = file.with_extension("dropped.db");
    std::fs::copy(file, &copy)?;
    let connection = Connection::open(&copy)?;
    let limit = (share * PRIME as f64) as i64;
    for (table, key, loss) in RECORDS {
        let before: i64 = connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?;
        // A hash of the row's number, small enough to stay an integer: which rows go does not depend on how they are
        // read.
        let sql = format!("DELETE FROM {table} WHERE ({key} / 64 % {PRIME} * 48271 + ?1) % {PRIME} < ?2");
        let deleted = connection.execute(&sql, params![(seed as i64 * 7919) % PRIME, limit])?;
        let off = (deleted as f64 - before as f64 * share).abs();
        ensure!(off <= 10.0 + before as f64 * 0.1, "{deleted} of {before} rows of {table} dropped instead of {share}");
        connection.execute(
            "INSERT INTO losses SELECT max(id), ?1, ?2 FROM sessions
             WHERE true ON CONFLICT DO UPDATE SET count = count + excluded.count",
            params![loss, deleted as i64],
        )?;
    }
    connection.execute("UPDATE sessions SET stored = (SELECT count(*) FROM calls)", [])?;
    Ok(copy)
}
