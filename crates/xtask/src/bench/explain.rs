//! How long `gpuwhy explain` takes on large traces, and how much memory: it has to grow no faster than the trace.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use gpuwhy_model::{
    Call, CallClass, CallStats, CpuTaker, Histogram, Layer, OpId, Process, Session, SessionEnd, StandsFor, Stretch,
    TargetKind, ThreadId, ThreadTimes, WaitReason, WaitTarget, WorkKind,
};
use gpuwhy_store::{Options, Writer};
use serde_json::{Value, json};

use super::Place;
use super::gpuwhy;
use super::statistics::median;

/// Rows of the traces, calls and stretches together.
const ROWS: [u64; 3] = [1_000_000, 3_000_000, 10_000_000];
const ROUNDS: usize = 5;

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let mut sizes = Vec::new();
    for rows in ROWS {
        let rows = if place.quick { rows / 10 } else { rows };
        let file = place.dir.path().join("large.db");
        write_trace(&file, rows)?;
        let rounds = (0..ROUNDS).map(|_| time(&binary, &file)).collect::<Result<Vec<_>>>()?;
        let seconds = median(rounds.iter().map(|round| round.0).collect());
        let megabytes = median(rounds.iter().map(|round| round.1).collect());
        let file_mb = std::fs::metadata(&file)?.len() as f64 / 1e6;
        sizes.push(json!({ "rows": rows, "file_mb": file_mb, "seconds": seconds, "peak_mb": megabytes }));
        std::fs::remove_file(&file)?;
    }
    Ok(json!({ "rounds": ROUNDS, "sizes": sizes }))
}

/// Seconds until the page is printed, and the most memory it took.
fn time(binary: &Path, file: &Path) -> Result<(f64, f64)> {
    let start = Instant::now();
    let child = Command::new(binary).arg("explain").arg(file).stdout(Stdio::null()).spawn().context("start gpuwhy")?;
    let mut status = 0;
    // SAFETY: rusage is a struct of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and has not been waited for; both places outlive the call.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    ensure!(waited == child.id() as i32, "wait for gpuwhy");
    let status = ExitStatus::from_raw(status);
    ensure!(status.success(), "gpuwhy explain: {status}");
    Ok((start.elapsed().as_secs_f64(), usage.ru_maxrss as f64 * 1024.0 / 1e6))
}

/// Steps of 46 launches, a copy, an allocation with its free, and a sync behind a lock that another thread holds.
const STEP_CALLS: u64 = 50;
const STEP_STRETCHES: u64 = 5;
const STEP_NS: u64 = 10_000_000;
const START_NS: u64 = 1_700_000_000_000_000_000;
const STEPS_PER_SECOND: u64 = 1_000_000_000 / STEP_NS;
const CALL_NS: u64 = 6_000;
const WAIT_NS: u64 = 1_300_000;

struct Cast {
    victim: ThreadId,
    holder: ThreadId,
    ops: [OpId; 5],
    lock: gpuwhy_model::TargetId,
}

/// A trace of about so many rows.
pub fn write_trace(file: &Path, rows: u64) -> Result<()> {
    let session = Session { started_ns: START_NS, attach_path: "session".into(), ..Session::default() };
    let mut writer = Writer::open(file, &session, &Options::default())?;
    let process = writer.process(&Process { pid: 100, comm: "train".into(), ..Process::default() })?;
    let victim = writer.thread(process, 100, "train")?;
    let holder = writer.thread(process, 101, "holder")?;
    let mut op = |name: &str, class| writer.op(name, Layer::Driver, class, None);
    let ops = [
        op("cuLaunchKernel", CallClass::Launch)?,
        op("cuMemcpyHtoDAsync", CallClass::Copy)?,
        op("cuMemAlloc", CallClass::Alloc)?,
        op("cuMemFree", CallClass::Free)?,
        op("cuStreamSynchronize", CallClass::Sync)?,
    ];
    let lock = writer.target(&WaitTarget { process, kind: TargetKind::Lock, name: "0x7f00".into() })?;
    let cast = Cast { victim, holder, ops, lock };
    let seconds = rows / ((STEP_CALLS + STEP_STRETCHES) * STEPS_PER_SECOND);
    let mut stored = 0;
    for second in 0..seconds {
        stored += write_second(&mut writer, &cast, START_NS + second * 1_000_000_000)?;
    }
    let ended_ns = START_NS + seconds * 1_000_000_000;
    writer.finish(&SessionEnd { ended_ns, seen: stored, reason: "finished".into(), ..SessionEnd::default() })?;
    Ok(())
}

fn write_second(writer: &mut Writer, cast: &Cast, from_ns: u64) -> Result<u64> {
    let (mut calls, mut stretches) = (Vec::new(), Vec::new());
    for step in 0..STEPS_PER_SECOND {
        let start_ns = from_ns + step * STEP_NS;
        calls.extend((0..STEP_CALLS).map(|index| call(cast, start_ns, index)));
        stretches.extend((0..STEP_STRETCHES).map(|index| stretch(cast, start_ns + STEP_NS / 2 + index * WAIT_NS)));
    }
    let written = calls.len() as u64;
    writer.calls(&mut calls)?;
    writer.stretches(&stretches)?;
    for (index, &op) in cast.ops.iter().enumerate() {
        let per_step = if index == 0 { STEP_CALLS - 4 } else { 1 };
        writer.stats(&[stats(cast.victim, op, from_ns, per_step * STEPS_PER_SECOND)])?;
    }
    writer.thread_times(&[times(cast.victim, from_ns, true), times(cast.holder, from_ns, false)])?;
    writer.commit(from_ns)?;
    Ok(written)
}

fn call(cast: &Cast, step_ns: u64, index: u64) -> Call {
    let op = cast.ops[(STEP_CALLS - 1 - index).min(4) as usize * usize::from(index + 5 > STEP_CALLS)];
    let is_memory = op == cast.ops[2] || op == cast.ops[3];
    Call {
        device: Some(0),
        stream: Some(7),
        handle: Some(index),
        bytes: is_memory.then_some(1 << 20),
        address: is_memory.then_some(0x7000_0000),
        ..Call::new(cast.victim, op, step_ns + index * 2 * CALL_NS, CALL_NS)
    }
}

fn stretch(cast: &Cast, start_ns: u64) -> Stretch {
    Stretch {
        start_ns,
        thread: cast.victim,
        blocked_ns: WAIT_NS - 100_000,
        runqueue_ns: 0,
        is_throttled: false,
        reason: Some(WaitReason::Futex),
        op: None,
        target: Some(cast.lock),
        woken_by: Some(cast.holder),
        taken_by: [None::<CpuTaker>; 2],
        all: StandsFor { count: 1, blocked_ns: WAIT_NS - 100_000, runqueue_ns: 0 },
        stack: None,
        waker_stack: None,
    }
}

fn stats(thread: ThreadId, op: OpId, bucket_ns: u64, count: u64) -> CallStats {
    let mut histogram = Histogram::default();
    histogram.add(Histogram::index(CALL_NS), count);
    CallStats {
        bucket_ns,
        thread,
        op,
        count,
        sum_ns: count * CALL_NS,
        min_ns: CALL_NS,
        max_ns: CALL_NS,
        runqueue_ns: 0,
        blocked_ns: 0,
        bytes: 0,
        errors: 0,
        histogram,
        fraction: 1.0,
        estimate: count,
        variance: 0.0,
    }
}

fn times(thread: ThreadId, bucket_ns: u64, waits: bool) -> ThreadTimes {
    let mut blocked_ns = [0; WaitReason::COUNT];
    if waits {
        blocked_ns[WaitReason::Futex as usize] = STEPS_PER_SECOND * STEP_STRETCHES * (WAIT_NS - 100_000);
    }
    ThreadTimes {
        bucket_ns,
        thread,
        wall_ns: 1_000_000_000,
        runqueue_ns: 0,
        blocked_ns,
        in_calls_ns: if waits { STEPS_PER_SECOND * STEP_CALLS * CALL_NS } else { 0 },
        in_calls_runqueue_ns: 0,
        in_calls_blocked_ns: 0,
        tracer_ns: 0,
        throttled_ns: 0,
        work_ns: [0; WorkKind::COUNT],
        major_faults: 0,
    }
}
