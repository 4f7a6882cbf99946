//! Storing what held threads up: stretches off the CPU, kernel work in their own time, and requests to block devices.

use gpuwhy_model::{IoRequest, KernelWork, StackId, Stretch};
use rusqlite::{Connection, Statement, ToSql};

use super::starts::{LATEST_NS, ROWS, before_next_free, insert_sql, insert_up_to_taken};
use super::{Writer, cut, signed};
use crate::StoreError;

impl Writer {
    pub fn stretches(&mut self, stretches: &[Stretch]) -> Result<(), StoreError> {
        self.records(stretches)
    }

    pub fn kernel_work(&mut self, work: &[KernelWork]) -> Result<(), StoreError> {
        self.records(work)
    }

    pub fn io_requests(&mut self, requests: &[IoRequest]) -> Result<(), StoreError> {
        self.records(requests)
    }

    /// Stores a batch, in any order. After an error nothing since the last commit is stored.
    fn records<R: Record>(&mut self, records: &[R]) -> Result<(), StoreError> {
        let mut sorted: Vec<&R> = records.iter().collect();
        sorted.sort_unstable_by_key(|record| record.start_ns());
        for slice in sorted.chunks(self.rows_per_transaction()) {
            self.make_room()?;
            let newest_ns = self.write(|writer| insert(&writer.connection, slice))?;
            self.newest_record_ns = self.newest_record_ns.max(newest_ns);
            self.stacks.cited(slice.iter().filter_map(|record| record.oldest_stack()).min(), newest_ns);
            if self.cap.is_some() {
                self.flush()?;
            }
        }
        Ok(())
    }
}

/// A record whose start is its id and its first column.
trait Record {
    const TABLE: &'static str;
    const COLUMNS: usize;

    fn start_ns(&self) -> u64;

    /// The first of the stacks it cites.
    fn oldest_stack(&self) -> Option<StackId> {
        None
    }

    /// Hands over the columns after the start, in their order.
    fn bind(&self, row: &mut Row<'_, '_>) -> rusqlite::Result<()>;
}

/// A row of a statement that is being bound.
struct Row<'s, 'c> {
    statement: &'s mut Statement<'c>,
    bound: usize,
}

impl Row<'_, '_> {
    fn add(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.bound += 1;
        self.statement.raw_bind_parameter(self.bound, value)
    }
}

impl Record for Stretch {
    const TABLE: &'static str = "stretches";
    const COLUMNS: usize = 18;

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn oldest_stack(&self) -> Option<StackId> {
        [self.stack, self.waker_stack].into_iter().flatten().min()
    }

    fn bind(&self, row: &mut Row<'_, '_>) -> rusqlite::Result<()> {
        row.add(self.thread.0)?;
        row.add(signed(self.blocked_ns))?;
        row.add(signed(self.runqueue_ns))?;
        row.add(self.is_throttled)?;
        row.add(self.reason.map(|reason| reason.as_str()))?;
        row.add(self.op.map(|op| op.0))?;
        row.add(self.target.map(|target| target.0))?;
        row.add(self.woken_by.map(|thread| thread.0))?;
        for taker in self.taken_by {
            row.add(taker.map(|taker| taker.thread.0))?;
            row.add(taker.map(|taker| signed(taker.ns)))?;
        }
        row.add(signed(self.all.count))?;
        row.add(signed(self.all.blocked_ns))?;
        row.add(signed(self.all.runqueue_ns))?;
        row.add(self.stack.map(|stack| stack.0))?;
        row.add(self.waker_stack.map(|stack| stack.0))
    }
}

impl Record for KernelWork {
    const TABLE: &'static str = "kernel_work";
    const COLUMNS: usize = 9;

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn bind(&self, row: &mut Row<'_, '_>) -> rusqlite::Result<()> {
        row.add(self.thread.0)?;
        row.add(self.kind.as_str())?;
        row.add(signed(self.duration_ns))?;
        row.add(self.op.map(|op| op.0))?;
        row.add(self.target.map(|target| target.0))?;
        row.add(self.code)?;
        row.add(signed(self.all_count))?;
        row.add(signed(self.all_ns))
    }
}

impl Record for IoRequest {
    const TABLE: &'static str = "io_requests";
    const COLUMNS: usize = 7;

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn bind(&self, row: &mut Row<'_, '_>) -> rusqlite::Result<()> {
        row.add(signed(self.duration_ns))?;
        row.add(cut(&self.device))?;
        row.add(signed(self.bytes))?;
        row.add(self.is_write)?;
        row.add(self.issuer.map(|thread| thread.0))?;
        row.add(self.waiter.0)
    }
}

/// Inserts sorted records, each with a start after the one before it, and says which start was the last.
fn insert<R: Record>(connection: &Connection, records: &[&R]) -> rusqlite::Result<u64> {
    let mut many = connection.prepare_cached(&insert_sql(R::TABLE, R::COLUMNS, ROWS))?;
    let mut one = connection.prepare_cached(&insert_sql(R::TABLE, R::COLUMNS, 1))?;
    let mut rest = records;
    let mut last_ns = None;
    while !rest.is_empty() {
        let (statement, count) = if rest.len() < ROWS { (&mut one, 1) } else { (&mut many, ROWS) };
        let mut starts = [0; ROWS];
        place(&rest[..count], last_ns, &mut starts);
        bind(statement, &rest[..count], &starts)?;
        let stored = insert_up_to_taken(connection, statement)?;
        last_ns = match stored == count {
            true => Some(starts[stored - 1]),
            false => Some(before_next_free(connection, R::TABLE, starts[stored])?),
        };
        rest = &rest[stored..];
    }
    Ok(last_ns.unwrap_or(0))
}

fn place<R: Record>(records: &[&R], mut last_ns: Option<u64>, starts: &mut [u64]) {
    for (record, start) in records.iter().zip(starts) {
        let start_ns = record.start_ns().min(LATEST_NS);
        *start = last_ns.map_or(start_ns, |last_ns| start_ns.max(last_ns + 1));
        last_ns = Some(*start);
    }
}

fn bind<R: Record>(statement: &mut Statement<'_>, records: &[&R], starts: &[u64]) -> rusqlite::Result<()> {
    let mut row = Row { statement, bound: 0 };
    for (record, start_ns) in records.iter().zip(starts) {
        row.add(signed(*start_ns))?;
        record.bind(&mut row)?;
    }
    Ok(())
}
