//! Keeping a file under its size cap: the oldest rows are deleted before the file would outgrow it.
//!
//! The cap is for the file and its write-ahead log together. SQLite refuses to let the file grow above its part, and
//! transactions are cut so that the log stays within its own. Pages of deleted rows are used again. Deleted calls are
//! counted as a loss of their session.
//!
//! Sums are worth more per byte than calls and are kept longer, until they fill a quarter of the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_model::LossReason;
use rusqlite::{Connection, params};

use super::{PATIENCE, Writer};
use crate::StoreError;

const PAGE_BYTES: u64 = 4096;
const LEAST_CAP: u64 = 1 << 20;
const MOST_LOG_BYTES: u64 = 64 << 20;

/// The most that is deleted at once, so that a deletion fits into SQLite's page cache.
const MOST_CHUNK_BYTES: u64 = 4 << 20;
const CALL_BYTES: u64 = 32;
const SHAPE_BYTES: u64 = 32;

/// Tables that hold one row per thing that happened, and when, except the calls.
const SUMS: &[(&str, &str)] = &[
    ("call_counts", "bucket_ns"),
    ("thread_usage", "bucket_ns"),
    ("agent_usage", "bucket_ns"),
    ("rung_changes", "at_ns"),
    ("process_life", "at_ns"),
    ("warnings", "at_ns"),
    ("nccl_events", "timestamp_ns"),
    ("tcp_events", "timestamp_ns"),
];

pub(super) struct Cap {
    max_bytes: u64,
    log: PathBuf,
    log_bytes: u64,
    /// What the sums take, about.
    sums_bytes: u64,
}

impl Cap {
    pub fn new(path: &Path, cap: u64) -> Result<Self, StoreError> {
        if cap < LEAST_CAP {
            return Err(StoreError::CapTooSmall { cap, least: LEAST_CAP });
        }
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log_bytes = (cap / 4).min(MOST_LOG_BYTES);
        let new = Self { max_bytes: cap - log_bytes, log: log.into(), log_bytes, sums_bytes: 0 };
        let size = file_bytes(path);
        if size > new.max_bytes || size + file_bytes(&new.log) > cap {
            return Err(StoreError::OverCap { path: path.into(), size, cap });
        }
        Ok(new)
    }

    pub fn max_pages(&self) -> i64 {
        (self.max_bytes / PAGE_BYTES).cast_signed()
    }

    pub fn dictionary_entries(&self) -> usize {
        (self.max_bytes / 8 / SHAPE_BYTES) as usize
    }

    /// So few that half of the log holds them even if each lands on a page of its own.
    fn rows_per_transaction(&self) -> usize {
        (self.log_bytes / 2 / (PAGE_BYTES + 24)) as usize
    }

    /// Above this, room is made. The rest is for one transaction.
    fn high_water_pages(&self) -> i64 {
        self.max_pages() - (self.rows_per_transaction() as i64).min(self.max_pages() / 8)
    }

    fn chunk_bytes(&self) -> u64 {
        (self.max_bytes / 16).min(MOST_CHUNK_BYTES)
    }

    fn log_is_long(&self) -> bool {
        file_bytes(&self.log) > self.log_bytes / 2
    }
}

impl Writer {
    pub(super) fn rows_per_transaction(&self) -> usize {
        self.cap.as_ref().map_or(usize::MAX, Cap::rows_per_transaction)
    }

    /// A sum may be longer than a page.
    pub(super) fn sums_per_transaction(&self) -> usize {
        self.cap.as_ref().map_or(usize::MAX, |cap| cap.rows_per_transaction() / 3)
    }

    /// Deletes the oldest rows while the file is nearly as large as it may be.
    pub(super) fn make_room(&mut self) -> Result<(), StoreError> {
        let Some(high_water) = self.cap.as_ref().map(Cap::high_water_pages) else {
            return Ok(());
        };
        while self.write(|writer| used_pages(&writer.connection))? > high_water {
            let is_smaller = self.write(Self::expire)?;
            self.flush()?;
            if !is_smaller {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn measure_sums(&mut self) -> rusqlite::Result<()> {
        if let Some(cap) = &mut self.cap {
            let sql = "SELECT (SELECT IFNULL(SUM(LENGTH(histogram) + 80), 0) FROM call_counts)
                + (SELECT IFNULL(SUM(LENGTH(reason) + 80), 0) FROM rung_changes)
                + 80 * (SELECT COUNT(*) FROM thread_usage) + 80 * (SELECT COUNT(*) FROM agent_usage)
                + 100 * (SELECT COUNT(*) FROM process_life)";
            cap.sums_bytes = self.connection.query_row(sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned();
        }
        Ok(())
    }

    pub(super) fn sums_grew(&mut self, bytes: usize) {
        if let Some(cap) = &mut self.cap {
            cap.sums_bytes += bytes as u64;
        }
    }

    /// Keeps the log within its part of the cap. Only a reader that stays in one place for long can prevent that.
    pub(super) fn check_log_size(&self) -> Result<(), StoreError> {
        let Some(cap) = &self.cap else { return Ok(()) };
        if cap.log_is_long() {
            empty_log(&self.connection);
        }
        match cap.log_is_long() {
            true => Err(StoreError::ReaderInTheWay { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// Whether the cap, and not the disk, keeps the file from growing.
    pub(super) fn is_at_cap(&self) -> bool {
        let Some(cap) = &self.cap else { return false };
        used_pages(&self.connection).is_ok_and(|used| used > cap.high_water_pages())
    }

    fn expire(&mut self) -> rusqlite::Result<bool> {
        let Some(cap) = &self.cap else { return Ok(false) };
        let (chunk, sums_first) = (cap.chunk_bytes() / CALL_BYTES, cap.sums_bytes > cap.max_bytes / 4);
        if sums_first && self.expire_sums()? {
            return Ok(true);
        }
        Ok(self.expire_calls(chunk)? || self.expire_sums()? || self.expire_calls(0)?)
    }

    /// Deletes the oldest `count` calls, or all when `count` is 0, if there are more than that.
    fn expire_calls(&mut self, count: u64) -> rusqlite::Result<bool> {
        let cutoff = match count {
            0 => "SELECT MAX(start_ns) + 1 FROM calls WHERE ?1 = 0",
            _ => "SELECT MAX(start_ns) FROM (SELECT start_ns FROM calls ORDER BY start_ns LIMIT 1 OFFSET ?1)",
        };
        let cutoff: Option<i64> =
            self.connection.prepare_cached(cutoff)?.query_row([count.cast_signed()], |row| row.get(0))?;
        let Some(cutoff) = cutoff else { return Ok(false) };
        self.count_expired(cutoff)?;
        self.connection.prepare_cached("DELETE FROM calls WHERE start_ns < ?")?.execute([cutoff])?;
        self.expire_dictionaries(cutoff)?;
        Ok(true)
    }

    fn count_expired(&self, cutoff: i64) -> rusqlite::Result<()> {
        let mut counts = self.connection.prepare_cached(
            "SELECT session_id, COUNT(*) FROM calls JOIN shapes ON shapes.id = shape_id WHERE start_ns < ?
             GROUP BY session_id",
        )?;
        let mut lost = self.connection.prepare_cached(
            "INSERT INTO losses VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
        )?;
        let mut stored = self.connection.prepare_cached("UPDATE sessions SET stored = stored - ? WHERE id = ?")?;
        let mut rows = counts.query([cutoff])?;
        while let Some(row) = rows.next()? {
            let (session, count): (i64, i64) = (row.get(0)?, row.get(1)?);
            lost.execute(params![session, LossReason::Expired.as_str(), count])?;
            stored.execute([count, session])?;
        }
        Ok(())
    }

    fn expire_dictionaries(&mut self, cutoff: i64) -> rusqlite::Result<()> {
        let oldest_ns = cutoff.cast_unsigned();
        if let Some(last) = self.dictionaries.shapes.take_expired(oldest_ns) {
            self.connection.execute("DELETE FROM shapes WHERE id <= ?", [last])?;
        }
        if let Some(last) = self.dictionaries.waits.take_expired(oldest_ns) {
            self.connection.execute("DELETE FROM waits WHERE id <= ?", [last])?;
        }
        Ok(())
    }

    fn expire_sums(&mut self) -> rusqlite::Result<bool> {
        let mut deleted = 0;
        for (table, time) in SUMS {
            let sql = format!(
                "DELETE FROM {table} WHERE {time} <= (SELECT {time} FROM {table} ORDER BY {time} LIMIT 1
                 OFFSET (SELECT min(COUNT(*) / 4, 20000) FROM {table}))"
            );
            deleted += self.connection.prepare_cached(&sql)?.execute([])?;
        }
        deleted += self.expire_names()?;
        self.measure_sums()?;
        Ok(deleted > 0)
    }

    /// Who made calls in earlier sessions, and how they were watched, is of no interest when nothing they did is left.
    fn expire_names(&self) -> rusqlite::Result<usize> {
        const GONE: &str = "SELECT id FROM sessions WHERE id < ?1 AND stored = 0 AND last_commit_ns < IFNULL((
            SELECT MIN(bucket_ns) FROM (SELECT bucket_ns FROM call_counts UNION ALL SELECT bucket_ns FROM thread_usage)
          ), last_commit_ns + 1)";
        let gone = |table, column, of| {
            let sql = format!("DELETE FROM {table} WHERE {column} IN ({of})");
            self.connection.execute(&sql, [self.session])
        };
        let processes = format!("SELECT id FROM processes WHERE session_id IN ({GONE})");
        Ok(gone("threads", "process_id", processes.as_str())?
            + gone("processes", "session_id", GONE)?
            + gone("rung_changes", "session_id", GONE)?
            + gone("calibrations", "session_id", GONE)?
            + gone("clock_anchors", "session_id", GONE)?)
    }
}

fn used_pages(connection: &Connection) -> rusqlite::Result<i64> {
    let number = |sql| connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    Ok(number("PRAGMA page_count")? - number("PRAGMA freelist_count")?)
}

/// Moves the log into the file and cuts it to nothing, unless a reader is in the way.
fn empty_log(connection: &Connection) {
    let _ = connection.busy_timeout(Duration::ZERO);
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = connection.busy_timeout(PATIENCE);
}

fn file_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}
