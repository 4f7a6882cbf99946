//! A large trace of a made-up program, for what has to stay fast whatever the size.

use std::path::Path;

use anyhow::{Context, Result};
use gpuwhy_model::{
    Call, CallClass, CallStats, CpuTaker, Frame, FrameKind, Layer, Meaning, OpId, Process, PythonEnd, Session,
    SessionEnd, Stack, StackId, StandsFor, Stretch, TargetId, TargetKind, ThreadId, ThreadTimes, WaitReason,
    WaitTarget, WalkEnd,
};
use gpuwhy_store::{Options, Writer};

/// Steps of 46 launches, a copy, an allocation with its free, and a sync behind a lock that another thread holds.
const STEP_CALLS: u64 = 50;
const STEP_STRETCHES: u64 = 5;
const STEP_NS: u64 = 10_000_000;
const START_NS: u64 = 1_700_000_000_000_000_000;
const STEPS_PER_SECOND: u64 = 1_000_000_000 / STEP_NS;
const CALL_NS: u64 = 6_000;
const WAIT_NS: u64 = 1_300_000;

/// Who takes part.
struct Cast {
    victim: ThreadId,
    holder: ThreadId,
    /// In the order in which a step ends with them.
    ops: [OpId; 5],
    lock: TargetId,
    syncs: StackId,
    waits: StackId,
    holds: StackId,
}

/// A trace of about so many rows. What else is in the file stays.
pub fn write_trace(file: &Path, rows: u64) -> Result<()> {
    let session = Session { started_ns: START_NS, attach_path: "session".into(), ..Session::default() };
    let mut writer = Writer::open(file, &session, &Options::default())?;
    let process = writer.process(&Process { pid: 100, comm: "train".into(), ..Process::default() })?;
    let victim = writer.thread(process, 100, "train")?;
    let holder = writer.thread(process, 101, "holder")?;
    let mut op = |name: &str, meaning: Meaning| writer.op(name, Layer::Driver, meaning, None);
    let ops = [
        op("cuLaunchKernel", CallClass::Launch.into())?,
        op("cuMemcpyHtoDAsync", Meaning { is_async: true, ..CallClass::Copy.into() })?,
        op("cuMemAlloc", CallClass::Alloc.into())?,
        op("cuMemFree", CallClass::Free.into())?,
        op("cuStreamSynchronize", CallClass::Sync.into())?,
    ];
    let lock = writer.target(&WaitTarget { process, kind: TargetKind::Lock, name: "0x7f00".into() })?;
    let syncs = stack(&mut writer, "cuStreamSynchronize", ["step", "train"], 120)?;
    let waits = stack(&mut writer, "pthread_mutex_lock", ["next_batch", "train"], 142)?;
    let holds = stack(&mut writer, "pthread_mutex_unlock", ["shuffle", "fill"], 57)?;
    let cast = Cast { victim, holder, ops, lock, syncs, waits, holds };
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
        writer.stats(&[CallStats::alike(from_ns, cast.victim, op, per_step * STEPS_PER_SECOND, CALL_NS)])?;
    }
    writer.thread_times(&[times(cast.victim, from_ns, true), times(cast.holder, from_ns, false)])?;
    writer.commit(from_ns)?;
    Ok(written)
}

fn stack(writer: &mut Writer, innermost: &str, functions: [&str; 2], line: u32) -> Result<StackId> {
    let native = Frame { function: innermost.into(), module: Some("libc.so.6".into()), ..Frame::default() };
    let python = functions.iter().zip(0..).map(|(function, outer)| Frame {
        kind: FrameKind::Python,
        function: (*function).into(),
        file: Some("train.py".into()),
        line: Some(line + 100 * outer),
        ..Frame::default()
    });
    let frames = std::iter::once(native).chain(python).collect();
    let id = writer.reserve_stack().context("no room for a stack")?;
    writer.stack(id, &Stack { frames, end: WalkEnd::Complete, python_end: PythonEnd::Complete })?;
    Ok(id)
}

fn call(cast: &Cast, step_ns: u64, index: u64) -> Call {
    let [_, _, alloc, free, sync] = cast.ops;
    let op = cast.ops[index.saturating_sub(STEP_CALLS - 5) as usize];
    let is_memory = op == alloc || op == free;
    Call {
        device: Some(0),
        stream: Some(7),
        handle: Some(index),
        bytes: is_memory.then_some(1 << 20),
        address: is_memory.then_some(0x7000_0000),
        stack_id: (op == sync).then_some(cast.syncs),
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
        stack: Some(cast.waits),
        waker_stack: Some(cast.holds),
    }
}

fn times(thread: ThreadId, bucket_ns: u64, waits: bool) -> ThreadTimes {
    let mut times = ThreadTimes::new(bucket_ns, thread, 1_000_000_000);
    if waits {
        times.blocked_ns[WaitReason::Futex as usize] = STEPS_PER_SECOND * STEP_STRETCHES * (WAIT_NS - 100_000);
        times.in_calls_ns = STEPS_PER_SECOND * STEP_CALLS * CALL_NS;
    }
    times
}
