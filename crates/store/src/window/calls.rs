//! Single calls: samples that show their order, those that moved memory, and the worst ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gpuwhy_model::{Call, CallClass, Direction, ModuleId, OpId, Span, StackId, ThreadId};
use gpuwhy_window::{CallSecond, Window};
use rusqlite::Row;

use super::source::{Source, bits, id, signed, unsigned, word};

const MOST_CALLS: usize = 100_000;
const MOST_MEMORY_CALLS: usize = 200_000;

/// How many threads' functions, and how many seconds, are searched for single calls outside of the samples.
const MOST_SEARCHES: usize = 6;
const MOST_FOUND: i64 = 32;

/// A call is counted in the second it ends in.
const SEARCH_BEFORE_NS: u64 = 1_000_000_000;
const SEARCH_AFTER_NS: u64 = 1_500_000_000;

/// The index exists since version 3. Without it every call would have to be looked at.
const MEMORY_INDEX: &str = "calls INDEXED BY calls_memory";

const COLUMNS: &str = "calls.start_ns, calls.shape_id, calls.duration_ns, calls.runqueue_ns, calls.blocked_ns,
    calls.bytes, calls.address, calls.ret_code, calls.parent_delta_ns, calls.stack_id";

const SHAPE: &str = "SELECT thread_id, op_id, device, stream, direction, handle, module_id FROM shapes WHERE id = ?";

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let span = Span { from_ns: window.from_ns, to_ns: window.to_ns };
    let mut shapes = Shapes { source, known: HashMap::new() };
    let mut call = |row: &Row<'_>| shapes.call(row);
    window.calls = source.covered(&in_time("calls", ""), span, MOST_CALLS, &mut call)?;
    if source.has("stretches", "start_ns") {
        let sql = in_time(MEMORY_INDEX, "AND address IS NOT NULL");
        window.memory_calls = source.covered(&sql, span, MOST_MEMORY_CALLS, &mut call)?;
    }
    if window.calls.spans != [span] {
        find_slowest(&mut shapes, window)?;
        find_failed(&mut shapes, window)?;
    }
    Ok(())
}

fn in_time(table: &str, condition: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM {table}
         WHERE calls.start_ns >= ? AND calls.start_ns < ? {condition} ORDER BY calls.start_ns LIMIT ?"
    )
}

/// The longest call of each of the functions that took most time.
fn find_slowest(shapes: &mut Shapes<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let mut sums: Vec<_> = window.call_sums.iter().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.sum_ns));
    let worst = |thread, op| {
        let seconds = window.call_seconds.iter().filter(|second| second.thread == thread && second.op == op);
        seconds.max_by_key(|second| second.max_ns).copied()
    };
    let seconds: Vec<_> = sums.iter().take(MOST_SEARCHES).filter_map(|sum| worst(sum.thread, sum.op)).collect();
    for second in seconds {
        let condition = format!("AND calls.duration_ns >= {}", signed(second.max_ns - second.max_ns / 64));
        search(shapes, window, &second, &condition)?;
    }
    Ok(())
}

/// Allocations that failed, in the first and the last seconds in which some did.
fn find_failed(shapes: &mut Shapes<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let is_alloc = |op| window.ops.get(&op).is_some_and(|op| op.meaning.class == CallClass::Alloc);
    let failed = window.call_seconds.iter().filter(|second| second.errors > 0 && is_alloc(second.op));
    let failed: Vec<CallSecond> = failed.copied().collect();
    let last = failed.len().saturating_sub(MOST_SEARCHES / 2);
    for (at, second) in failed.iter().enumerate() {
        if at < MOST_SEARCHES / 2 || at >= last {
            search(shapes, window, second, "AND calls.ret_code <> 0")?;
        }
    }
    Ok(())
}

/// Adds calls of one thread and function around a second that are not there yet.
fn search(shapes: &mut Shapes<'_>, window: &mut Window, second: &CallSecond, condition: &str) -> rusqlite::Result<()> {
    let (thread, op) = (second.thread.0, second.op.0);
    let of_both = format!("SELECT id FROM shapes WHERE thread_id = {thread} AND op_id = {op}");
    let sql = in_time("calls", &format!("{condition} AND +calls.shape_id IN ({of_both})"));
    let from_ns = second.bucket_ns.saturating_sub(SEARCH_BEFORE_NS).max(window.from_ns);
    let to_ns = second.bucket_ns.saturating_add(SEARCH_AFTER_NS).min(window.to_ns);
    let rows = &window.calls.rows;
    let is_new = |call: &Call| rows.binary_search_by_key(&call.start_ns, |known| known.start_ns).is_err();
    let mut found = Vec::new();
    shapes.source.each(&sql, [signed(from_ns), signed(to_ns), MOST_FOUND], |row| {
        found.extend(shapes.call(row)?.filter(is_new));
        Ok(())
    })?;
    window.calls.rows.append(&mut found);
    window.calls.rows.sort_by_key(|call| call.start_ns);
    Ok(())
}

/// Calls have one of few shapes each: it is quicker to keep those than to join them.
struct Shapes<'s> {
    source: &'s Source<'s>,
    /// A call without any time for each shape that has been met, `None` for those that make no sense.
    known: HashMap<i64, Option<Call>>,
}

impl Shapes<'_> {
    fn call(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Call>> {
        let shape_id = row.get(1)?;
        let shape = match self.known.entry(shape_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(shape(self.source, shape_id)?),
        };
        shape.as_ref().map(|shape| of_shape(shape, row)).transpose()
    }
}

fn shape(source: &Source<'_>, shape_id: i64) -> rusqlite::Result<Option<Call>> {
    let mut found = None;
    source.each(SHAPE, [shape_id], |row| {
        let (Some(thread), Some(op)) = (id(row, 0)?, id(row, 1)?) else { return Ok(()) };
        found = Some(Call {
            device: id(row, 2)?.and_then(|device| u16::try_from(device).ok()),
            stream: bits(row, 3)?,
            direction: word(row, 4, Direction::ALL, Direction::as_str)?,
            handle: bits(row, 5)?,
            caller: id(row, 6)?.map(ModuleId),
            ..Call::new(ThreadId(thread), OpId(op), 0, 0)
        });
        Ok(())
    })?;
    Ok(found)
}

fn of_shape(shape: &Call, row: &Row<'_>) -> rusqlite::Result<Call> {
    let start_ns = unsigned(row, 0)?;
    Ok(Call {
        start_ns,
        duration_ns: unsigned(row, 2)?,
        runqueue_ns: unsigned(row, 3)?,
        blocked_ns: unsigned(row, 4)?,
        bytes: bits(row, 5)?,
        address: bits(row, 6)?,
        ret_code: i32::try_from(row.get::<_, i64>(7)?).unwrap_or(i32::MAX),
        parent_start_ns: bits(row, 8)?.map(|delta| start_ns.saturating_sub(delta)),
        stack_id: id(row, 9)?.map(StackId),
        ..shape.clone()
    })
}
