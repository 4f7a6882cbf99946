//! Storing calls. One whose start is moved takes the calls made inside of it along.

use std::sync::LazyLock;

use gpuwhy_model::{Call, ThreadId};
use hashbrown::HashMap;
use rusqlite::{Connection, Statement, params};

use super::starts::{LATEST_NS, ROWS, before_next_free, insert_rows_sql, insert_up_to_taken};
use super::{Writer, bits, own, signed};
use crate::StoreError;

const COLUMNS: usize = 11;

static INSERT_MANY: LazyLock<String> = LazyLock::new(|| insert_rows_sql("calls", ROWS));
static INSERT_ONE: LazyLock<String> = LazyLock::new(|| insert_rows_sql("calls", 1));

/// How long after a moved call its late children are still expected.
const CHILD_DELAY_NS: u64 = 60_000_000_000;

const MOST_MOVED: usize = 1 << 16;

/// Calls that do not have the start they came with, so that calls made inside of them can follow.
#[derive(Default)]
pub(super) struct MovedCalls {
    starts: HashMap<(ThreadId, u64), u64>,
    newest_ns: u64,
}

/// A call with the ids of what it has in common with others.
struct Entry<'a> {
    call: &'a Call,
    shape: u32,
    wait: Option<u32>,
}

/// Where a row goes.
#[derive(Clone, Copy, Default)]
struct Place {
    start_ns: u64,
    parent_delta_ns: Option<i64>,
}

impl Writer {
    /// Stores a batch, in any order. Sorts it by start.
    ///
    /// After an error none of the calls since the last commit is stored, nor is any of this batch that came later;
    /// [`take_not_written`](Self::take_not_written) says how many that is.
    pub fn calls(&mut self, calls: &mut [Call]) -> Result<(), StoreError> {
        calls.iter_mut().for_each(|call| call.start_ns = call.start_ns.min(LATEST_NS));
        // A call comes before those made inside of it.
        calls.sort_unstable_by_key(|call| (call.start_ns, u64::MAX - call.duration_ns, call.parent_start_ns.is_some()));
        let rows = self.rows_per_transaction();
        for (at, slice) in calls.chunks(rows).enumerate() {
            self.slice(slice).inspect_err(|_| self.not_written += (calls.len() - at * rows) as u64)?;
        }
        Ok(())
    }

    fn slice(&mut self, calls: &[Call]) -> Result<(), StoreError> {
        self.make_room()?;
        self.dictionaries.retire_full(self.moved.newest_ns);
        self.write(|writer| writer.insert(calls))?;
        self.uncommitted_calls += calls.len() as u64;
        self.stacks.cited(calls.iter().filter_map(|call| call.stack_id).min(), self.moved.newest_ns());
        if self.cap.is_some() { self.flush_slice(calls.len()) } else { Ok(()) }
    }

    /// A slice that cannot be committed is not counted twice: the caller counts it with the rest of the batch.
    fn flush_slice(&mut self, calls: usize) -> Result<(), StoreError> {
        self.flush().inspect_err(|_| self.not_written = self.not_written.saturating_sub(calls as u64))
    }

    fn insert(&mut self, calls: &[Call]) -> rusqlite::Result<()> {
        let entries = self.entries(calls)?;
        let mut many = self.connection.prepare_cached(&INSERT_MANY)?;
        let mut one = self.connection.prepare_cached(&INSERT_ONE)?;
        let mut moved = Vec::new();
        let mut rest = entries.as_slice();
        let mut last_ns = None;
        while !rest.is_empty() {
            let (statement, count) = if rest.len() < ROWS { (&mut one, 1) } else { (&mut many, ROWS) };
            let mut places = [Place::default(); ROWS];
            self.moved.place(&rest[..count], last_ns, &mut places[..count]);
            let stored = insert_rows(&self.connection, statement, &rest[..count], &places[..count])?;
            moved.extend(moves(&rest[..stored], &places));
            write_own(&self.connection, &rest[..stored], &places)?;
            last_ns = match stored == count {
                true => Some(places[stored - 1].start_ns),
                false => Some(before_next_free(&self.connection, "calls", places[stored].start_ns)?),
            };
            rest = &rest[stored..];
        }
        moved.iter().try_for_each(|call| call.take_children_along(&self.connection))
    }

    fn entries<'a>(&mut self, calls: &'a [Call]) -> rusqlite::Result<Vec<Entry<'a>>> {
        let Self { connection, dictionaries, session, .. } = self;
        let mut entries = Vec::with_capacity(calls.len());
        for call in calls {
            let shape = dictionaries.shape(connection, *session, call)?;
            let wait = call.wait.map(|wait| dictionaries.wait(connection, wait)).transpose()?;
            entries.push(Entry { call, shape, wait });
        }
        Ok(entries)
    }
}

impl MovedCalls {
    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Gives each call a start after the one before it.
    fn place(&mut self, entries: &[Entry<'_>], mut last_ns: Option<u64>, places: &mut [Place]) {
        self.forget_old();
        for (Entry { call, .. }, place) in entries.iter().zip(places) {
            let start_ns = last_ns.map_or(call.start_ns, |last_ns| call.start_ns.max(last_ns + 1));
            let parent_ns = call.parent_start_ns.map(|parent_ns| self.start_of(call.thread, parent_ns));
            let parent_delta_ns = parent_ns.map(|parent_ns| signed(start_ns) - signed(parent_ns));
            *place = Place { start_ns, parent_delta_ns };
            if start_ns != call.start_ns {
                self.starts.insert((call.thread, call.start_ns), start_ns);
            }
            self.newest_ns = self.newest_ns.max(start_ns);
            last_ns = Some(start_ns);
        }
    }

    fn start_of(&self, thread: ThreadId, start_ns: u64) -> u64 {
        if self.starts.is_empty() {
            return start_ns;
        }
        self.starts.get(&(thread, start_ns)).copied().unwrap_or(start_ns)
    }

    fn forget_old(&mut self) {
        if self.starts.len() < MOST_MOVED {
            return;
        }
        let oldest_ns = self.newest_ns.saturating_sub(CHILD_DELAY_NS);
        self.starts.retain(|_, start_ns| *start_ns >= oldest_ns);
        if self.starts.len() >= MOST_MOVED {
            self.starts.clear();
        }
    }
}

/// A stored call that does not have the start it came with.
struct Move {
    thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
    end_ns: u64,
}

impl Move {
    /// Children finish first, so they may be stored already. They lie within the call.
    fn take_children_along(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "UPDATE calls SET parent_delta_ns = start_ns - ?1
              WHERE start_ns BETWEEN ?2 AND ?3 AND parent_delta_ns = start_ns - ?2 AND start_ns <> ?1
                AND (SELECT thread_id FROM shapes WHERE id = shape_id) = ?4",
        )?;
        let values = params![signed(self.to_ns), signed(self.from_ns), signed(self.end_ns), self.thread.0];
        statement.execute(values).map(drop)
    }
}

fn write_own(connection: &Connection, entries: &[Entry<'_>], places: &[Place]) -> rusqlite::Result<()> {
    let mut rows = entries.iter().zip(places).filter_map(|(entry, place)| Some((place, entry.call.own.as_ref()?)));
    rows.try_for_each(|(place, own)| own::write(connection, place.start_ns, own))
}

fn moves(entries: &[Entry<'_>], places: &[Place]) -> impl Iterator<Item = Move> {
    let pairs = entries.iter().zip(places).filter(|(entry, place)| entry.call.start_ns != place.start_ns);
    pairs.map(|(Entry { call, .. }, place)| Move {
        thread: call.thread,
        from_ns: call.start_ns,
        to_ns: place.start_ns,
        // Its children may have been moved, too.
        end_ns: place.start_ns.saturating_add(call.duration_ns).saturating_add(1000),
    })
}

/// Inserts up to the first call whose start is taken, and says how many that were.
fn insert_rows(
    connection: &Connection,
    statement: &mut Statement<'_>,
    entries: &[Entry<'_>],
    places: &[Place],
) -> rusqlite::Result<usize> {
    for (row, (entry, place)) in entries.iter().zip(places).enumerate() {
        bind(statement, row * COLUMNS, entry, place)?;
    }
    insert_up_to_taken(connection, statement)
}

fn bind(statement: &mut Statement<'_>, before: usize, entry: &Entry<'_>, place: &Place) -> rusqlite::Result<()> {
    let call = entry.call;
    statement.raw_bind_parameter(before + 1, signed(place.start_ns))?;
    statement.raw_bind_parameter(before + 2, signed(call.duration_ns))?;
    statement.raw_bind_parameter(before + 3, signed(call.runqueue_ns))?;
    statement.raw_bind_parameter(before + 4, signed(call.blocked_ns))?;
    statement.raw_bind_parameter(before + 5, entry.shape)?;
    statement.raw_bind_parameter(before + 6, entry.wait)?;
    statement.raw_bind_parameter(before + 7, call.bytes.map(signed))?;
    statement.raw_bind_parameter(before + 8, call.address.map(bits))?;
    statement.raw_bind_parameter(before + 9, call.ret_code)?;
    statement.raw_bind_parameter(before + 10, place.parent_delta_ns)?;
    statement.raw_bind_parameter(before + 11, call.stack_id.map(|stack| stack.0))
}
