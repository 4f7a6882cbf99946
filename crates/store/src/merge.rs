//! Several traces in one file: what several hosts saw of one job, in one time.
//!
//! Ids of rows are given anew, times are moved by what the clock of the host is off, and rows that are told apart by their
//! time alone get out of each other's way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpuwhy_model::{Column, TableFacts};
use hashbrown::HashMap;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Statement, params_from_iter};

use crate::lock::WriterLock;
use crate::schema::{self, Table};
use crate::writer::connect_again;
use crate::{StoreError, Trace};

/// Descriptions that a file makes for itself, and findings, which are about one file as it was.
const LEFT_BEHIND: &[&str] = &["schema_tables", "schema_columns", "explanations"];

/// Tables whose rows mean the same in every file, by the columns that tell them apart.
const SHARED: &[(&str, &str)] = &[("ops", "name, layer"), ("modules", "path, is_runtime")];

/// How columns that cite a row of another table end, and which table that is.
const CITED: &[(&str, &str)] = &[
    ("session_id", "sessions"),
    ("process_id", "processes"),
    ("thread_id", "threads"),
    ("module_id", "modules"),
    ("op_id", "ops"),
    ("shape_id", "shapes"),
    ("wait_id", "waits"),
    ("target_id", "wait_targets"),
    ("stack_id", "stacks"),
    ("frame_id", "frames"),
    ("series_id", "sample_series"),
];

const SECOND_NS: i64 = 1_000_000_000;

/// A trace that becomes a part of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    /// What to add to its times.
    pub shift_ns: i64,
    /// By how much they may be wrong then. `None` where nobody knows.
    pub error_ns: Option<u64>,
}

/// Makes a new file of several. `copied` is told after each part. Nothing is left of a file that could not be finished.
pub fn merge(parts: &[Part], into: &Path, mut copied: impl FnMut(usize)) -> Result<(), StoreError> {
    let into = std::path::absolute(into).map_err(|error| StoreError::from_io(into, error))?;
    let lock = WriterLock::take(&into)?;
    if !lock.created() {
        return Err(StoreError::Exists { path: into });
    }
    let mut write = || {
        let connection = connect_again(&into, &lock)?;
        let failed = |error| StoreError::from_sqlite(&into, error);
        // What is not finished is deleted: there is nothing to go back to.
        connection.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
        for (at, part) in parts.iter().enumerate() {
            add(&connection, &into, part)?;
            copied(at);
        }
        Ok(())
    };
    let sync = |()| lock.file().sync_all().map_err(|error| StoreError::from_io(&into, error));
    write().and_then(sync).inspect_err(|_| {
        // Nobody else has the file: it was made a moment ago and is locked.
        let _ = std::fs::remove_file(&into);
    })
}

fn add(into: &Connection, path: &Path, part: &Part) -> Result<(), StoreError> {
    let trace = Trace::open_as_newest(&part.path)?;
    let copied = trace.at_one_moment(|from| {
        let again = session_again(into, from)?;
        if again.is_none() {
            let transaction = into.unchecked_transaction()?;
            Copy::new(into, from, part)?.all()?;
            transaction.commit()?;
        }
        Ok(again)
    });
    match copied.map_err(|error| StoreError::from_sqlite(&part.path, error)) {
        Ok(None) => Ok(()),
        Ok(Some(host)) => Err(StoreError::MergedTwice { path: part.path.clone(), host }),
        // The part is only read.
        Err(StoreError::DiskFull { .. }) => Err(StoreError::DiskFull { path: path.into() }),
        Err(error) => Err(error),
    }
}

/// The host of a run of the tracer that is there already.
fn session_again(into: &Connection, from: &Connection) -> rusqlite::Result<Option<String>> {
    let mut there = into.prepare(
        "SELECT host FROM sessions WHERE boot_id = ? AND command = ? AND started_ns - coalesce(clock_shift_ns, 0) = ?",
    )?;
    let mut own = from.prepare("SELECT boot_id, command, started_ns - coalesce(clock_shift_ns, 0) FROM sessions")?;
    let mut rows = own.query([])?;
    while let Some(row) = rows.next()? {
        let key: (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if let Some(host) = there.query_row(key, |row| row.get(0)).optional()? {
            return Ok(Some(host));
        }
    }
    Ok(None)
}

/// What becomes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Keep,
    Time,
    /// The beginning of a second, as a rule.
    Bucket,
    /// An id of a row of that table, or of the row itself.
    Cites(&'static str),
    /// The distance to the call that a call was made inside of.
    ToParent,
    /// What to add to the kernel's time for Unix time, or what was added to times already.
    Shift,
    Error,
}

impl Change {
    fn of(table: &Table, column: &Column) -> Self {
        match (table.facts.name, column.name) {
            ("calls", "parent_delta_ns") => Self::ToParent,
            ("clock_anchors", "unix_offset_ns") | ("sessions", "clock_shift_ns") => Self::Shift,
            ("sessions", "clock_error_ns") => Self::Error,
            (name, "id") => Self::Cites(name),
            (_, name) if column.unit != "ns since epoch" => cited(name).map_or(Self::Keep, Self::Cites),
            (_, "bucket_ns") => Self::Bucket,
            _ => Self::Time,
        }
    }
}

/// The table that a column cites a row of.
fn cited(column: &str) -> Option<&'static str> {
    CITED.iter().find(|(end, _)| column.ends_with(end)).map(|(_, table)| *table)
}

/// One part on its way into the file.
struct Copy<'c> {
    into: &'c Connection,
    from: &'c Connection,
    part: &'c Part,
    /// What to add to the ids of each table.
    offsets: BTreeMap<&'static str, i64>,
    /// New ids of rows that are there already, by table and id.
    shared: HashMap<(&'static str, i64), i64>,
    /// New starts of calls that had to get out of the way, by the old ones.
    moved: HashMap<i64, i64>,
}

impl<'c> Copy<'c> {
    fn new(into: &'c Connection, from: &'c Connection, part: &'c Part) -> rusqlite::Result<Self> {
        let mut offsets = BTreeMap::new();
        for table in schema::tables().filter(|table| table.facts.key == ["id"]) {
            let sql = format!("SELECT coalesce(max(id), 0) FROM {}", table.facts.name);
            offsets.insert(table.facts.name, into.query_row(&sql, [], |row| row.get(0))?);
        }
        Ok(Self { into, from, part, offsets, shared: HashMap::new(), moved: HashMap::new() })
    }

    fn all(&mut self) -> rusqlite::Result<()> {
        for (table, key) in SHARED {
            self.find_shared(table, key)?;
        }
        schema::tables()
            .filter(|table| !LEFT_BEHIND.contains(&table.facts.name))
            .try_for_each(|table| self.table(table))
    }

    fn find_shared(&mut self, table: &'static str, key: &str) -> rusqlite::Result<()> {
        let mut there = self.into.prepare(&format!("SELECT id FROM {table} WHERE ({key}) = (?, ?)"))?;
        let mut own = self.from.prepare(&format!("SELECT id, {key} FROM {table}"))?;
        let mut rows = own.query([])?;
        while let Some(row) = rows.next()? {
            let found = there.query_row((row.get::<_, Value>(1)?, row.get::<_, Value>(2)?), |row| row.get(0));
            if let Some(found) = found.optional()? {
                self.shared.insert((table, row.get(0)?), found);
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Table) -> rusqlite::Result<()> {
        let TableFacts { name, key, .. } = table.facts;
        let changes: Vec<Change> = table.columns.iter().map(|column| Change::of(table, column)).collect();
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        let order = if key.is_empty() { String::new() } else { format!("ORDER BY {}", key.join(", ")) };
        let mut read = self.from.prepare(&format!("SELECT {} FROM {name} {order}", columns.join(", ")))?;
        let marks = vec!["?"; columns.len()].join(", ");
        // What is told of a call that is not there may be told of one of another part: then it is that one's.
        let insert = if schema::is_of_calls(name) { "INSERT OR IGNORE" } else { "INSERT" };
        let mut write = self.into.prepare(&format!("{insert} INTO {name} VALUES ({marks})"))?;
        let is_told_by_time = key.len() == 1 && changes[0] == Change::Time;
        let mut last_ns = i64::MIN;
        let mut rows = read.query([])?;
        while let Some(row) = rows.next()? {
            let values = (0..columns.len()).map(|at| row.get(at));
            let mut values: Vec<Value> = values.collect::<rusqlite::Result<_>>()?;
            if self.is_there(table, &values[0]) {
                continue;
            }
            let old_ns = integer(&values[0]);
            values.iter_mut().zip(&changes).for_each(|(value, change)| self.change(value, *change, old_ns));
            if schema::is_of_calls(name) {
                values[0] = Value::Integer(self.start_of(old_ns));
            } else if is_told_by_time {
                last_ns = insert_when_free(&mut write, &mut values, &changes, last_ns)?;
                if name == "calls" && last_ns != old_ns.saturating_add(self.part.shift_ns) {
                    self.moved.insert(old_ns, last_ns);
                }
                continue;
            }
            write.execute(params_from_iter(&values))?;
        }
        Ok(())
    }

    /// Whether a row means the same as one that is there already.
    fn is_there(&self, table: &Table, id: &Value) -> bool {
        table.facts.key == ["id"] && self.shared.contains_key(&(table.facts.name, integer(id)))
    }

    /// Where a call of the part went.
    fn start_of(&self, call_ns: i64) -> i64 {
        self.moved.get(&call_ns).copied().unwrap_or_else(|| call_ns.saturating_add(self.part.shift_ns))
    }

    /// `start_ns` is the first column of the row as it was.
    fn change(&self, value: &mut Value, change: Change, start_ns: i64) {
        let shift_ns = self.part.shift_ns;
        let changed = match (change, &*value) {
            (Change::Shift, Value::Null) => shift_ns,
            (Change::Shift, Value::Integer(ns)) => ns.saturating_add(shift_ns),
            (Change::Error, before) => {
                let error_ns = self.part.error_ns.and_then(|error_ns| i64::try_from(error_ns).ok());
                *value = error_ns.map_or(Value::Null, |error_ns| Value::Integer(error_ns + integer(before)));
                return;
            }
            // A time that is not known.
            (Change::Time, Value::Integer(0)) => return,
            // A whole second remains one: others are added up with it.
            (Change::Bucket, Value::Integer(ns)) if ns % SECOND_NS == 0 => ns.saturating_add(whole_seconds(shift_ns)),
            (Change::Time | Change::Bucket, Value::Integer(ns)) => ns.saturating_add(shift_ns),
            (Change::Cites(table), Value::Integer(id)) => {
                let offset = self.offsets.get(table).copied().unwrap_or(0);
                self.shared.get(&(table, *id)).copied().unwrap_or(id + offset)
            }
            // Until the call itself has its place: where the other one went.
            (Change::ToParent, Value::Integer(delta_ns)) => self.start_of(start_ns.saturating_sub(*delta_ns)),
            _ => return,
        };
        *value = Value::Integer(changed);
    }
}

/// Writes a row at its time, or as soon after as no other row is there. Rows keep their order.
fn insert_when_free(
    write: &mut Statement<'_>,
    values: &mut [Value],
    changes: &[Change],
    last_ns: i64,
) -> rusqlite::Result<i64> {
    let parent_at = changes.iter().position(|change| *change == Change::ToParent);
    let parent_ns = parent_at.and_then(|at| if let Value::Integer(ns) = values[at] { Some((at, ns)) } else { None });
    let mut at_ns = integer(&values[0]).max(last_ns.saturating_add(1));
    loop {
        values[0] = Value::Integer(at_ns);
        if let Some((at, parent_ns)) = parent_ns {
            values[at] = Value::Integer(at_ns.saturating_sub(parent_ns).max(0));
        }
        match write.execute(params_from_iter(&*values)) {
            Ok(_) => return Ok(at_ns),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => at_ns += 1,
            Err(error) => return Err(error),
        }
    }
}

fn whole_seconds(ns: i64) -> i64 {
    ns.saturating_add(SECOND_NS / 2).div_euclid(SECOND_NS) * SECOND_NS
}

fn integer(value: &Value) -> i64 {
    if let Value::Integer(value) = value { *value } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_that_cites_a_row_is_known_to_do_so() {
        for table in schema::tables() {
            for column in &table.columns {
                let says = |cited: &str| column.description.contains(&format!("`{cited}.id`"));
                let found = cited(column.name);
                let (name, column_name) = (table.facts.name, column.name);
                for (_, cited) in CITED.iter().filter(|(_, cited)| says(cited)) {
                    assert_eq!(found, Some(*cited), "{name}.{column_name}");
                }
                assert!(found.is_none_or(says), "{name}.{column_name} cites {found:?}");
            }
        }
    }

    #[test]
    fn rows_that_are_told_apart_by_time_begin_with_it() {
        for table in schema::tables().filter(|table| table.facts.key == ["start_ns"]) {
            assert_eq!(Change::of(table, &table.columns[0]), Change::Time, "{}", table.facts.name);
        }
    }

    #[test]
    fn seconds_remain_seconds() {
        assert_eq!(whole_seconds(1_400_000_000), SECOND_NS);
        assert_eq!(whole_seconds(-1_600_000_000), -2 * SECOND_NS);
    }
}
