//! All calls and waits of a span one after the other, as little of each as a drawing needs. A million take a fraction of
//! a second, and nothing of them is kept.

use gpuwhy_model::{OpId, Span, ThreadId, WaitReason};
use hashbrown::HashMap;
use rusqlite::{Connection, Row};

use crate::window::source::{id, signed, unsigned, word};
use crate::{Limits, QueryError, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpan {
    pub start_ns: u64,
    pub duration_ns: u64,
    pub thread: ThreadId,
    pub op: OpId,
}

/// A stretch off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSpan {
    pub start_ns: u64,
    pub thread: ThreadId,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub is_throttled: bool,
    /// `None` when it was preempted.
    pub reason: Option<WaitReason>,
    pub woken_by: Option<ThreadId>,
    /// Time off the CPU that the record stands for, with shorter stretches that got none.
    pub all_ns: u64,
}

/// How long before a span a record may have begun that reaches into it. Beyond, it is not looked for.
const MOST_BEFORE_NS: u64 = 30_000_000_000;

impl Trace {
    /// Kept calls in the order of their start, with those that began before the span and reach into it.
    pub fn each_call(&self, span: Span, limits: &Limits, mut take: impl FnMut(CallSpan)) -> Result<(), QueryError> {
        self.watched(limits, |connection| {
            let shapes = Shapes::load(connection)?;
            let mut call = |row: &Row<'_>| {
                let Some(&(thread, op)) = shapes.0.get(&row.get::<_, i64>(2)?) else { return Ok(()) };
                take(CallSpan { start_ns: unsigned(row, 0)?, duration_ns: unsigned(row, 1)?, thread, op });
                Ok(())
            };
            let columns = "start_ns, duration_ns, shape_id";
            let before = longest_before(connection, span)?;
            let sql = in_time(columns, "calls", "AND start_ns + duration_ns > ?3");
            each(connection, &sql, &[before, signed(span.from_ns), signed(span.from_ns)], &mut call)?;
            each(connection, &in_time(columns, "calls", ""), &bounds(span), &mut call)
        })
    }

    /// Stretches off the CPU in the same way.
    pub fn each_wait(&self, span: Span, limits: &Limits, mut take: impl FnMut(WaitSpan)) -> Result<(), QueryError> {
        self.watched(limits, |connection| {
            let mut wait = |row: &Row<'_>| {
                let Some(thread) = id(row, 1)? else { return Ok(()) };
                take(read_wait(row, ThreadId(thread))?);
                Ok(())
            };
            let columns = "start_ns, thread_id, blocked_ns, runqueue_ns, is_throttled, reason, woken_by_thread_id,
                all_blocked_ns + all_runqueue_ns";
            let before = signed(span.from_ns.saturating_sub(MOST_BEFORE_NS));
            let sql = in_time(columns, "stretches", "AND start_ns + blocked_ns + runqueue_ns > ?3");
            each(connection, &sql, &[before, signed(span.from_ns), signed(span.from_ns)], &mut wait)?;
            each(connection, &in_time(columns, "stretches", ""), &bounds(span), &mut wait)
        })
    }
}

fn read_wait(row: &Row<'_>, thread: ThreadId) -> rusqlite::Result<WaitSpan> {
    Ok(WaitSpan {
        start_ns: unsigned(row, 0)?,
        thread,
        blocked_ns: unsigned(row, 2)?,
        runqueue_ns: unsigned(row, 3)?,
        is_throttled: row.get::<_, i64>(4)? != 0,
        reason: word(row, 5, WaitReason::ALL, WaitReason::as_str)?,
        woken_by: id(row, 6)?.map(ThreadId),
        all_ns: unsigned(row, 7)?,
    })
}

/// Whose call of what a shape is. Read once: a look-up by the database for each call would take most of the time.
struct Shapes(HashMap<i64, (ThreadId, OpId)>);

impl Shapes {
    fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut shapes = HashMap::new();
        each(connection, "SELECT id, thread_id, op_id FROM shapes", &[], &mut |row| {
            if let (Some(thread), Some(op)) = (id(row, 1)?, id(row, 2)?) {
                shapes.insert(row.get(0)?, (ThreadId(thread), OpId(op)));
            }
            Ok(())
        })?;
        Ok(Self(shapes))
    }
}

/// The earliest start of a call that may reach into the span. A call is counted in the second it ends in.
fn longest_before(connection: &Connection, span: Span) -> rusqlite::Result<i64> {
    let sql = "SELECT max(max_ns) FROM call_counts WHERE bucket_ns >= ?";
    let second_before = signed(span.from_ns.saturating_sub(1_500_000_000));
    let longest: Option<i64> = connection.query_row(sql, [second_before], |row| row.get(0))?;
    let longest = longest.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
    Ok(signed(span.from_ns.saturating_sub(longest.min(MOST_BEFORE_NS))))
}

fn in_time(columns: &str, table: &str, condition: &str) -> String {
    format!("SELECT {columns} FROM {table} WHERE start_ns >= ?1 AND start_ns < ?2 {condition} ORDER BY start_ns")
}

fn bounds(span: Span) -> [i64; 2] {
    [signed(span.from_ns), signed(span.to_ns)]
}

fn each(
    connection: &Connection,
    sql: &str,
    values: &[i64],
    take: &mut impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}
