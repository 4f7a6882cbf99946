//! Sums per second, added up in bounded memory.

use std::collections::BTreeMap;

use gpuwhy_model::{IoUsage, OpId, ProcessId, ThreadId, ThreadTimes, WaitReason, WorkKind};
use gpuwhy_window::{CallSecond, CallSum, Scope, ThreadSum, Window};
use rusqlite::Row;

use super::source::{Source, id, signed, unsigned};
use super::stacks;
use crate::histogram;

/// Sums are kept for about a second from their bucket on: one that lies mostly in the window belongs to it.
const HALF_A_BUCKET_NS: u64 = 500_000_000;

pub(super) fn load(source: &Source<'_>, scope: &Scope, window: &mut Window) -> rusqlite::Result<()> {
    let buckets = bucket_bounds(scope);
    calls(source, window, buckets)?;
    threads(source, window, buckets)?;
    io(source, window, buckets)?;
    stacks::load_samples(source, window, buckets)?;
    stacks::load_walks(source, window, buckets)
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
    if let Ok(histogram) = histogram::from_json(row.get_ref(11)?.as_str()?) {
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

/// Where reasons of blocked time begin among the columns that are read, and kinds of kernel work.
const FIRST_REASON: usize = 4;
const FIRST_WORK: usize = FIRST_REASON + WaitReason::COUNT;
const AFTER_WORK: usize = FIRST_WORK + WorkKind::COUNT;

/// Takes the first bucket and the first after it.
pub(super) fn threads_sql(source: &Source<'_>) -> String {
    let optional = |column| source.column_or("thread_usage", column, "0");
    let [reclaim, compaction, ioctl] = ["reclaim_ns", "compaction_ns", "ioctl_call_ns"].map(optional);
    let [tracer, throttled, faults] = ["tracer_ns", "throttled_ns", "major_faults"].map(optional);
    format!(
        "SELECT thread_id, bucket_ns, wall_ns, runqueue_ns, futex_ns, io_ns, fault_ns, sleep_ns, poll_ns, stream_ns,
           ioctl_ns, other_ns, {reclaim}, {compaction}, {ioctl}, in_calls_ns, in_calls_runqueue_ns,
           in_calls_blocked_ns, {tracer}, {throttled}, {faults}
         FROM thread_usage WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns"
    )
}

fn threads(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    let mut sums: BTreeMap<ThreadId, ThreadSum> = BTreeMap::new();
    source.each(&threads_sql(source), buckets, |row| {
        let Some(thread) = id(row, 0)? else { return Ok(()) };
        let times = times(row, ThreadId(thread))?;
        match sums.get_mut(&ThreadId(thread)) {
            Some(sum) => add_times(sum, &times),
            None => {
                let first = ThreadSum { last_bucket_ns: times.bucket_ns, seconds: 1, times };
                sums.insert(ThreadId(thread), first);
            }
        }
        Ok(())
    })?;
    window.thread_sums = sums.into_values().collect();
    Ok(())
}

pub(super) fn times(row: &Row<'_>, thread: ThreadId) -> rusqlite::Result<ThreadTimes> {
    let mut blocked_ns = [0; WaitReason::COUNT];
    let mut work_ns = [0; WorkKind::COUNT];
    for (at, ns) in blocked_ns.iter_mut().enumerate() {
        *ns = unsigned(row, FIRST_REASON + at)?;
    }
    for (at, ns) in work_ns.iter_mut().enumerate() {
        *ns = unsigned(row, FIRST_WORK + at)?;
    }
    Ok(ThreadTimes {
        bucket_ns: unsigned(row, 1)?,
        thread,
        wall_ns: unsigned(row, 2)?,
        runqueue_ns: unsigned(row, 3)?,
        blocked_ns,
        in_calls_ns: unsigned(row, AFTER_WORK)?,
        in_calls_runqueue_ns: unsigned(row, AFTER_WORK + 1)?,
        in_calls_blocked_ns: unsigned(row, AFTER_WORK + 2)?,
        tracer_ns: unsigned(row, AFTER_WORK + 3)?,
        throttled_ns: unsigned(row, AFTER_WORK + 4)?,
        work_ns,
        major_faults: unsigned(row, AFTER_WORK + 5)?,
    })
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
    all.blocked_ns.iter_mut().zip(times.blocked_ns).for_each(|(sum, ns)| add(sum, ns));
    all.work_ns.iter_mut().zip(times.work_ns).for_each(|(sum, ns)| add(sum, ns));
}

fn io(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    if !source.has("io_usage", "busy_ns") {
        return Ok(());
    }
    let sql = "SELECT bucket_ns, process_id, device, requests, bytes, busy_ns FROM io_usage
        WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns";
    let mut sums: BTreeMap<(u32, String), IoUsage> = BTreeMap::new();
    source.each(sql, buckets, |row| {
        let Some(process) = id(row, 1)? else { return Ok(()) };
        let device: String = row.get(2)?;
        let (bucket_ns, [requests, bytes, busy_ns]) =
            (unsigned(row, 0)?, [unsigned(row, 3)?, unsigned(row, 4)?, unsigned(row, 5)?]);
        let sum = sums.entry((process, device.clone())).or_insert_with(|| IoUsage {
            bucket_ns,
            process: ProcessId(process),
            device,
            requests: 0,
            bytes: 0,
            busy_ns: 0,
        });
        add(&mut sum.requests, requests);
        add(&mut sum.bytes, bytes);
        add(&mut sum.busy_ns, busy_ns);
        Ok(())
    })?;
    window.io_usage = sums.into_values().collect();
    Ok(())
}
