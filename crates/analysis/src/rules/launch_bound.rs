//! The host cannot launch fast enough: the GPU is done with a kernel before the next one comes.
//!
//! # How it is detected
//! As long as it has a CPU, the thread hardly ever waits for the GPU (at most a tenth of the time), and spends at least
//! four fifths on launching and on its own code between launches, of which launch calls alone are more than a third.
//! Or there are times in which the GPU keeps up with the launches: the wait that follows takes at most a twentieth of the
//! time in which they were made. Then launch calls must take more than a third of these times.
//! Or the GPU says that it was idle for longer than the thread did anything else than wait for it and launch every 30 us
//! or faster: then it idled between launches. What a framework does for each of them belongs to launching.
//!
//! # When it is not reported
//! Launches that block because the GPU's queue is full are waits for the GPU. A program that computes on the CPU
//! between few launches is not bound by them.
//!
//! # How to fix it
//! Launch less: CUDA graphs, `torch.compile`, fused kernels and optimizers, larger batches.

use gpuwhy_model::{CallClass, Chain, Evidence, Histogram, TimePart};
use gpuwhy_window::CallSum;

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::gpu::LONGEST_LAUNCH_NS;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    needs: &[CallClass::Launch],
    explains_its_line: &["host-compute"],
    ..Rule::new(
        "launch-bound",
        "Launching takes longer than the GPU's work",
        include_str!("launch_bound.rs"),
        Check::Thread(check),
    )
};

const LEAST_LAUNCHING: f64 = 0.35;
const LEAST_ON_ITS_OWN: f64 = 0.8;
const MOST_WAITING: f64 = 0.1;

/// Launches that follow each other so closely are all that the host does: a framework needs 5 to 20 us for each.
const CLOSE_NS: u64 = 30_000;

/// What else a program does while it launches is its own; less than this is not worth an alarm.
const NOTABLE: f64 = 0.15;

/// Fewer launches are nothing to be bound by.
const MANY: u64 = 1_000;

const FIX: &[&str] = &[
    "Launch less often: CUDA graphs (torch.cuda.graphs, torch.compile mode=\"reduce-overhead\"), fused kernels.",
    "Give each launch more to do: larger batches.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let thread = case.thread;
    let blocked_ns = blocked_launches_ns(case);
    let launching_ns = thread.part_ns(TimePart::Launching).saturating_sub(blocked_ns);
    let own_ns = launching_ns.saturating_add(thread.part_ns(TimePart::Application));
    let no_cpu_ns = thread.part_ns(TimePart::WaitingForCpu).saturating_add(thread.part_ns(TimePart::Throttled));
    let with_cpu = |ns| share(ns, thread.wall_ns().saturating_sub(no_cpu_ns));
    let waiting = with_cpu(thread.part_ns(TimePart::WaitingForGpu).saturating_add(blocked_ns));
    let is_bound =
        with_cpu(launching_ns) >= LEAST_LAUNCHING && with_cpu(own_ns) >= LEAST_ON_ITS_OWN && waiting <= MOST_WAITING;
    if is_bound {
        let hardly = format!("it hardly waited for the GPU ({}): that one had nothing left to do", percent(waiting));
        return case.judge(tell(case, launching_ns, thread.launches, hardly));
    }
    let feeding = thread.feeding;
    let between_ns = notable_between_launches_ns(case);
    if between_ns > 0 {
        let told = format!(
            "the GPU says that it was idle {} of the time",
            percent(thread.word.map_or(0.0, |word| word.without_kernels))
        );
        return case.judge(tell(case, between_ns, thread.launches, told));
    }
    if share(feeding.launching_ns, feeding.ns) >= LEAST_LAUNCHING && feeding.launches >= MANY {
        let kept_up = format!("the GPU was done with them as soon as they came, for {}", duration(feeding.ns));
        return case.judge(tell(case, feeding.launching_ns, feeding.launches, kept_up));
    }
    let (launching, waiting) = (percent(case.share(launching_ns)), percent(waiting));
    let why = format!("{} launched {launching} of its time and waited {waiting} for the GPU", case.name());
    case.rule_out(RULE.cause, launching_ns, why)
}

fn tell(case: &ThreadCase<'_, '_>, launching_ns: u64, count: u64, idle: String) -> Draft {
    let (name, launching) = (case.name(), percent(case.share(launching_ns)));
    let launches = case.heaviest(|sum| case.situation.is_launch(sum.op));
    let op = launches.map(|sum| sum.op);
    let each = duration(launches.map_or(0, |sum| sum.sum_ns / sum.calls.max(1)));
    let spent = format!("{name} made {count} launches of {each} each, {launching} of its time");
    let cited = case.longest_calls(|call| Some(call.op) == op);
    let chain = Chain::starting(edge(spent, Evidence::Observed, launching_ns, cited)).then(edge(
        idle,
        Evidence::Inferred,
        launching_ns,
        Vec::new(),
    ));
    let summary = format!("{name} spends {launching} of its time in {count} launches, and the GPU waits for them.");
    Draft {
        culprit: Some(case.own_process(format!("{count} launches of {each} each"))),
        fix: advice(FIX),
        places: case.places(|call| Some(call.op) == op),
        calls_affected: count,
        symptom: launches.and_then(|sum| case.symptom(sum)),
        ..Draft::new(RULE.cause, launching_ns, summary, chain)
    }
}

/// Idle time between launches that is told as such, and nowhere else.
pub(super) fn notable_between_launches_ns(case: &ThreadCase<'_, '_>) -> u64 {
    let between_ns = idle_between_launches_ns(case);
    if case.share(between_ns) < NOTABLE { 0 } else { between_ns }
}

/// How long the GPU must have been idle while the thread launched in rapid succession: the rest of its idle time, if it was
/// idle all the time that the thread did something else.
fn idle_between_launches_ns(case: &ThreadCase<'_, '_>) -> u64 {
    let thread = case.thread;
    let Some(word) = thread.word.filter(|_| thread.launches >= MANY) else { return 0 };
    let waiting_ns = thread.part_ns(TimePart::WaitingForGpu).saturating_add(blocked_launches_ns(case));
    let rapid_ns = rapid_ns(case).min(thread.wall_ns().saturating_sub(waiting_ns));
    let other_ns = thread.wall_ns().saturating_sub(waiting_ns).saturating_sub(rapid_ns);
    part(thread.wall_ns(), word.without_kernels).saturating_sub(other_ns).min(rapid_ns)
}

/// How long the thread did nothing but launch, from those of its launches that were seen one after the other.
fn rapid_ns(case: &ThreadCase<'_, '_>) -> u64 {
    let rows = case.situation.window.calls.rows.iter();
    let launches = rows.filter(|call| call.thread == case.thread.id && case.situation.is_launch(call.op));
    let (mut last_ns, mut seen, mut rapid_ns) = (None, 0u64, 0u64);
    for call in launches {
        let since_ns = last_ns.replace(call.start_ns).map(|last: u64| call.start_ns.saturating_sub(last));
        seen += 1;
        rapid_ns = rapid_ns.saturating_add(since_ns.filter(|&ns| ns <= CLOSE_NS).unwrap_or(0));
    }
    (rapid_ns as f64 / seen.max(1) as f64 * case.thread.launches as f64) as u64
}

/// Time on the CPU in launches beyond what a launch takes: they spin until the queue has a place.
pub(super) fn blocked_launches_ns(case: &ThreadCase<'_, '_>) -> u64 {
    let launches = case.thread.calls.iter().filter(|sum| case.situation.is_launch(sum.op));
    let excess = launches.fold(0u64, |all, sum| all.saturating_add(excess_ns(sum)));
    excess.min(case.thread.part_ns(TimePart::Launching))
}

/// What the histogram says of calls above the limit, without what they were off the CPU for.
fn excess_ns(sum: &CallSum) -> u64 {
    let mut excess = 0u64;
    for &(index, count) in sum.histogram.buckets() {
        let over_ns = Histogram::lower_bound_ns(index).saturating_sub(LONGEST_LAUNCH_NS);
        excess = excess.saturating_add(over_ns.saturating_mul(count));
    }
    excess.saturating_sub(sum.runqueue_ns).saturating_sub(sum.blocked_ns).min(sum.running_ns())
}
