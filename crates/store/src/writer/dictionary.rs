//! What many rows have in common is stored once and cited by a small number.
//!
//! A dictionary forgets everything when it is full and goes on with new numbers, so that it stays small in memory. The
//! rows of a forgotten generation are cited by no row that starts later than its end, so retention can delete them
//! together with those rows.

use std::hash::Hash;

use gpuwhy_model::{Call, Direction, ModuleId, OpId, ThreadId, Wait, WaitTarget};
use hashbrown::HashMap;
use rusqlite::{Connection, params};

use super::bits;
use super::names::next_id;
use super::retention::Cap;

const MOST_ENTRIES: usize = 1 << 16;

/// Their names take memory, too.
const MOST_TARGETS: usize = 1 << 15;

pub(super) struct Dictionaries {
    pub shapes: Dictionary<Shape>,
    pub waits: Dictionary<Wait>,
    /// Cited by stretches and kernel work. Its rows survive a failed write, see `names`.
    pub targets: Dictionary<WaitTarget>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    thread: ThreadId,
    op: OpId,
    device: Option<u16>,
    stream: Option<u64>,
    direction: Option<Direction>,
    handle: Option<u64>,
    caller: Option<ModuleId>,
}

pub(super) struct Dictionary<Key> {
    ids: HashMap<Key, u32>,
    next: u32,
    most: usize,
    retired: Vec<Generation>,
}

struct Generation {
    last_id: u32,
    last_start_ns: u64,
}

impl Dictionaries {
    pub fn load(connection: &Connection, cap: Option<&Cap>) -> rusqlite::Result<Self> {
        let newest = newest_start(connection, "calls")?;
        let newest_record = newest_start(connection, "stretches")?.max(newest_start(connection, "kernel_work")?);
        let most = cap.map_or(MOST_ENTRIES, |cap| cap.dictionary_entries().min(MOST_ENTRIES));
        let most_targets = cap.map_or(MOST_TARGETS, |cap| cap.target_entries().min(MOST_TARGETS));
        Ok(Self {
            shapes: Dictionary::new(next_id(connection, "shapes")?, most, newest),
            waits: Dictionary::new(next_id(connection, "waits")?, most, newest),
            targets: Dictionary::new(next_id(connection, "wait_targets")?, most_targets, newest_record),
        })
    }

    /// Forgets what calls have in common. No call that was written so far starts after `newest_ns`.
    pub fn retire(&mut self, newest_ns: u64) {
        self.shapes.retire(newest_ns);
        self.waits.retire(newest_ns);
    }

    /// Makes room for a batch.
    pub fn retire_full(&mut self, newest_ns: u64) {
        if self.shapes.is_full() || self.waits.is_full() {
            self.retire(newest_ns);
        }
    }

    /// Makes room for more targets. No stretch or kernel work that cites one so far starts after `newest_ns`.
    pub fn retire_full_targets(&mut self, newest_ns: u64) {
        if self.targets.is_full() {
            self.targets.retire(newest_ns);
        }
    }

    pub fn shape(&mut self, connection: &Connection, session: i64, call: &Call) -> rusqlite::Result<u32> {
        self.shapes.id(Shape::of(call), |id, shape| shape.insert(connection, session, id))
    }

    pub fn wait(&mut self, connection: &Connection, wait: Wait) -> rusqlite::Result<u32> {
        self.waits.id(wait, |id, wait| {
            let mut statement = connection.prepare_cached("INSERT INTO waits VALUES (?, ?, ?, ?)")?;
            let reason = wait.reason.map(|reason| reason.as_str());
            let (woken_by, preempted_by) = (wait.woken_by.map(|t| t.0), wait.preempted_by.map(|t| t.0));
            statement.execute(params![id, reason, woken_by, preempted_by]).map(drop)
        })
    }
}

impl<Key: Eq + Hash> Dictionary<Key> {
    fn new(next: u32, most: usize, newest_ns: u64) -> Self {
        let earlier = Generation { last_id: next - 1, last_start_ns: newest_ns };
        Self { ids: HashMap::new(), next, most, retired: vec![earlier] }
    }

    fn id(&mut self, key: Key, insert: impl FnOnce(u32, &Key) -> rusqlite::Result<()>) -> rusqlite::Result<u32> {
        if let Some(id) = self.find(&key) {
            return Ok(id);
        }
        insert(self.next, &key)?;
        Ok(self.add(key))
    }

    pub fn find(&self, key: &Key) -> Option<u32> {
        self.ids.get(key).copied()
    }

    /// The id that the next new entry gets.
    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn add(&mut self, key: Key) -> u32 {
        let id = self.next;
        self.next += 1;
        self.ids.insert(key, id);
        id
    }

    fn is_full(&self) -> bool {
        self.ids.len() >= self.most
    }

    fn retire(&mut self, newest_ns: u64) {
        if !self.ids.is_empty() {
            self.ids.clear();
            self.retired.push(Generation { last_id: self.next - 1, last_start_ns: newest_ns });
        }
    }

    /// The last id that no row starting at or after `oldest_ns` cites. It is named once.
    pub fn take_expired(&mut self, oldest_ns: u64) -> Option<u32> {
        let expired = self.retired.iter().take_while(|generation| generation.last_start_ns < oldest_ns).count();
        self.retired.drain(..expired).next_back().map(|generation| generation.last_id)
    }
}

impl Shape {
    fn of(call: &Call) -> Self {
        Self {
            thread: call.thread,
            op: call.op,
            device: call.device,
            stream: call.stream,
            direction: call.direction,
            handle: call.handle,
            caller: call.caller,
        }
    }

    fn insert(&self, connection: &Connection, session: i64, id: u32) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached("INSERT INTO shapes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
        let values = params![
            id,
            session,
            self.thread.0,
            self.op.0,
            self.device,
            self.stream.map(bits),
            self.direction.map(|direction| direction.as_str()),
            self.handle.map(bits),
            self.caller.map(|module| module.0),
        ];
        statement.execute(values).map(drop)
    }
}

/// The latest start of a row that may cite a stack.
pub(super) fn newest_event(connection: &Connection) -> rusqlite::Result<u64> {
    Ok(newest_start(connection, "calls")?.max(newest_start(connection, "stretches")?))
}

fn newest_start(connection: &Connection, table: &'static str) -> rusqlite::Result<u64> {
    let newest: Option<i64> =
        connection.query_row(&format!("SELECT MAX(start_ns) FROM {table}"), [], |row| row.get(0))?;
    Ok(newest.unwrap_or(0).cast_unsigned())
}
