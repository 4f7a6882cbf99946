//! The way into a trace file: one writer, one transaction per batch.
//!
//! Everything between two commits is one transaction, except that a writer with a size cap also commits on its own, so
//! that no transaction outgrows the cap. After a failed write nothing since the last commit is in the file, the file
//! is valid, and the writer can go on: ids it gave out stay valid.

mod calls;
mod dictionary;
mod ended;
mod names;
mod open;
mod own;
mod records;
mod retention;
mod room;
mod rows;
mod samples;
mod stacks;
mod starts;
mod sums;

use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_model::{LossReason, Losses, Note, Session, SessionEnd};
use rusqlite::{Connection, params};

use crate::StoreError;
use crate::cells::cut;
use crate::lock::WriterLock;
use calls::MovedCalls;
use dictionary::Dictionaries;
use ended::Ended;
use names::Names;
pub(crate) use open::connect_again;
use retention::Cap;
use room::LastRoom;
use samples::Series;
use stacks::Stacks;

/// How long to wait for another program that holds the file, such as `sqlite3` in the middle of a write.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The most bytes the file and its write-ahead log may take together. The oldest rows make room.
    pub max_size: Option<u64>,
}

pub struct Writer {
    connection: Connection,
    path: PathBuf,
    session: i64,
    names: Names,
    ended: Ended,
    dictionaries: Dictionaries,
    stacks: Stacks,
    series: Series,
    moved: MovedCalls,
    /// The latest start of what the records hold so far.
    newest_record_ns: u64,
    cap: Option<Cap>,
    uncommitted_calls: u64,
    not_written: u64,
    room: Option<LastRoom>,
    /// Released after the connection is closed: fields are dropped in order.
    _lock: WriterLock,
}

impl Writer {
    /// Creates the file, or adds a session to a trace that is there.
    pub fn open(path: impl AsRef<Path>, session: &Session, options: &Options) -> Result<Self, StoreError> {
        open::open(path.as_ref(), session, options)
    }

    /// Makes everything so far visible to readers and safe from the end of this process.
    pub fn commit(&mut self, now_ns: u64) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement =
                writer.connection.prepare_cached("UPDATE sessions SET last_commit_ns = ? WHERE id = ?")?;
            statement.execute(params![signed(now_ns), writer.session])
        })?;
        self.flush()?;
        self.dictionaries.retire_full_targets(self.newest_record_ns);
        self.stacks.end_large_epoch(self.newest_record_ns.max(self.moved.newest_ns()));
        Ok(())
    }

    /// Calls handed over since the last time this was asked that are not in the file, because a write failed.
    pub fn take_not_written(&mut self) -> u64 {
        mem::take(&mut self.not_written)
    }

    /// Counts of this session so far. They replace earlier ones, so that a caller keeps one running total.
    /// What expired is counted here and not by the caller.
    pub fn losses(&mut self, losses: &Losses) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement = writer.connection.prepare_cached(
                "INSERT INTO losses VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = excluded.count",
            )?;
            for (reason, count) in losses.iter().filter(|(reason, _)| *reason != LossReason::Expired) {
                statement.execute(params![writer.session, reason.as_str(), signed(count)])?;
            }
            Ok(())
        })
    }

    pub fn note(&mut self, at_ns: u64, note: &Note) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement = writer.connection.prepare_cached("INSERT INTO warnings VALUES (?, ?, ?, ?)")?;
            statement.execute(params![writer.session, signed(at_ns), cut(&note.text), note.kind.as_str()])?;
            Ok(())
        })
    }

    pub fn clock_anchor(&mut self, monotonic_ns: u64, unix_offset_ns: i64) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement = writer.connection.prepare_cached("INSERT INTO clock_anchors VALUES (?, ?, ?)")?;
            statement.execute(params![writer.session, signed(monotonic_ns), unix_offset_ns])?;
            Ok(())
        })
    }

    /// Ends the session, also on a full disk. What is left is one file that needs no other beside it, unless somebody is
    /// reading it.
    pub fn finish(mut self, end: &SessionEnd) -> Result<(), StoreError> {
        self.room = None;
        self.losses(&end.losses)?;
        self.write(|writer| {
            let sql = "UPDATE sessions SET ended_ns = ?, seen = ?, agent_cpu_ns = ?, end_reason = ? WHERE id = ?";
            let numbers = [end.ended_ns, end.seen, end.agent_cpu_ns].map(signed);
            let [ended_ns, seen, agent_cpu_ns] = numbers;
            writer.connection.execute(sql, params![ended_ns, seen, agent_cpu_ns, cut(&end.reason), writer.session])
        })?;
        self.commit(end.ended_ns)?;
        if end.is_hurried() {
            // The system writes it to the disk when it gets around to it.
            let _ = self.connection.pragma_update(None, "synchronous", "OFF");
        }
        self.leave_one_file();
        Ok(())
    }

    /// Folds the write-ahead log into the file. When a reader is in the way the log stays, and is as readable.
    fn leave_one_file(&self) {
        let connection = &self.connection;
        let _ = connection.busy_timeout(Duration::from_millis(200));
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = connection.pragma_update(None, "journal_mode", "DELETE");
    }

    /// Runs a piece of work inside the open transaction, or takes everything since the last commit back.
    fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        self.begin()?;
        work(self).map_err(|error| self.roll_back(error))
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if !self.connection.is_autocommit() {
            return Ok(());
        }
        self.check_log_size()?;
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| self.roll_back(error))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.write_names()?;
        self.end_transaction().map_err(|error| self.roll_back(error))?;
        self.uncommitted_calls = 0;
        self.names.committed();
        Ok(())
    }

    fn end_transaction(&mut self) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached("UPDATE sessions SET stored = stored + ? WHERE id = ?")?;
        statement.execute(params![signed(self.uncommitted_calls), self.session])?;
        self.connection.prepare_cached("COMMIT")?.execute([]).map(drop)
    }

    fn roll_back(&mut self, error: rusqlite::Error) -> StoreError {
        // SQLite rolls back by itself after some errors; a rollback that fails leaves nothing to roll back.
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.not_written += mem::take(&mut self.uncommitted_calls);
        self.names.rolled_back();
        self.dictionaries.retire(self.moved.newest_ns());
        self.explain(error)
    }

    fn explain(&self, error: rusqlite::Error) -> StoreError {
        match StoreError::from_sqlite(&self.path, error) {
            StoreError::DiskFull { path } if self.is_at_cap() => StoreError::CapReached { path },
            other => other,
        }
    }
}

/// SQLite's integers are signed. Times and counts stay far below the limit; a value that does not is cut to it.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Handles and addresses use all 64 bits, and are kept bit by bit.
fn bits(value: u64) -> i64 {
    value.cast_signed()
}
