//! The threads that feed a GPU, closer up: where the time of a second went, and of a single step.

use std::collections::BTreeMap;

use gpuwhy_model::{Breakdown, Call, Coverage, Histogram, OpId, Part, ThreadId, ThreadTimes, WaitReason};
use gpuwhy_window::{CallSum, ThreadSecond, Window};

use crate::class::WaitClass;
use crate::coverage;
use crate::dispatcher::{Dispatcher, dispatchers};
use crate::explain::breakdown;
use crate::parts::{self, ByFunction};
use crate::situation::Situation;
use crate::steps::Gap;
use crate::waiting::Waiting;
use crate::waits::{self, Weighed};
use crate::words::{part, share};

pub struct DispatchThreads<'w> {
    situation: Situation<'w>,
    dispatchers: Vec<Dispatcher<'w>>,
}

impl<'w> DispatchThreads<'w> {
    pub fn new(window: &'w Window) -> Self {
        let situation = Situation::new(window);
        Self { dispatchers: dispatchers(&situation, &[]), situation }
    }

    /// What is known of them is based on.
    pub fn coverage(&self) -> Coverage {
        coverage::coverage(&self.situation)
    }

    pub fn iter(&self) -> impl Iterator<Item = DispatchThread<'_, 'w>> {
        self.dispatchers.iter().map(|thread| DispatchThread::new(&self.situation, thread))
    }
}

pub struct DispatchThread<'s, 'w> {
    situation: &'s Situation<'w>,
    thread: &'s Dispatcher<'w>,
    functions: ByFunction,
    usual: Vec<Weighed<'s, 'w>>,
}

/// Where the time of one step went.
#[derive(Clone, Debug, PartialEq)]
pub struct StepParts {
    pub at_ns: u64,
    pub ns: u64,
    /// They add up to its length.
    pub parts: Vec<Part>,
}

impl<'s, 'w> DispatchThread<'s, 'w> {
    fn new(situation: &'s Situation<'w>, thread: &'s Dispatcher<'w>) -> Self {
        let functions = parts::by_function(situation, &thread.calls);
        Self { situation, thread, functions, usual: usual(situation.waits(thread.id)) }
    }

    pub fn id(&self) -> ThreadId {
        self.thread.id
    }

    /// Over the whole window.
    pub fn breakdown(&self) -> Breakdown {
        breakdown(self.situation, self.thread)
    }

    /// Over one second of its clocks. The parts add up to its wall time.
    pub fn second(&self, second: &ThreadSecond) -> Vec<Part> {
        let times = &second.times;
        let to_ns = times.bucket_ns.saturating_add(times.wall_ns);
        let mut weighed: Vec<Weighed<'_, '_>> =
            self.overlapping(times.bucket_ns, to_ns).map(|(waiting, blocked, _)| (waiting, blocked)).collect();
        self.add_usual(times, &mut weighed);
        let calls: Vec<&CallSum> = second.calls.iter().filter(|sum| self.functions.contains_key(&sum.op)).collect();
        self.split(times, &calls, &weighed)
    }

    /// The step that half of the others are shorter than.
    pub fn median_step(&self) -> Option<StepParts> {
        let mut gaps: Vec<&Gap> = self.thread.gaps.iter().collect();
        gaps.sort_by_key(|gap| (gap.ns, gap.at_ns));
        gaps.get(gaps.len() / 2).map(|gap| self.step(gap))
    }

    pub fn slowest_step(&self) -> Option<StepParts> {
        self.thread.gaps.iter().max_by_key(|gap| gap.ns).map(|gap| self.step(gap))
    }

    /// Share of its calls that have a record, where calls were read. What has none is not told apart within a step.
    pub fn recorded(&self) -> f64 {
        let window = self.situation.window;
        let read = share(window.calls.covered_ns(), window.to_ns.saturating_sub(window.from_ns));
        let is_own = |call: &&Call| call.thread == self.thread.id && self.functions.contains_key(&call.op);
        let rows = window.calls.rows.iter().filter(is_own).count();
        (rows as f64 / (self.thread.calls_made() as f64 * read).max(1.0)).min(1.0)
    }

    /// From records alone: clocks are not that fine.
    fn step(&self, gap: &Gap) -> StepParts {
        let to_ns = gap.at_ns.saturating_add(gap.ns);
        let mut times = ThreadTimes::new(gap.at_ns, self.thread.id, gap.ns);
        let mut weighed = Vec::new();
        for (waiting, blocked_ns, runqueue_ns) in self.overlapping(gap.at_ns, to_ns) {
            if let Some(reason) = waiting.stretch.reason {
                add(&mut times.blocked_ns[reason as usize], blocked_ns);
            }
            add(&mut times.runqueue_ns, runqueue_ns);
            add(&mut times.throttled_ns, if waiting.stretch.is_throttled { runqueue_ns } else { 0 });
            weighed.push((waiting, blocked_ns));
        }
        let calls: Vec<CallSum> = self.calls_between(gap.at_ns, to_ns).map(as_sum).collect();
        let parts = self.split(&times, &calls.iter().collect::<Vec<_>>(), &weighed);
        StepParts { at_ns: gap.at_ns, ns: gap.ns, parts }
    }

    fn split(&self, times: &ThreadTimes, calls: &[&CallSum], weighed: &[Weighed<'_, '_>]) -> Vec<Part> {
        let waits = waits::split(self.situation, times, calls, weighed);
        parts::split(times, calls, &waits, &self.functions).list()
    }

    /// Waits that reach into a time, with as much of what they stand for as lies in it: blocked, and without a CPU.
    fn overlapping(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (&'s Waiting<'w>, u64, u64)> {
        let waits: &'s [Waiting<'w>] = self.situation.waits(self.thread.id);
        // A thread waits once at a time, so only the one before may reach in.
        let first = waits.partition_point(|waiting| waiting.stretch.start_ns < from_ns).saturating_sub(1);
        let until = move |waiting: &&Waiting<'w>| waiting.stretch.start_ns < to_ns;
        waits[first..].iter().take_while(until).filter_map(move |waiting| {
            let stretch = waiting.stretch;
            let inside = |start_ns: u64, end_ns: u64, all_ns: u64| {
                let length_ns = end_ns.saturating_sub(start_ns);
                let inside_ns = end_ns.min(to_ns).saturating_sub(start_ns.max(from_ns));
                match length_ns {
                    0 if (from_ns..to_ns).contains(&start_ns) => all_ns,
                    0 => 0,
                    _ => part(all_ns, share(inside_ns, length_ns)),
                }
            };
            let blocked_to_ns = waiting.blocked_to_ns();
            let blocked_ns = inside(stretch.start_ns, blocked_to_ns, stretch.all.blocked_ns);
            let runqueue_ns = inside(blocked_to_ns, waiting.end_ns(), stretch.all.runqueue_ns);
            (blocked_ns > 0 || runqueue_ns > 0).then_some((waiting, blocked_ns, runqueue_ns))
        })
    }

    /// Where no record of a second says what a wait was for, it was for what such waits are for otherwise.
    fn add_usual(&self, times: &ThreadTimes, weighed: &mut Vec<Weighed<'s, 'w>>) {
        let is_told = |reason| weighed.iter().any(|(one, ns)| one.stretch.reason == Some(reason) && *ns > 0);
        let untold: Vec<WaitReason> = WaitReason::ALL
            .iter()
            .copied()
            .filter(|&reason| times.blocked_ns[reason as usize] > 0 && !is_told(reason))
            .collect();
        let is_untold = |one: &&Weighed<'s, 'w>| one.0.stretch.reason.is_some_and(|reason| untold.contains(&reason));
        weighed.extend(self.usual.iter().filter(is_untold).copied());
    }

    fn calls_between(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &'w Call> {
        let rows: &'w [Call] = &self.situation.window.calls.rows;
        let first = rows.partition_point(|call| call.start_ns < from_ns);
        let within = rows[first..].iter().take_while(move |call| call.start_ns < to_ns);
        within.filter(|call| call.thread == self.thread.id && self.functions.contains_key(&call.op))
    }
}

/// How a thread waited, what for, and in which call.
type Kind = (Option<WaitReason>, Option<WaitClass>, Option<OpId>);

/// What each reason to wait mostly stands for: one wait of each kind, with the time of all of them.
fn usual<'s, 'w>(waits: &'s [Waiting<'w>]) -> Vec<Weighed<'s, 'w>> {
    let mut kinds: BTreeMap<Kind, Weighed<'s, 'w>> = BTreeMap::new();
    for waiting in waits {
        let kind = (waiting.stretch.reason, waiting.class, waiting.stretch.op);
        add(&mut kinds.entry(kind).or_insert((waiting, 0)).1, waiting.stretch.all.blocked_ns);
    }
    kinds.into_values().filter(|(_, ns)| *ns > 0).collect()
}

fn as_sum(call: &Call) -> CallSum {
    CallSum {
        thread: call.thread,
        op: call.op,
        seen: 1,
        calls: 1,
        sum_ns: call.duration_ns,
        runqueue_ns: call.runqueue_ns,
        blocked_ns: call.blocked_ns,
        bytes: call.bytes.unwrap_or(0),
        errors: u64::from(call.ret_code != 0),
        max_ns: call.duration_ns,
        histogram: Histogram::default(),
        seconds: 1,
    }
}

fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}
