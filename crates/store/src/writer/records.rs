//! Storing what held threads up: stretches off the CPU, kernel work in their own time, and requests to block devices.

use gpuwhy_model::{IoRequest, KernelWork, Record, StackId, Stretch};
use rusqlite::Connection;

use super::starts::{LATEST_NS, ROWS, before_next_free, insert_rows_sql, insert_up_to_taken};
use super::{Writer, signed};
use crate::StoreError;
use crate::cells::Binding;

impl Writer {
    pub fn stretches(&mut self, stretches: &[Stretch]) -> Result<(), StoreError> {
        self.events(stretches)
    }

    pub fn kernel_work(&mut self, work: &[KernelWork]) -> Result<(), StoreError> {
        self.events(work)
    }

    pub fn io_requests(&mut self, requests: &[IoRequest]) -> Result<(), StoreError> {
        self.events(requests)
    }

    /// Stores a batch, in any order. After an error nothing since the last commit is stored.
    fn events<E: Event>(&mut self, events: &[E]) -> Result<(), StoreError> {
        let mut sorted: Vec<&E> = events.iter().collect();
        sorted.sort_unstable_by_key(|event| event.start_ns());
        for slice in sorted.chunks(self.rows_per_transaction()) {
            self.make_room()?;
            let newest_ns = self.write(|writer| insert(&writer.connection, slice))?;
            self.newest_record_ns = self.newest_record_ns.max(newest_ns);
            self.stacks.cited(slice.iter().filter_map(|event| event.oldest_stack()).min(), newest_ns);
            if self.cap.is_some() {
                self.flush()?;
            }
        }
        Ok(())
    }
}

/// A record whose start is its id and its first column.
trait Event: Record {
    fn start_ns(&self) -> u64;

    /// The first of the stacks it cites.
    fn oldest_stack(&self) -> Option<StackId> {
        None
    }
}

impl Event for Stretch {
    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn oldest_stack(&self) -> Option<StackId> {
        [self.stack, self.waker_stack].into_iter().flatten().min()
    }
}

impl Event for KernelWork {
    fn start_ns(&self) -> u64 {
        self.start_ns
    }
}

impl Event for IoRequest {
    fn start_ns(&self) -> u64 {
        self.start_ns
    }
}

/// Inserts sorted events, each with a start after the one before it, and says which start was the last.
fn insert<E: Event>(connection: &Connection, events: &[&E]) -> rusqlite::Result<u64> {
    let table = E::TABLE.name;
    let mut many = connection.prepare_cached(&insert_rows_sql(table, ROWS))?;
    let mut one = connection.prepare_cached(&insert_rows_sql(table, 1))?;
    let mut rest = events;
    let mut last_ns = None;
    while !rest.is_empty() {
        let (statement, count) = if rest.len() < ROWS { (&mut one, 1) } else { (&mut many, ROWS) };
        let mut starts = [0; ROWS];
        place(&rest[..count], last_ns, &mut starts);
        let mut binding = Binding::new(statement);
        for (event, start_ns) in rest[..count].iter().zip(starts) {
            binding.bind_at(signed(start_ns), *event)?;
        }
        let stored = insert_up_to_taken(connection, statement)?;
        last_ns = match stored == count {
            true => Some(starts[stored - 1]),
            false => Some(before_next_free(connection, table, starts[stored])?),
        };
        rest = &rest[stored..];
    }
    Ok(last_ns.unwrap_or(0))
}

fn place<E: Event>(events: &[&E], mut last_ns: Option<u64>, starts: &mut [u64]) {
    for (event, start) in events.iter().zip(starts) {
        let start_ns = event.start_ns().min(LATEST_NS);
        *start = last_ns.map_or(start_ns, |last_ns| start_ns.max(last_ns + 1));
        last_ns = Some(*start);
    }
}
