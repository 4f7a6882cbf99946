//! Sums per second, turns in the lives of processes, and changes of how closely they are watched. A bucket that comes
//! in parts is added up, never replaced.

use std::slice;

use gpuwhy_model::{AgentUsage, CallStats, IoUsage, ProcessLife, RungChange, StackSample, StackWalks, ThreadTimes};
use rusqlite::{Connection, OptionalExtension, params};

use super::{Writer, cut, not_negative, share, signed};
use crate::{StoreError, histogram};

/// Bytes a row takes beside its text, about.
const ROW_BYTES: usize = 80;

impl Writer {
    pub fn stats(&mut self, stats: &[CallStats]) -> Result<(), StoreError> {
        self.sums(stats, |writer, stats| write_stats(&writer.connection, stats))
    }

    pub fn thread_times(&mut self, times: &[ThreadTimes]) -> Result<(), StoreError> {
        self.sums(times, |writer, times| write_times(&writer.connection, times))
    }

    pub fn io_usage(&mut self, usage: &[IoUsage]) -> Result<(), StoreError> {
        self.sums(usage, |writer, usage| write_io_usage(&writer.connection, usage))
    }

    pub fn stack_samples(&mut self, samples: &[StackSample]) -> Result<(), StoreError> {
        self.sums(samples, |writer, sample| write_sample(&writer.connection, sample))
    }

    pub fn stack_walks(&mut self, walks: &[StackWalks]) -> Result<(), StoreError> {
        self.sums(walks, |writer, walks| write_walks(&writer.connection, writer.session, walks))
    }

    pub fn life(&mut self, life: &[ProcessLife]) -> Result<(), StoreError> {
        self.sums(life, |writer, life| write_life(&writer.connection, writer.session, life))
    }

    pub fn agent_usage(&mut self, usage: &AgentUsage) -> Result<(), StoreError> {
        self.sums(slice::from_ref(usage), |writer, usage| write_usage(&writer.connection, writer.session, usage))
    }

    pub fn rung_change(&mut self, change: &RungChange) -> Result<(), StoreError> {
        self.sums(slice::from_ref(change), |writer, change| write_rung(&writer.connection, writer.session, change))
    }

    pub(super) fn sums<T>(
        &mut self,
        items: &[T],
        write: impl Fn(&Self, &T) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        for slice in items.chunks(self.sums_per_transaction()) {
            self.make_room()?;
            let bytes =
                self.write(|writer| slice.iter().map(|item| write(writer, item)).sum::<rusqlite::Result<_>>())?;
            self.sums_grew(bytes);
            if self.cap.is_some() {
                self.flush()?;
            }
        }
        Ok(())
    }
}

fn write_stats(connection: &Connection, stats: &CallStats) -> rusqlite::Result<usize> {
    let histogram = merged_histogram(connection, stats)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO call_counts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET
           count = count + excluded.count, sum_ns = sum_ns + excluded.sum_ns,
           min_ns = min(min_ns, excluded.min_ns), max_ns = max(max_ns, excluded.max_ns),
           runqueue_ns = runqueue_ns + excluded.runqueue_ns, blocked_ns = blocked_ns + excluded.blocked_ns,
           bytes = bytes + excluded.bytes, errors = errors + excluded.errors,
           estimate = estimate + excluded.estimate, variance = variance + excluded.variance,
           fraction = IFNULL(min(1.0, 1.0 * (count + excluded.count) / NULLIF(estimate + excluded.estimate, 0)),
                             min(fraction, excluded.fraction)),
           histogram = excluded.histogram",
    )?;
    statement.execute(params![
        signed(stats.bucket_ns),
        stats.thread.0,
        stats.op.0,
        signed(stats.count),
        signed(stats.sum_ns),
        signed(stats.min_ns),
        signed(stats.max_ns),
        signed(stats.runqueue_ns),
        signed(stats.blocked_ns),
        signed(stats.bytes),
        signed(stats.errors),
        share(stats.fraction),
        histogram,
        signed(stats.estimate),
        not_negative(stats.variance),
    ])?;
    Ok(ROW_BYTES + histogram.len())
}

fn merged_histogram(connection: &Connection, stats: &CallStats) -> rusqlite::Result<String> {
    let mut statement = connection
        .prepare_cached("SELECT histogram FROM call_counts WHERE bucket_ns = ? AND thread_id = ? AND op_id = ?")?;
    let key = params![signed(stats.bucket_ns), stats.thread.0, stats.op.0];
    let stored: Option<String> = statement.query_row(key, |row| row.get(0)).optional()?;
    let mut merged = stats.histogram.clone();
    if let Some(stored) = stored.and_then(|stored| histogram::from_json(&stored).ok()) {
        merged.merge(&stored);
    }
    Ok(histogram::to_json(&merged))
}

fn write_times(connection: &Connection, times: &ThreadTimes) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO thread_usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET
           wall_ns = wall_ns + excluded.wall_ns, runqueue_ns = runqueue_ns + excluded.runqueue_ns,
           futex_ns = futex_ns + excluded.futex_ns, io_ns = io_ns + excluded.io_ns,
           fault_ns = fault_ns + excluded.fault_ns, sleep_ns = sleep_ns + excluded.sleep_ns,
           poll_ns = poll_ns + excluded.poll_ns, stream_ns = stream_ns + excluded.stream_ns,
           ioctl_ns = ioctl_ns + excluded.ioctl_ns, other_ns = other_ns + excluded.other_ns,
           in_calls_ns = in_calls_ns + excluded.in_calls_ns,
           in_calls_runqueue_ns = in_calls_runqueue_ns + excluded.in_calls_runqueue_ns,
           in_calls_blocked_ns = in_calls_blocked_ns + excluded.in_calls_blocked_ns,
           tracer_ns = tracer_ns + excluded.tracer_ns, throttled_ns = throttled_ns + excluded.throttled_ns,
           reclaim_ns = reclaim_ns + excluded.reclaim_ns, compaction_ns = compaction_ns + excluded.compaction_ns,
           ioctl_call_ns = ioctl_call_ns + excluded.ioctl_call_ns,
           major_faults = major_faults + excluded.major_faults",
    )?;
    let [futex, io, fault, sleep, poll, stream, ioctl, other] = times.blocked_ns.map(signed);
    let [reclaim, compaction, ioctl_call] = times.work_ns.map(signed);
    statement.execute(params![
        signed(times.bucket_ns),
        times.thread.0,
        signed(times.wall_ns),
        signed(times.runqueue_ns),
        futex,
        io,
        fault,
        sleep,
        poll,
        stream,
        ioctl,
        other,
        signed(times.in_calls_ns),
        signed(times.in_calls_runqueue_ns),
        signed(times.in_calls_blocked_ns),
        signed(times.tracer_ns),
        signed(times.throttled_ns),
        reclaim,
        compaction,
        ioctl_call,
        signed(times.major_faults),
    ])?;
    Ok(ROW_BYTES)
}

fn write_io_usage(connection: &Connection, usage: &IoUsage) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO io_usage VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET
           requests = requests + excluded.requests, bytes = bytes + excluded.bytes,
           busy_ns = busy_ns + excluded.busy_ns",
    )?;
    let [bucket, requests, bytes, busy] = [usage.bucket_ns, usage.requests, usage.bytes, usage.busy_ns].map(signed);
    let device = cut(&usage.device);
    statement.execute(params![bucket, usage.process.0, device, requests, bytes, busy])?;
    Ok(ROW_BYTES + device.len())
}

fn write_sample(connection: &Connection, sample: &StackSample) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO stack_samples VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    let [bucket, count] = [sample.bucket_ns, sample.count].map(signed);
    statement.execute(params![bucket, sample.thread.0, sample.stack.0, count])?;
    Ok(ROW_BYTES)
}

fn write_walks(connection: &Connection, session: i64, walks: &StackWalks) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO stack_walks VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET
           count = count + excluded.count, walking_ns = walking_ns + excluded.walking_ns",
    )?;
    let (moment, end, python_end) = (walks.moment.as_str(), walks.end.as_str(), walks.python_end.as_str());
    let [bucket, count, ns] = [walks.bucket_ns, walks.count, walks.ns].map(signed);
    statement.execute(params![bucket, session, moment, end, python_end, count, ns])?;
    Ok(ROW_BYTES)
}

fn write_life(connection: &Connection, session: i64, life: &ProcessLife) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached("INSERT INTO process_life VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    let (kind, comm) = (life.kind.as_str(), cut(&life.comm));
    statement.execute(params![session, signed(life.at_ns), kind, life.pid, life.child_pid, life.status, comm])?;
    Ok(ROW_BYTES + comm.len())
}

fn write_usage(connection: &Connection, session: i64, usage: &AgentUsage) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO agent_usage VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET
           wall_ns = wall_ns + excluded.wall_ns, cpu_ns = cpu_ns + excluded.cpu_ns,
           hooks_ns = hooks_ns + excluded.hooks_ns, call_program_ns = excluded.call_program_ns",
    )?;
    let [bucket, wall, cpu, hooks] = [usage.bucket_ns, usage.wall_ns, usage.cpu_ns, usage.hooks_ns].map(signed);
    statement.execute(params![bucket, session, wall, cpu, hooks, signed(usage.call_program_ns)])?;
    Ok(ROW_BYTES)
}

fn write_rung(connection: &Connection, session: i64, change: &RungChange) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached("INSERT INTO rung_changes VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    let (rung, fraction, reason) = (change.rung.as_str(), share(change.fraction), cut(&change.reason));
    let (process, op) = (change.process.0, change.op.0);
    statement.execute(params![session, signed(change.at_ns), process, op, rung, fraction, reason])?;
    Ok(ROW_BYTES + reason.len())
}
