//! The threads that feed a GPU, and where their time went.

use std::collections::BTreeSet;

use gpuwhy_model::{CallClass, Layer, OpId, Process, ProcessId, Steps, ThreadId, ThreadTimes, TimePart};
use gpuwhy_window::{CallSecond, CallSum, Device, Op};

use crate::gpu::{Feeding, Gpu, IdleUse, Word};
use crate::parts::{self, Parts};
use crate::situation::Situation;
use crate::steps::{self, Gap};
use crate::waits::{self, Waits};
use crate::words::{part, share};

/// In less time than this, sums per second cannot tell the first third from the rest.
const LEAST_SECONDS: u64 = 2;

const SECOND_NS: u64 = 1_000_000_000;

pub struct Dispatcher<'w> {
    pub id: ThreadId,
    pub process_id: Option<ProcessId>,
    pub process: Option<&'w Process>,
    pub times: &'w ThreadTimes,
    /// Of the thread in the window.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Of one layer only: those of the layers above ask for the same work.
    pub calls: Vec<&'w CallSum>,
    pub launches: u64,
    pub waits: Waits,
    pub parts: Parts,
    pub steps: Option<Steps>,
    /// Single steps, in the order of time.
    pub gaps: Vec<Gap>,
    /// What it did while a GPU waited for it.
    pub idle: IdleUse,
    /// How it gave a GPU work that was done as soon as it came.
    pub feeding: Feeding,
    /// What its GPU says of itself. Of several, the one that can have lost the most.
    pub word: Option<Word>,
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

    /// The share of the time that can have been lost on its GPUs.
    pub fn most_lost(&self) -> f64 {
        self.word.map_or(1.0, |word| word.most_lost())
    }

    /// When the first third of its time is over: programs warm up.
    pub fn steady_from_ns(&self) -> u64 {
        self.from_ns + self.to_ns.saturating_sub(self.from_ns) / 3
    }
}

/// One for each thread that feeds a GPU.
pub(crate) fn dispatchers<'w>(situation: &Situation<'w>, gpus: &[Gpu]) -> Vec<Dispatcher<'w>> {
    situation.feeders().filter_map(|thread| dispatcher(situation, gpus, thread)).collect()
}

fn dispatcher<'w>(situation: &Situation<'w>, gpus: &[Gpu], id: ThreadId) -> Option<Dispatcher<'w>> {
    let sum = situation.sum(id)?;
    let window = situation.window;
    let calls = one_layer(situation, situation.calls(id));
    let launches = calls.iter().filter(|sum| situation.is_launch(sum.op));
    let launches = launches.fold(0u64, |all, sum| all.saturating_add(sum.calls));
    let waits = waits::sum_up(situation, id, &sum.times, &calls);
    let parts = parts::divide(situation, &sum.times, &calls, &waits);
    let from_ns = sum.times.bucket_ns.max(window.from_ns);
    let to_ns = sum.last_bucket_ns.saturating_add(SECOND_NS).min(window.to_ns).max(from_ns);
    let found = steps::find(situation, id, &calls, sum.times.wall_ns);
    let mut idle = IdleUse::find(situation, gpus, id);
    idle.limit_computing(parts.get(TimePart::Application));
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
        idle,
        feeding: Feeding::find(situation, gpus, id),
        word: word(situation, gpus, id),
    })
}

/// Work that waits for others, as collectives do, looks like any other to a GPU.
fn word(situation: &Situation<'_>, gpus: &[Gpu], thread: ThreadId) -> Option<Word> {
    if gpus.iter().all(|gpu| gpu.word.is_none()) {
        return None;
    }
    let process = situation.process_id(thread)?;
    let is_own = |sum: &&CallSum| situation.process_id(sum.thread) == Some(process);
    let is_collective = |sum: &CallSum| situation.class_of(sum.op) == Some(CallClass::Collective);
    if situation.window.call_sums.iter().filter(is_own).any(is_collective) {
        return None;
    }
    let calls = situation.window.calls.rows.iter().filter(|call| call.thread == thread);
    let devices: BTreeSet<Device> = calls.map(|call| situation.device(call, process)).collect();
    let words: Option<Vec<Word>> =
        gpus.iter().filter(|gpu| devices.contains(&gpu.device)).map(|gpu| gpu.word).collect();
    words?.into_iter().max_by(|one, other| one.most_lost().total_cmp(&other.most_lost()))
}

fn one_layer<'w>(situation: &Situation<'w>, calls: &[&'w CallSum]) -> Vec<&'w CallSum> {
    let layer_of = |sum: &CallSum| situation.op(sum.op).map(|op| op.layer);
    let Some(lowest) = Layer::lowest(calls.iter().filter_map(|sum| layer_of(sum))) else { return Vec::new() };
    calls.iter().copied().filter(|sum| layer_of(sum) == Some(lowest)).collect()
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

    /// The part of the seconds in which there was at least one.
    pub fn share_of_seconds(&self) -> f64 {
        share(self.seconds.saturating_mul(SECOND_NS), self.of_ns)
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
