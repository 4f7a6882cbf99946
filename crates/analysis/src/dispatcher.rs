//! The threads that feed a GPU, and where their time went.

use std::collections::BTreeSet;

use gpuwhy_model::{CallClass, Layer, OpId, Process, ProcessId, Steps, ThreadId, ThreadTimes, TimePart};
use gpuwhy_store::{CallSecond, CallSum, Op};

use crate::parts::{self, Parts};
use crate::situation::Situation;
use crate::steps::{self, Gap};
use crate::waits::{self, Waits};
use crate::words::{part, share};

/// A thread that launched less than this does not feed a GPU.
const LEAST_LAUNCHES: u64 = 8;

/// One that launched in fewer of its seconds only did so once, at its start or now and then.
const LEAST_SHARE_OF_SECONDS: f64 = 0.1;

/// In less time than this, sums per second cannot tell the first third from the rest.
const LEAST_SECONDS: u64 = 2;

/// From this many seconds on, launches in a single one are a start and not a habit.
const SECONDS_THAT_TELL: u64 = 4;

const SECOND_NS: u64 = 1_000_000_000;

/// A copy that holds its caller this long, for so few bytes, waits for the GPU and not for the bytes.
const WAITING_COPY_NS: u64 = 50_000;
const WAITING_COPY_BYTES_PER_NS: f64 = 0.2;

pub struct Dispatcher<'w> {
    pub id: ThreadId,
    pub process_id: Option<ProcessId>,
    pub process: Option<&'w Process>,
    pub times: &'w ThreadTimes,
    /// Of the thread in the window.
    pub from_ns: u64,
    pub to_ns: u64,
    /// One layer's calls only: those of the other one are the same calls.
    pub calls: Vec<&'w CallSum>,
    pub launches: u64,
    pub waits: Waits,
    pub parts: Parts,
    pub steps: Option<Steps>,
    /// Single steps, in the order of time.
    pub gaps: Vec<Gap>,
}

impl Dispatcher<'_> {
    pub fn wall_ns(&self) -> u64 {
        self.times.wall_ns
    }

    pub fn part_ns(&self, part: TimePart) -> u64 {
        self.parts.get(part)
    }

    pub fn share(&self, ns: u64) -> f64 {
        share(ns, self.wall_ns())
    }

    /// All calls it made.
    pub fn calls_made(&self) -> u64 {
        self.calls.iter().fold(0, |sum, calls| sum.saturating_add(calls.calls))
    }

    /// When the first third of its time is over: programs warm up.
    pub fn steady_from_ns(&self) -> u64 {
        self.from_ns + self.to_ns.saturating_sub(self.from_ns) / 3
    }
}

/// Threads that launch regularly.
pub(crate) fn feeders(situation: &Situation<'_>) -> BTreeSet<ThreadId> {
    situation.threads_with_sums().filter(|&thread| is_feeder(situation, thread)).collect()
}

fn is_feeder(situation: &Situation<'_>, thread: ThreadId) -> bool {
    let Some(sum) = situation.sum(thread) else { return false };
    let launches = situation.calls(thread).iter().filter(|sum| is_launch(situation.op(sum.op)));
    let (calls, seconds) = launches
        .fold((0u64, 0u64), |(calls, seconds), sum| (calls.saturating_add(sum.calls), seconds.max(sum.seconds)));
    let is_habit = seconds as f64 >= LEAST_SHARE_OF_SECONDS * sum.seconds as f64
        && (seconds > 1 || sum.seconds < SECONDS_THAT_TELL);
    sum.times.wall_ns > 0 && calls >= LEAST_LAUNCHES && is_habit && !situation.is_tracer(thread)
}

/// Whether a function starts work on the GPU.
pub(crate) fn is_launch(op: Option<&Op>) -> bool {
    op.is_some_and(|op| op.class == CallClass::Launch || op.name.ends_with("GraphLaunch"))
}

pub(crate) fn build<'w>(situation: &Situation<'w>, feeders: &BTreeSet<ThreadId>) -> Vec<Dispatcher<'w>> {
    let asked = |thread: &ThreadId| {
        let pid = situation.process(*thread).map(|process| process.pid);
        situation.window.pid.is_none_or(|wanted| pid == Some(wanted))
    };
    feeders.iter().copied().filter(asked).filter_map(|thread| build_one(situation, thread)).collect()
}

fn build_one<'w>(situation: &Situation<'w>, id: ThreadId) -> Option<Dispatcher<'w>> {
    let sum = situation.sum(id)?;
    let window = situation.window;
    let calls = one_layer(situation, situation.calls(id));
    let launches = calls.iter().filter(|sum| is_launch(situation.op(sum.op)));
    let launches = launches.fold(0u64, |all, sum| all.saturating_add(sum.calls));
    let waits = waits::sum_up(situation, id, &sum.times, &calls);
    let parts = parts::divide(situation, &sum.times, &calls, &waits);
    let from_ns = sum.times.bucket_ns.max(window.from_ns);
    let to_ns = sum.last_bucket_ns.saturating_add(SECOND_NS).min(window.to_ns).max(from_ns);
    let found = steps::find(situation, id, &calls, sum.times.wall_ns);
    let (steps, gaps) = found.map_or((None, Vec::new()), |found| (Some(found.steps), found.gaps));
    Some(Dispatcher {
        id,
        process_id: situation.process_id(id),
        process: situation.process(id),
        times: &sum.times,
        from_ns,
        to_ns,
        calls,
        launches,
        waits,
        parts,
        steps,
        gaps,
    })
}

fn one_layer<'w>(situation: &Situation<'w>, calls: &[&'w CallSum]) -> Vec<&'w CallSum> {
    let layer_of = |op: OpId| situation.op(op).map(|op| op.layer);
    let has_driver = calls.iter().any(|sum| layer_of(sum.op) == Some(Layer::Driver));
    let layer = if has_driver { Layer::Driver } else { Layer::Runtime };
    calls.iter().copied().filter(|sum| layer_of(sum.op) == Some(layer)).collect()
}

/// Whether the calls wait for the GPU: synchronizations, and copies that take far longer than their bytes would.
pub(crate) fn is_sync_point(situation: &Situation<'_>, sum: &CallSum) -> bool {
    match situation.class_of(sum.op) {
        Some(CallClass::Sync) => true,
        Some(CallClass::Copy) => {
            let busy_ns = sum.sum_ns.saturating_sub(sum.runqueue_ns);
            let mean_ns = busy_ns / sum.calls.max(1);
            mean_ns >= WAITING_COPY_NS && (sum.bytes as f64) < busy_ns as f64 * WAITING_COPY_BYTES_PER_NS
        }
        _ => false,
    }
}

/// Calls of the later two thirds of a thread's time, when it has warmed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Steady {
    pub calls: u64,
    /// How long they took, without what they waited for a CPU.
    pub ns: u64,
    /// Seconds in which there was at least one.
    pub seconds: u64,
    /// How long the time is that was looked at.
    pub of_ns: u64,
}

impl Steady {
    pub fn share(&self) -> f64 {
        share(self.ns, self.of_ns)
    }
}

pub(crate) fn steady(situation: &Situation<'_>, thread: &Dispatcher<'_>, is_wanted: impl Fn(&Op) -> bool) -> Steady {
    let is_wanted = |op: OpId| situation.op(op).is_some_and(&is_wanted) && thread.calls.iter().any(|sum| sum.op == op);
    if thread.to_ns.saturating_sub(thread.from_ns) < LEAST_SECONDS * SECOND_NS {
        steady_rows(situation, thread, is_wanted)
    } else {
        steady_seconds(situation, thread, is_wanted)
    }
}

/// From single calls, where sums per second are too coarse.
fn steady_rows(situation: &Situation<'_>, thread: &Dispatcher<'_>, is_wanted: impl Fn(OpId) -> bool) -> Steady {
    let from_ns = thread.steady_from_ns();
    let mut steady = Steady { of_ns: thread.to_ns.saturating_sub(from_ns), ..Steady::default() };
    let rows = situation.window.calls.rows.iter();
    for call in rows.filter(|call| call.thread == thread.id && call.start_ns >= from_ns && is_wanted(call.op)) {
        steady.calls += 1;
        steady.ns = steady.ns.saturating_add(call.duration_ns.saturating_sub(call.runqueue_ns));
        steady.seconds = 1;
    }
    steady
}

fn steady_seconds(situation: &Situation<'_>, thread: &Dispatcher<'_>, is_wanted: impl Fn(OpId) -> bool) -> Steady {
    let from_ns = thread.steady_from_ns();
    let is_late =
        |second: &&CallSecond| second.thread == thread.id && second.bucket_ns.saturating_add(SECOND_NS / 2) >= from_ns;
    let late = situation.window.call_seconds.iter().filter(is_late);
    let first_ns = late.clone().map(|second| second.bucket_ns).min().unwrap_or(from_ns);
    let mut steady = Steady { of_ns: thread.to_ns.saturating_sub(first_ns), ..Steady::default() };
    let had_a_cpu = |op: OpId| {
        let sum = thread.calls.iter().find(|sum| sum.op == op);
        sum.map_or(1.0, |sum| 1.0 - share(sum.runqueue_ns, sum.sum_ns))
    };
    let mut last_bucket_ns = None;
    for second in late.filter(|second| is_wanted(second.op)) {
        steady.calls = steady.calls.saturating_add(second.calls);
        steady.ns = steady.ns.saturating_add(part(second.sum_ns, had_a_cpu(second.op)));
        steady.seconds += u64::from(last_bucket_ns != Some(second.bucket_ns));
        last_bucket_ns = Some(second.bucket_ns);
    }
    steady
}
