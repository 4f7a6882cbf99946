//! What a thread did while a GPU had nothing to do.

use std::collections::BTreeMap;

use gpuwhy_model::{Call, Evidence, Span, StackId, ThreadId};

use super::{Gpu, Idle};
use crate::class::WaitClass;
use crate::graph::{Activity, activities};
use crate::places;
use crate::situation::Situation;
use crate::words::share;

/// The longest idle times are looked at; the others are taken to be like them.
const MOST_LOOKED_AT: usize = 20_000;

/// So many stacks say what a thread does.
const ENOUGH_STACKS: usize = 20;

/// What a thread did while a GPU had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Did {
    /// On the CPU, outside of calls.
    Compute,
    /// On the CPU, inside calls.
    Call,
    QueueForCpu,
    Wait(WaitClass),
    /// It mostly waited for somebody to ask for something.
    Nothing,
    Unknown,
}

impl Did {
    pub fn why(self) -> &'static str {
        match self {
            Self::Compute => "its own code ran",
            Self::Call => "it was inside a GPU call",
            Self::QueueForCpu => "waiting for a CPU",
            Self::Wait(WaitClass::Sleep) => "asleep on purpose",
            Self::Wait(class) => class.doing(),
            Self::Nothing => "nobody asked for anything",
            Self::Unknown => "not watched",
        }
    }
}

impl From<Activity> for Did {
    fn from(activity: Activity) -> Self {
        match activity {
            Activity::Running => Self::Call,
            Activity::Runqueue => Self::QueueForCpu,
            Activity::Waiting(class) => Self::Wait(class),
            Activity::Unknown => Self::Unknown,
        }
    }
}

/// What a thread did in the idle times that it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdleUse {
    /// All of them together.
    pub ns: u64,
    pub by_activity: BTreeMap<Did, u64>,
    /// The idle times themselves, in the order of time.
    pub spans: Vec<Span>,
    /// The part that is inferred.
    pub inferred_ns: u64,
    /// The part that is there at least, as it is estimated from some of the time.
    pub surely: f64,
    /// Where it was seen running in them, and how often.
    pub stacks: Vec<(StackId, u64)>,
}

impl IdleUse {
    pub fn find(situation: &Situation<'_>, gpus: &[Gpu], thread: ThreadId) -> Self {
        let is_own = |idle: &&Idle| idle.ended_by == thread;
        let mut own: Vec<&Idle> = gpus.iter().flat_map(|gpu| &gpu.idle).filter(is_own).collect();
        let of_gpu = |gpu: &Gpu| gpu.growth * gpu.idle.iter().filter(is_own).map(|idle| idle.ns() as f64).sum::<f64>();
        let all_ns = gpus.iter().map(of_gpu).sum::<f64>() as u64;
        let least_ns = gpus.iter().map(|gpu| gpu.surely() * of_gpu(gpu)).sum::<f64>() as u64;
        own.sort_by_key(|idle| std::cmp::Reverse(idle.ns()));
        own.truncate(MOST_LOOKED_AT);
        own.sort_by_key(|idle| idle.span.from_ns);
        let calls: Vec<&Call> = situation.window.calls.rows.iter().filter(|call| call.thread == thread).collect();
        let mut found = Self { surely: share(least_ns, all_ns), ..Self::default() };
        for idle in &own {
            found.add(situation, thread, idle, &calls);
        }
        found.scale_to(all_ns);
        found.stacks = found.stacks_in(situation, thread);
        // Where idle times are seen now and then, hardly any stack falls into them.
        if found.stacks.len() < ENOUGH_STACKS && gpus.iter().any(|gpu| gpu.growth > 1.0) {
            found.stacks = places::beside_calls(situation, thread).collect();
        }
        found
    }

    fn add(&mut self, situation: &Situation<'_>, thread: ThreadId, idle: &Idle, calls: &[&Call]) {
        let Span { from_ns, to_ns } = idle.span;
        self.ns = self.ns.saturating_add(idle.ns());
        self.inferred_ns += if idle.evidence == Evidence::Inferred { idle.ns() } else { 0 };
        self.spans.push(idle.span);
        let in_calls_ns = in_calls(calls, idle.span);
        let activities = activities(situation, thread, from_ns, to_ns);
        if is_without_demand(&activities, idle.ns()) {
            *self.by_activity.entry(Did::Nothing).or_default() += idle.ns();
            return;
        }
        for (activity, ns) in activities {
            let computing_ns = if activity == Activity::Running { ns.saturating_sub(in_calls_ns) } else { 0 };
            *self.by_activity.entry(Did::Compute).or_default() += computing_ns;
            *self.by_activity.entry(activity.into()).or_default() += ns - computing_ns;
        }
    }

    fn scale_to(&mut self, all_ns: u64) {
        if self.ns == 0 {
            return;
        }
        let factor = all_ns as f64 / self.ns as f64;
        let scaled = |ns: u64| (ns as f64 * factor) as u64;
        self.by_activity.values_mut().for_each(|ns| *ns = scaled(*ns));
        (self.ns, self.inferred_ns) = (all_ns, scaled(self.inferred_ns));
    }

    /// Where idle times are estimated, more of them may seem to be taken by its own code than that ran for. Its clock knows.
    pub fn limit_computing(&mut self, computed_ns: u64) {
        let Some(ns) = self.by_activity.get_mut(&Did::Compute) else { return };
        let surplus_ns = ns.saturating_sub(computed_ns);
        *ns -= surplus_ns;
        if surplus_ns > 0 {
            *self.by_activity.entry(Did::Unknown).or_default() += surplus_ns;
        }
    }

    /// How long it did one of these.
    pub fn did_ns(&self, did: &[Did]) -> u64 {
        did.iter().filter_map(|did| self.by_activity.get(did)).sum()
    }

    fn stacks_in(&self, situation: &Situation<'_>, thread: ThreadId) -> Vec<(StackId, u64)> {
        let own = situation.window.moments.iter().filter(|moment| moment.thread == thread);
        let idle = own.filter(|moment| self.contains(moment.bucket_ns));
        idle.map(|moment| (moment.stack, moment.count)).collect()
    }

    /// Whether a moment lies in one of the idle times.
    fn contains(&self, at_ns: u64) -> bool {
        let after = self.spans.partition_point(|span| span.from_ns <= at_ns);
        after.checked_sub(1).is_some_and(|at| at_ns < self.spans[at].to_ns)
    }
}

/// Whether a thread mostly waited for something to do. What it computes then is its answer to who asked at last.
fn is_without_demand(activities: &[(Activity, u64)], all_ns: u64) -> bool {
    const ASKED: &[WaitClass] = &[WaitClass::Request, WaitClass::Sleep];
    let waited =
        activities.iter().filter(|(activity, _)| matches!(activity, Activity::Waiting(class) if ASKED.contains(class)));
    waited.map(|(_, ns)| ns).sum::<u64>() * 2 > all_ns
}

/// On the CPU inside calls, within a span. Calls that are made inside of others count once.
fn in_calls(calls: &[&Call], span: Span) -> u64 {
    let first = calls.partition_point(|call| call.start_ns < span.from_ns);
    let (mut sum, mut until_ns) = (0u64, 0);
    for call in calls[first..].iter().take_while(|call| call.start_ns < span.to_ns) {
        if call.start_ns >= until_ns {
            sum = sum.saturating_add(call.running_ns());
            until_ns = call.span().to_ns;
        }
    }
    sum.min(span.ns())
}
