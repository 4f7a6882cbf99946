//! Keeping a file under its size cap: the oldest rows are deleted before the file would outgrow it.
//!
//! The cap is for the file and its write-ahead log together. SQLite refuses to let the file grow above its part, and
//! transactions are cut so that the log stays within its own. Pages of deleted rows are used again. Events of all kinds
//! go together, the oldest first; deleted calls are counted as a loss of their session.
//!
//! Sums are worth more per byte than events and are kept longer, until they fill a quarter of the file. Names of what has
//! ended go with the last row that may cite them; where they fill a quarter, the oldest rows of all kinds go for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_model::LossReason;
use rusqlite::{Connection, params};

use super::names::MOST_TARGET_BYTES;
use super::{PATIENCE, Writer, own};
use crate::StoreError;

const PAGE_BYTES: u64 = 4096;
const LEAST_CAP: u64 = 1 << 20;
const MOST_LOG_BYTES: u64 = 64 << 20;

/// The most that is deleted at once, so that a deletion fits into SQLite's page cache.
const MOST_CHUNK_BYTES: u64 = 4 << 20;
/// What an event takes at most, about.
const EVENT_BYTES: u64 = 64;
const SHAPE_BYTES: u64 = 32;

/// Tables whose rows have their start for an id.
const EVENTS: [&str; 4] = ["calls", "stretches", "kernel_work", "io_requests"];

/// Tables that hold one row per thing that happened, and when, except the events.
const SUMS: &[(&str, &str)] = &[
    ("call_counts", "bucket_ns"),
    ("thread_usage", "bucket_ns"),
    ("standstills", "seen_ns"),
    ("collective_captures", "start_ns"),
    ("collective_replays", "start_ns"),
    ("collective_waits", "start_ns"),
    ("io_usage", "bucket_ns"),
    ("stack_samples", "bucket_ns"),
    ("stack_walks", "bucket_ns"),
    ("agent_usage", "bucket_ns"),
    ("rung_changes", "at_ns"),
    ("process_life", "at_ns"),
    ("warnings", "at_ns"),
    ("samples", "at_ns"),
    ("explanations", "at_ns"),
    ("tcp_events", "timestamp_ns"),
    ("rdma_events", "timestamp_ns"),
    ("marks", "at_ns"),
];

/// Tables that cite threads, processes and series of samples, and when those were alive, except the calls: these are counted per session.
const CITING: &[(&str, &str)] = &[
    ("call_counts", "bucket_ns"),
    ("thread_usage", "bucket_ns"),
    ("standstills", "seen_ns"),
    ("io_usage", "bucket_ns"),
    ("stack_samples", "bucket_ns"),
    ("stretches", "start_ns"),
    ("kernel_work", "start_ns"),
    ("io_requests", "start_ns"),
    ("samples", "at_ns"),
    ("marks", "at_ns"),
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

    /// What stacks and their frames may take before they are forgotten.
    pub fn stack_bytes(&self) -> u64 {
        self.max_bytes / 8
    }

    pub fn target_entries(&self) -> usize {
        (self.max_bytes / 8) as usize / MOST_TARGET_BYTES
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
                + (SELECT IFNULL(SUM(LENGTH(device) + 80), 0) FROM io_usage)
                + (SELECT IFNULL(SUM(LENGTH(key) + LENGTH(value) + 80), 0) FROM marks)
                + 80 * (SELECT COUNT(*) FROM thread_usage) + 80 * (SELECT COUNT(*) FROM agent_usage)
                + (SELECT IFNULL(SUM(LENGTH(explanation) + 80), 0) FROM explanations)
                + 32 * (SELECT COUNT(*) FROM samples) + 80 * (SELECT COUNT(*) FROM stack_samples)
                + 80 * (SELECT COUNT(*) FROM stack_walks) + 100 * (SELECT COUNT(*) FROM process_life)";
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
        let (chunk, quarter) = (cap.chunk_bytes() / EVENT_BYTES, cap.max_bytes / 4);
        let (many_sums, many_names) = (cap.sums_bytes > quarter, self.ended.bytes() > quarter);
        let names = self.expire_names_of_the_ended()?;
        let sums_first = many_sums || (many_names && self.sums_are_older()?);
        if sums_first && self.expire_sums()? {
            return Ok(true);
        }
        Ok(self.expire_events(chunk)? || names > 0 || self.expire_sums()? || self.expire_events(0)?)
    }

    /// Whether sums keep names that no event cites any more.
    fn sums_are_older(&self) -> rusqlite::Result<bool> {
        let events = EVENTS.map(|table| (table, "start_ns"));
        let sql = format!("SELECT ({}) < ({})", oldest_sql(SUMS), oldest_sql(&events));
        self.connection.prepare_cached(&sql)?.query_row([], |row| Ok(row.get::<_, Option<bool>>(0)? == Some(true)))
    }

    /// Deletes the oldest `count` events, or all when `count` is 0, if there are more than that.
    fn expire_events(&mut self, count: u64) -> rusqlite::Result<bool> {
        let Some(cutoff) = self.cutoff(count)? else { return Ok(false) };
        self.count_expired(cutoff)?;
        for table in EVENTS {
            let sql = format!("DELETE FROM {table} WHERE start_ns < ?");
            self.connection.prepare_cached(&sql)?.execute([cutoff])?;
        }
        own::expire(&self.connection, cutoff)?;
        self.expire_dictionaries(cutoff)?;
        Ok(true)
    }

    /// Before this start there are `count` events, or all when `count` is 0.
    fn cutoff(&self, count: u64) -> rusqlite::Result<Option<i64>> {
        let sql = if count == 0 { end_sql() } else { cutoff_sql() };
        self.connection.prepare_cached(&sql)?.query_row([count.cast_signed()], |row| row.get(0))
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
        if let Some(last) = self.dictionaries.targets.take_expired(oldest_ns) {
            self.connection.execute("DELETE FROM wait_targets WHERE id <= ?", [last])?;
        }
        self.stacks.expire(&self.connection, oldest_ns)
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
        deleted += self.expire_names_of_sessions()?;
        self.measure_sums()?;
        Ok(deleted > 0)
    }

    /// Who did something in earlier sessions, and how they were watched, is of no interest when nothing they did is left.
    fn expire_names_of_sessions(&self) -> rusqlite::Result<usize> {
        let sessions = format!(
            "SELECT id FROM sessions WHERE id < ?1 AND stored = 0
             AND last_commit_ns < IFNULL(({}), last_commit_ns + 1)",
            oldest_sql(CITING)
        );
        let gone = |table, column, of: &str| {
            let sql = format!("DELETE FROM {table} WHERE {column} IN ({of})");
            self.connection.execute(&sql, [self.session])
        };
        let processes = format!("SELECT id FROM processes WHERE session_id IN ({sessions})");
        Ok(gone("threads", "process_id", &processes)?
            + gone("wait_targets", "process_id", &processes)?
            + gone("kernels", "process_id", &processes)?
            + gone("process_labels", "process_id", &processes)?
            + gone("sample_series", "session_id", &sessions)?
            + gone("processes", "session_id", &sessions)?
            + gone("rung_changes", "session_id", &sessions)?
            + gone("calibrations", "session_id", &sessions)?
            + gone("clock_anchors", "session_id", &sessions)?)
    }

    /// The same within this session, which may last for months.
    fn expire_names_of_the_ended(&mut self) -> rusqlite::Result<usize> {
        let sql = oldest_sql(&[&[("calls", "start_ns")], CITING].concat());
        let oldest: Option<i64> = self.connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
        let Some(oldest_ns) = oldest else { return Ok(0) };
        // Names that go together lie together: several share a page.
        let most = self.rows_per_transaction().saturating_mul(8);
        Ok(self.ended.expire(&self.connection, oldest_ns, most)? + self.series.expire(&self.connection, oldest_ns)?)
    }
}

/// When the oldest row of these tables is from.
fn oldest_sql(tables: &[(&str, &str)]) -> String {
    let oldest = tables.iter().map(|(table, time)| format!("SELECT MIN({time}) AS at_ns FROM {table}"));
    format!("SELECT MIN(at_ns) FROM ({})", oldest.collect::<Vec<_>>().join(" UNION ALL "))
}

/// Tables are read side by side in the order of time, so that only the oldest rows are looked at.
fn cutoff_sql() -> String {
    format!("SELECT MAX(start_ns) FROM (SELECT start_ns FROM ({}) ORDER BY start_ns LIMIT 1 OFFSET ?1)", starts_sql())
}

fn end_sql() -> String {
    format!("SELECT MAX(start_ns) + 1 FROM ({}) WHERE ?1 = 0", starts_sql())
}

fn starts_sql() -> String {
    EVENTS.iter().map(|table| format!("SELECT start_ns FROM {table}")).collect::<Vec<_>>().join(" UNION ALL ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_found_without_sorting_them() {
        let connection = Connection::open_in_memory().unwrap();
        crate::schema::create(&connection).unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", cutoff_sql())).unwrap();
        let steps = statement.query_map([1], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        assert!(steps.iter().any(|step| step == "MERGE (UNION ALL)"), "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
    }
}
