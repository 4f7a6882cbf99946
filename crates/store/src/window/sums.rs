//! Sums per second, added up in bounded memory.

use std::collections::BTreeMap;

use gpuwhy_model::{Histogram, IoUsage, OpId, ProcessId, ThreadId, ThreadTimes};
use gpuwhy_window::{CallSecond, CallSum, Scope, ThreadSum, Window};
use rusqlite::Row;

use super::source::{Source, id, signed, unsigned};
use crate::cells::read;

/// Sums are kept for about a second from their bucket on: one that lies mostly in the window belongs to it.
const HALF_A_BUCKET_NS: u64 = 500_000_000;

pub(super) fn load(source: &Source<'_>, scope: &Scope, window: &mut Window) -> rusqlite::Result<()> {
    let buckets = bucket_bounds(scope);
    calls(source, window, buckets)?;
    threads(source, window, buckets)?;
    io(source, window, buckets)
}

/// The first bucket of a scope, and the first after it.
pub(super) fn bucket_bounds(scope: &Scope) -> [i64; 2] {
    let bound =
        |asked: Option<u64>, otherwise| asked.map_or(otherwise, |ns| signed(ns.saturating_sub(HALF_A_BUCKET_NS)));
    [bound(scope.from_ns, 0), bound(scope.to_ns, i64::MAX)]
}

/// Takes the first bucket and the first after it.
pub(super) fn calls_sql(source: &Source<'_>) -> String {
    let estimate = source.column_or("call_counts", "estimate", "count");
    format!(
        "SELECT bucket_ns, thread_id, op_id, count, {estimate}, sum_ns, max_ns, runqueue_ns, blocked_ns, bytes, errors,
           histogram FROM call_counts WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns"
    )
}

/// One row alone; `None` when nothing was called.
pub(super) fn sum_of_second(row: &Row<'_>) -> rusqlite::Result<Option<CallSum>> {
    let (Some(thread), Some(op)) = (id(row, 1)?, id(row, 2)?) else { return Ok(None) };
    let second = second_of_calls(row, ThreadId(thread), OpId(op))?;
    let mut sum = CallSum::new(second.thread, second.op);
    add_second(&mut sum, &second, row)?;
    Ok((sum.calls > 0).then_some(sum))
}

fn calls(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    let mut sums = BTreeMap::new();
    source.each(&calls_sql(source), buckets, |row| {
        let (Some(thread), Some(op)) = (id(row, 1)?, id(row, 2)?) else { return Ok(()) };
        let (thread, op) = (ThreadId(thread), OpId(op));
        let second = second_of_calls(row, thread, op)?;
        if second.calls > 0 {
            window.call_seconds.push(second);
            add_second(sums.entry((thread, op)).or_insert_with(|| CallSum::new(thread, op)), &second, row)?;
        }
        Ok(())
    })?;
    window.call_sums = sums.into_values().collect();
    Ok(())
}

fn second_of_calls(row: &Row<'_>, thread: ThreadId, op: OpId) -> rusqlite::Result<CallSecond> {
    let (seen, calls) = (unsigned(row, 3)?, unsigned(row, 4)?);
    let calls = calls.max(seen);
    Ok(CallSecond {
        bucket_ns: unsigned(row, 0)?,
        thread,
        op,
        seen,
        calls,
        sum_ns: scaled(unsigned(row, 5)?, seen, calls),
        max_ns: unsigned(row, 6)?,
        errors: scaled(unsigned(row, 10)?, seen, calls),
    })
}

fn add_second(sum: &mut CallSum, second: &CallSecond, row: &Row<'_>) -> rusqlite::Result<()> {
    let seen = unsigned(row, 3)?;
    let scaled = |column| Ok::<_, rusqlite::Error>(scaled(unsigned(row, column)?, seen, second.calls));
    add(&mut sum.seen, seen);
    add(&mut sum.calls, second.calls);
    add(&mut sum.sum_ns, second.sum_ns);
    add(&mut sum.runqueue_ns, scaled(7)?);
    add(&mut sum.blocked_ns, scaled(8)?);
    add(&mut sum.bytes, scaled(9)?);
    add(&mut sum.errors, second.errors);
    sum.max_ns = sum.max_ns.max(second.max_ns);
    sum.seconds += 1;
    // A histogram that cannot be read costs percentiles, not the answer.
    if let Ok(histogram) = Histogram::from_json(row.get_ref(11)?.as_str()?) {
        for &(index, count) in histogram.buckets() {
            sum.histogram.add(index, self::scaled(count, seen, second.calls));
        }
    }
    Ok(())
}

/// What was seen, as much as it stands for.
fn scaled(value: u64, seen: u64, all: u64) -> u64 {
    if seen == 0 || seen == all {
        return value;
    }
    u64::try_from(u128::from(value) * u128::from(all) / u128::from(seen)).unwrap_or(u64::MAX)
}

fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

/// Takes the first bucket and the first after it.
pub(super) fn threads_sql(source: &Source<'_>) -> String {
    format!("{} WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns", source.select::<ThreadTimes>(""))
}

fn threads(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    let mut sums: BTreeMap<ThreadId, ThreadSum> = BTreeMap::new();
    source.each(&threads_sql(source), buckets, |row| {
        let Some(times) = read::<ThreadTimes>(row, 0) else { return Ok(()) };
        match sums.get_mut(&times.thread) {
            Some(sum) => add_times(sum, &times),
            None => {
                let first = ThreadSum { last_bucket_ns: times.bucket_ns, seconds: 1, times };
                sums.insert(first.times.thread, first);
            }
        }
        Ok(())
    })?;
    window.thread_sums = sums.into_values().collect();
    Ok(())
}

fn add_times(sum: &mut ThreadSum, times: &ThreadTimes) {
    sum.last_bucket_ns = times.bucket_ns;
    sum.seconds += 1;
    let all = &mut sum.times;
    add(&mut all.wall_ns, times.wall_ns);
    add(&mut all.runqueue_ns, times.runqueue_ns);
    add(&mut all.in_calls_ns, times.in_calls_ns);
    add(&mut all.in_calls_runqueue_ns, times.in_calls_runqueue_ns);
    add(&mut all.in_calls_blocked_ns, times.in_calls_blocked_ns);
    add(&mut all.tracer_ns, times.tracer_ns);
    add(&mut all.throttled_ns, times.throttled_ns);
    add(&mut all.major_faults, times.major_faults);
    add(&mut all.minor_faults, times.minor_faults);
    add(&mut all.system_ns, times.system_ns);
    all.blocked_ns.iter_mut().zip(times.blocked_ns).for_each(|(sum, ns)| add(sum, ns));
    all.work_ns.iter_mut().zip(times.work_ns).for_each(|(sum, ns)| add(sum, ns));
}

fn io(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    if !source.has("io_usage", "busy_ns") {
        return Ok(());
    }
    let sql = format!("{} WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns", source.select::<IoUsage>(""));
    let mut sums: BTreeMap<(ProcessId, String), IoUsage> = BTreeMap::new();
    source.each(&sql, buckets, |row| {
        let Some(usage) = read::<IoUsage>(row, 0) else { return Ok(()) };
        let Some(sum) = sums.get_mut(&(usage.process, usage.device.clone())) else {
            sums.insert((usage.process, usage.device.clone()), usage);
            return Ok(());
        };
        add(&mut sum.requests, usage.requests);
        add(&mut sum.bytes, usage.bytes);
        add(&mut sum.busy_ns, usage.busy_ns);
        Ok(())
    })?;
    window.io_usage = sums.into_values().collect();
    Ok(())
}
