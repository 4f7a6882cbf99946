//! Stretches off the CPU, kernel work and block I/O.

use gpuwhy_model::{
    CpuTaker, IoRequest, KernelWork, OpId, Span, StackId, StandsFor, Stretch, TargetId, ThreadId, WaitReason, WorkKind,
};
use gpuwhy_window::Window;
use rusqlite::Row;

use super::source::{Source, id, unsigned, word};

/// The most rows that are kept in memory, about 130 bytes each.
const MOST_STRETCHES: usize = 500_000;
const MOST_WORK: usize = 100_000;
const MOST_REQUESTS: usize = 50_000;

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("stretches", "start_ns") {
        window.gaps.push("the file is of an earlier version, without waits and who ended them".to_owned());
        return Ok(());
    }
    let span = Span { from_ns: window.from_ns, to_ns: window.to_ns };
    let [stack, waker_stack] = ["stack_id", "waker_stack_id"].map(|id| source.column_or("stretches", id, "NULL"));
    let sql = format!(
        "SELECT start_ns, thread_id, blocked_ns, runqueue_ns, is_throttled, reason, op_id, target_id,
          woken_by_thread_id, taken_by_thread_id, taken_by_ns, also_taken_by_thread_id, also_taken_by_ns, all_count,
          all_blocked_ns, all_runqueue_ns, {stack}, {waker_stack}
        FROM stretches WHERE start_ns >= ? AND start_ns < ? ORDER BY start_ns LIMIT ?"
    );
    window.stretches = source.covered(&sql, span, MOST_STRETCHES, stretch)?;
    let sql = "SELECT start_ns, thread_id, kind, duration_ns, op_id, target_id, code, all_count, all_ns
        FROM kernel_work WHERE start_ns >= ? AND start_ns < ? ORDER BY start_ns LIMIT ?";
    window.kernel_work = source.covered(sql, span, MOST_WORK, work)?;
    let sql = "SELECT start_ns, duration_ns, device, bytes, is_write, issuer_thread_id, waiter_thread_id
        FROM io_requests WHERE start_ns >= ? AND start_ns < ? ORDER BY start_ns LIMIT ?";
    window.io_requests = source.covered(sql, span, MOST_REQUESTS, request)?;
    Ok(())
}

fn stretch(row: &Row<'_>) -> rusqlite::Result<Option<Stretch>> {
    let Some(thread) = id(row, 1)? else { return Ok(None) };
    Ok(Some(Stretch {
        start_ns: unsigned(row, 0)?,
        thread: ThreadId(thread),
        blocked_ns: unsigned(row, 2)?,
        runqueue_ns: unsigned(row, 3)?,
        is_throttled: row.get::<_, i64>(4)? != 0,
        reason: word(row, 5, WaitReason::ALL, WaitReason::as_str)?,
        op: id(row, 6)?.map(OpId),
        target: id(row, 7)?.map(TargetId),
        woken_by: id(row, 8)?.map(ThreadId),
        taken_by: [taker(row, 9)?, taker(row, 11)?],
        all: StandsFor { count: unsigned(row, 13)?, blocked_ns: unsigned(row, 14)?, runqueue_ns: unsigned(row, 15)? },
        stack: id(row, 16)?.map(StackId),
        waker_stack: id(row, 17)?.map(StackId),
    }))
}

fn taker(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<CpuTaker>> {
    let Some(thread) = id(row, column)? else { return Ok(None) };
    let ns = row.get::<_, Option<i64>>(column + 1)?.and_then(|ns| u64::try_from(ns).ok());
    Ok(Some(CpuTaker { thread: ThreadId(thread), ns: ns.unwrap_or(0) }))
}

fn work(row: &Row<'_>) -> rusqlite::Result<Option<KernelWork>> {
    let (Some(thread), Some(kind)) = (id(row, 1)?, word(row, 2, WorkKind::ALL, WorkKind::as_str)?) else {
        return Ok(None);
    };
    Ok(Some(KernelWork {
        start_ns: unsigned(row, 0)?,
        thread: ThreadId(thread),
        kind,
        duration_ns: unsigned(row, 3)?,
        op: id(row, 4)?.map(OpId),
        target: id(row, 5)?.map(TargetId),
        code: id(row, 6)?,
        all_count: unsigned(row, 7)?,
        all_ns: unsigned(row, 8)?,
    }))
}

fn request(row: &Row<'_>) -> rusqlite::Result<Option<IoRequest>> {
    let Some(waiter) = id(row, 6)? else { return Ok(None) };
    Ok(Some(IoRequest {
        start_ns: unsigned(row, 0)?,
        duration_ns: unsigned(row, 1)?,
        device: row.get(2)?,
        bytes: unsigned(row, 3)?,
        is_write: row.get::<_, i64>(4)? != 0,
        issuer: id(row, 5)?.map(ThreadId),
        waiter: ThreadId(waiter),
    }))
}
