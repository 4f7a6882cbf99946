//! Sums per second, turns in the lives of processes, and changes of how closely they are watched. A bucket that comes
//! in parts is added up, never replaced.

use std::slice;

use gpuwhy_model::{
    AgentUsage, Annotation, CallStats, Cell, CollectiveCapture, CollectiveReplay, CollectiveWait, FabricEvent,
    Histogram, IoUsage, ProcessLife, Record, RungChange, StackSample, StackWalks, Standstill, TcpEvent, ThreadTimes,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::Insert;
use super::{Writer, signed};
use crate::StoreError;

/// Bytes a row takes beside its text, about.
const ROW_BYTES: usize = 80;

/// The share of calls seen in all parts of a bucket; where nothing was called, of the time.
const FRACTION: (&str, &str) = (
    "fraction",
    "IFNULL(min(1.0, 1.0 * (count + excluded.count) / NULLIF(estimate + excluded.estimate, 0)),
            min(fraction, excluded.fraction))",
);

impl Writer {
    pub fn stats(&mut self, stats: &[CallStats]) -> Result<(), StoreError> {
        let insert = Insert::merging::<CallStats>(&[FRACTION]);
        self.sums(stats, |writer, stats| {
            let merged = with_stored_histogram(&writer.connection, stats)?;
            Ok(ROW_BYTES + insert.row(&writer.connection, &[], &merged)?)
        })
    }

    pub fn thread_times(&mut self, times: &[ThreadTimes]) -> Result<(), StoreError> {
        self.add_up(times)
    }

    pub fn collective_captures(&mut self, captures: &[CollectiveCapture]) -> Result<(), StoreError> {
        self.add_up(captures)
    }

    pub fn collective_replays(&mut self, replays: &[CollectiveReplay]) -> Result<(), StoreError> {
        self.add_up(replays)
    }

    pub fn collective_waits(&mut self, waits: &[CollectiveWait]) -> Result<(), StoreError> {
        self.add_up(waits)
    }

    pub fn standstills(&mut self, standstills: &[Standstill]) -> Result<(), StoreError> {
        self.add_up(standstills)
    }

    pub fn io_usage(&mut self, usage: &[IoUsage]) -> Result<(), StoreError> {
        self.add_up(usage)
    }

    pub fn stack_samples(&mut self, samples: &[StackSample]) -> Result<(), StoreError> {
        self.add_up(samples)
    }

    pub fn stack_walks(&mut self, walks: &[StackWalks]) -> Result<(), StoreError> {
        self.add_up(walks)
    }

    pub fn life(&mut self, life: &[ProcessLife]) -> Result<(), StoreError> {
        self.add_up(life)
    }

    pub fn tcp_events(&mut self, events: &[TcpEvent]) -> Result<(), StoreError> {
        self.add_up(events)
    }

    pub fn fabric_events(&mut self, events: &[FabricEvent]) -> Result<(), StoreError> {
        self.add_up(events)
    }

    pub fn annotations(&mut self, annotations: &[Annotation]) -> Result<(), StoreError> {
        self.add_up(annotations)
    }

    pub fn agent_usage(&mut self, usage: &AgentUsage) -> Result<(), StoreError> {
        self.add_up(slice::from_ref(usage))
    }

    pub fn rung_change(&mut self, change: &RungChange) -> Result<(), StoreError> {
        self.add_up(slice::from_ref(change))
    }

    /// Stores rows, each added to the one with the same key where there is one.
    fn add_up<R: Record>(&mut self, rows: &[R]) -> Result<(), StoreError> {
        let insert = Insert::merging::<R>(&[]);
        let session = [Cell::Integer(self.session)];
        self.sums(rows, |writer, row| Ok(ROW_BYTES + insert.row(&writer.connection, &session, row)?))
    }

    /// Writes items in transactions that a size cap has room for. `write` says how many bytes an item takes.
    pub(super) fn sums<T>(
        &mut self,
        items: &[T],
        write: impl Fn(&Self, &T) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        for slice in items.chunks(self.sums_per_transaction()) {
            self.make_room()?;
            let bytes =
                self.write(|writer| slice.iter().map(|item| write(writer, item)).sum::<rusqlite::Result<_>>())?;
            self.sums_grew(bytes);
            if self.cap.is_some() {
                self.flush()?;
            }
        }
        Ok(())
    }
}

/// SQL cannot add histograms up.
fn with_stored_histogram(connection: &Connection, stats: &CallStats) -> rusqlite::Result<CallStats> {
    let mut statement = connection
        .prepare_cached("SELECT histogram FROM call_counts WHERE bucket_ns = ? AND thread_id = ? AND op_id = ?")?;
    let key = params![signed(stats.bucket_ns), stats.thread.0, stats.op.0];
    let stored: Option<String> = statement.query_row(key, |row| row.get(0)).optional()?;
    let mut merged = stats.clone();
    if let Some(stored) = stored.and_then(|stored| Histogram::from_json(&stored).ok()) {
        merged.histogram.merge(&stored);
    }
    Ok(merged)
}
