//! A cluster's file, as it is read: sums over any time, events, anybody's SQL.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gpuwhy_fleet::{Event, SUMS, Sums};
use gpuwhy_store::{Answer, Guard, Limits, QueryError, Value};
use rusqlite::types::Value as Parameter;
use rusqlite::{Connection, OpenFlags};

use crate::error::HistoryError;
use crate::file::extents;
use crate::levels::{Extent, LEVELS, Piece, level_for, pieces};

const PATIENCE: Duration = Duration::from_secs(5);
const HOUR_NS: u64 = 3_600_000_000_000;

/// By what sums are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Node,
    /// The kind of GPU.
    Gpu,
    Label(String),
    /// When the hour begins, in nanoseconds since the epoch.
    Hour,
}

/// Sums of all workers that have these keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As they were asked for. None where a worker has no such label, or its GPU is not known.
    pub keys: Vec<Option<String>>,
    pub workers: u64,
    pub sums: Sums,
}

/// What a question read, and of which time.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// Where windows begin and end.
    pub from_ns: u64,
    pub to_ns: u64,
    pub rows: Vec<Row>,
}

pub struct Reading {
    connection: Connection,
    guard: Guard,
    extents: Vec<Extent>,
}

impl Reading {
    pub(crate) fn open(path: &Path) -> Result<Self, HistoryError> {
        let failed = |error| HistoryError::from_sqlite(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        let extents = extents(&connection).map_err(failed)?;
        let guard = Guard::install(&mut connection).map_err(failed)?;
        Ok(Self { connection, guard, extents })
    }

    /// What is read from it stops as soon as this is set.
    pub fn stop_when(&self, cancelled: Arc<AtomicBool>) {
        self.guard.stop_when(cancelled);
    }

    /// One statement of anybody. It can read and nothing else.
    pub fn sql(&self, sql: &str, limits: &Limits) -> Result<Answer, QueryError> {
        self.guard.query(&self.connection, sql, &[], limits)
    }

    /// Sums over a stretch of time, of as fine windows as can be read in a short while.
    pub fn spans(&self, from_ns: u64, to_ns: u64, keys: &[Key], limits: &Limits) -> Result<Spans, QueryError> {
        let has_hours = keys.contains(&Key::Hour);
        let workers = self.number("SELECT count(*) AS number FROM told", limits)?;
        let level = level_for(to_ns.saturating_sub(from_ns), workers);
        let (from_ns, to_ns) = match has_hours {
            true => (from_ns / HOUR_NS * HOUR_NS, to_ns),
            false => (from_ns, to_ns),
        };
        let pieces = pieces(from_ns, to_ns, level, &self.extents);
        let (statement, values) = statement(&pieces, keys, has_hours);
        let limits = Limits { rows: usize::MAX, bytes: usize::MAX, ..*limits };
        let answer = self.guard.query(&self.connection, &statement, &values, &limits)?;
        let rows = answer.rows.into_iter().map(|row| self::row(row, keys.len())).collect();
        let from_ns = pieces.first().map_or(from_ns, |piece| piece.from_ns);
        let to_ns = pieces.last().map_or(to_ns, |piece| piece.to_ns);
        Ok(Spans { from_ns, to_ns, rows })
    }

    /// Events of a stretch of time, the newest first.
    pub fn events(
        &self,
        from_ns: u64,
        to_ns: u64,
        node: Option<&str>,
        kind: Option<&str>,
        most: u64,
        limits: &Limits,
    ) -> Result<Vec<Event>, QueryError> {
        let sql = "SELECT details FROM events WHERE at_ns >= ?1 AND at_ns < ?2 AND (?3 IS NULL OR node = ?3) \
                   AND (?4 IS NULL OR kind = ?4) ORDER BY at_ns DESC, event DESC LIMIT ?5";
        let text = |text: Option<&str>| text.map_or(Parameter::Null, |text| Parameter::Text(text.to_owned()));
        let whole = |number: u64| Parameter::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        let values = [whole(from_ns), whole(to_ns), text(node), text(kind), whole(most)];
        let limits = Limits { rows: usize::MAX, ..*limits };
        let answer = self.guard.query(&self.connection, sql, &values, &limits)?;
        let event = |row: Vec<Value>| match row.into_iter().next() {
            Some(Value::Text(details)) => serde_json::from_str(&details).ok(),
            _ => None,
        };
        Ok(answer.rows.into_iter().filter_map(event).collect())
    }

    fn number(&self, sql: &str, limits: &Limits) -> Result<u64, QueryError> {
        let answer = self.guard.query(&self.connection, sql, &[], limits)?;
        Ok(match answer.rows.first().and_then(|row| row.first()) {
            Some(Value::Integer(number)) => u64::try_from(*number).unwrap_or(0),
            _ => 0,
        })
    }
}

/// Adds up each worker first, and then those that have the same keys.
fn statement(pieces: &[Piece], keys: &[Key], has_hours: bool) -> (String, Vec<Parameter>) {
    let names: Vec<&str> = SUMS.iter().map(|sum| sum.name).collect();
    let sums: Vec<String> = names.iter().map(|name| format!("sum({name}) AS {name}")).collect();
    let (names, sums) = (names.join(", "), sums.join(", "));
    let hour = if has_hours { "start_ns / 3600000000000 * 3600000000000" } else { "0" };
    let of_piece = |table: &str| {
        format!("SELECT {hour} AS hour, worker, {names} FROM {table} WHERE start_ns >= ? AND start_ns < ?")
    };
    let key = |key: &Key| match key {
        Key::Node => "node",
        Key::Gpu => "gpu",
        Key::Hour => "CAST(hour AS TEXT)",
        Key::Label(_) => "(SELECT value FROM labels WHERE labels.worker = w.worker AND key = ?)",
    };
    let columns: String = keys.iter().enumerate().map(|(at, one)| format!("{} AS k{at}, ", key(one))).collect();
    let groups: Vec<String> = (0..keys.len()).map(|at| format!("k{at}")).collect();
    let group = if groups.is_empty() { String::new() } else { format!(" GROUP BY {}", groups.join(", ")) };
    // A stretch of no time is an empty piece.
    let nothing = [Piece { level: 0, from_ns: 0, to_ns: 0 }];
    let pieces = if pieces.is_empty() { &nothing } else { pieces };
    let of_pieces: Vec<String> = pieces.iter().map(|piece| of_piece(LEVELS[piece.level].table)).collect();
    let sql = format!(
        "SELECT {columns}count(DISTINCT w.worker) AS workers, {sums} FROM \
         (SELECT hour, worker, {sums} FROM ({}) GROUP BY hour, worker) AS s JOIN workers AS w ON w.worker = s.worker{group}",
        of_pieces.join(" UNION ALL ")
    );
    let labels = keys.iter().filter_map(|key| match key {
        Key::Label(label) => Some(Parameter::Text(label.clone())),
        _ => None,
    });
    let bounds = pieces.iter().flat_map(|piece| [piece.from_ns, piece.to_ns]);
    (sql, labels.chain(bounds.map(|ns| Parameter::Integer(ns.cast_signed()))).collect())
}

fn row(cells: Vec<Value>, keys: usize) -> Row {
    let whole = |value: Value| match value {
        Value::Integer(number) => u64::try_from(number).unwrap_or(0),
        _ => 0,
    };
    let mut cells = cells.into_iter();
    let keys = cells.by_ref().take(keys);
    let keys = keys.map(|key| if let Value::Text(text) = key { Some(text) } else { None }).collect();
    let workers = cells.next().map_or(0, whole);
    let mut sums = Sums::default();
    sums.0.iter_mut().zip(cells).for_each(|(sum, cell)| *sum = whole(cell));
    Row { keys, workers, sums }
}
