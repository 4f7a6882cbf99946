//! Traces from which records are missing, as if the rings had been full.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rusqlite::{Connection, params};

/// Tables of records, and the loss that each of their rows would have been.
const RECORDS: &[(&str, &str, &str)] = &[
    ("calls", "start_ns", "ring_full"),
    ("stretches", "start_ns", "wait_ring_full"),
    ("kernel_work", "start_ns", "wait_ring_full"),
    ("io_requests", "start_ns", "wait_ring_full"),
];

/// A copy of a finished trace without this share of its records, which are counted as lost. The same seed drops the same.
pub fn without(file: &Path, share: f64, seed: u64) -> Result<PathBuf> {
    let copy = file.with_extension("dropped.db");
    std::fs::copy(file, &copy)?;
    let connection = Connection::open(&copy)?;
    let limit = (share * 1_000_000.0) as i64;
    for (table, key, loss) in RECORDS {
        // A multiplicative hash of the row's number: which rows go does not depend on the order of reading.
        let sql = format!("DELETE FROM {table} WHERE abs((({key} / 64 + ?1) * 2654435761) % 1000003) < ?2");
        let deleted = connection.execute(&sql, params![seed as i64, limit])?;
        connection.execute(
            "INSERT INTO losses SELECT max(id), ?1, ?2 FROM sessions
             WHERE true ON CONFLICT DO UPDATE SET count = count + excluded.count",
            params![loss, deleted as i64],
        )?;
    }
    connection.execute("UPDATE sessions SET stored = (SELECT count(*) FROM calls)", [])?;
    Ok(copy)
}
