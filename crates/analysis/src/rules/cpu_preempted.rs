//! The thread was ready to run and waited for a CPU that others used.
//!
//! # How it is detected
//! The scheduler's own clock says how long the thread was runnable without running. For each such stretch the kernel
//! side notes who ran on that CPU meanwhile and for how long. The culprit is the process that ran most there, and of
//! its threads the one that ran most; not whoever happened to run just before.
//!
//! # When it is not reported
//! Time in which the cgroup's CPU quota was used up is `cpu-throttled`. Time that the tracer took is never a finding.
//! A run queue without anybody on the CPU is the latency of a wake-up, not a preemption. Less than a tenth of the time
//! is usual on a busy machine and is reported as low. So is up to a fifth of it when the thread waits for the GPU three
//! times as long: then it is ahead of the GPU, which has work to do in the meantime.
//!
//! # How to fix it
//! Give the thread a CPU of its own: pin the job and the other load to different CPUs (`taskset`, cpusets, Kubernetes'
//! static CPU manager), lower the other's priority (`nice`, `cpu.weight`), or start fewer workers than there are CPUs.

use gpuwhy_model::{Chain, Edge, Evidence, Reference, Role, Severity, TimePart};

use super::takers::{Most, Takers};
use super::{Check, Rule};
use crate::case::{Draft, ThreadCase, Verdict, edge, thread_culprit};
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::places;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::QueueForCpu],
    is_usual_when_low: true,
    ..Rule::new("cpu-preempted", "Others had the CPU", include_str!("cpu_preempted.rs"), Check::Thread(check))
};

/// A share that a busy machine takes anyway.
const USUAL_SHARE: f64 = 0.1;

/// A thread that waits for the GPU so many times as long as for a CPU is ahead of the GPU, up to a share that is not.
const AHEAD: u64 = 3;
const MOST_HIDDEN: f64 = 0.2;

/// A process that had less of the time than this is one of many, and not who had the CPU.
const ONE_OF_MANY: f64 = 0.1;

/// From this part on, those who are on record are all.
const NEARLY_ALL: f64 = 0.9;

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let times = case.thread.times;
    let runqueue_ns = times.runqueue_ns.saturating_sub(times.throttled_ns).min(times.wall_ns);
    if let Some(verdict) = case.too_little(RULE.cause, runqueue_ns) {
        return verdict;
    }
    let takers = Takers::find(case.situation, case.thread.id);
    if takers.records == 0 {
        return case.judge(unrecorded(case, runqueue_ns));
    }
    let without_tracer_ns = part(runqueue_ns, 1.0 - share(takers.tracer_ns, takers.all_ns));
    let known_ns = part(runqueue_ns, share(takers.known_ns(), takers.all_ns));
    // Mostly nobody was there: then only what somebody took was taken.
    let lost_ns = if known_ns >= without_tracer_ns / 2 { without_tracer_ns } else { known_ns };
    match takers.most(case.situation) {
        Some(most) if case.too_little(RULE.cause, lost_ns).is_none() => {
            case.judge(taken(case, &takers, &most, lost_ns, known_ns))
        }
        _ => {
            let (all, known) = (percent(case.share(runqueue_ns)), percent(case.share(known_ns)));
            let why = format!("{} waited {all} of its time for a CPU, but others used it only {known}", case.name());
            case.rule_out(RULE.cause, lost_ns, why)
        }
    }
}

fn taken(case: &ThreadCase<'_, '_>, takers: &Takers, most: &Most, lost_ns: u64, known_ns: u64) -> Draft {
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let culprit = case.situation.name(most.thread);
    let taken_ns = part(known_ns, share(most.process_ns, takers.known_ns()));
    let had = format!(
        "{culprit} and its process had that CPU for {} of it{}",
        duration(taken_ns),
        others(takers, most, known_ns)
    );
    let chain = Chain::starting(waited(case, lost_ns, takers.cited.clone())).then(edge(
        had,
        Evidence::Observed,
        taken_ns,
        takers.cited.clone(),
    ));
    let detail = format!("ran on its CPU {} of that time", percent(share(taken_ns, lost_ns)));
    let is_one_of_many = share(taken_ns, lost_ns) < ONE_OF_MANY;
    let users = if is_one_of_many { format!("many used, {culprit} among them") } else { format!("{culprit} used") };
    let summary = format!("{name} waited {lost} of its time for a CPU that {users}.");
    Draft {
        culprit: Some(thread_culprit(case.situation, most.thread, detail)),
        fix: vec![
            format!("Keep {culprit} off the CPUs of {name}: pin them apart (taskset, cpusets)."),
            "Lower the other's priority (nice, cpu.weight), or run fewer threads than there are CPUs.".to_owned(),
        ],
        places: [places::of_samples(case.situation, most.thread, Role::Culprit), case.run_places()].concat(),
        calls_affected: takers.records,
        backing: Backing { share: backed(case, takers) * coherent(known_ns, lost_ns), records: takers.records },
        most_severe: if is_harmless(case, lost_ns) { Severity::Low } else { Severity::High },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

/// Who had what the process that took most had not. Of a long wait in which many took turns, the kernel side keeps some.
fn others(takers: &Takers, most: &Most, known_ns: u64) -> String {
    let named_ns = takers.named_ns();
    let others = match most.processes.saturating_sub(1) {
        0 => String::new(),
        1 => ", another process".to_owned(),
        others => format!(", {others} other processes"),
    };
    if share(named_ns, takers.known_ns()) >= NEARLY_ALL {
        return if others.is_empty() { others } else { format!("{others} the rest") };
    }
    let others_ns = part(known_ns, share(named_ns.saturating_sub(most.process_ns), takers.known_ns()));
    let others = if others.is_empty() { others } else { format!("{others} {}", duration(others_ns)) };
    format!("{others}; who had the rest is not on record")
}

fn is_harmless(case: &ThreadCase<'_, '_>, lost_ns: u64) -> bool {
    let share = case.share(lost_ns);
    let is_ahead = case.thread.part_ns(TimePart::WaitingForGpu) >= lost_ns.saturating_mul(AHEAD);
    share < USUAL_SHARE || (share < MOST_HIDDEN && is_ahead)
}

fn waited(case: &ThreadCase<'_, '_>, lost_ns: u64, cited: Vec<Reference>) -> Edge {
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let what = format!("{name} was ready to run, and waited {} for a CPU ({lost} of its time)", duration(lost_ns));
    edge(what, Evidence::Observed, lost_ns, cited)
}

/// Share of the run-queue time that records stand for.
fn backed(case: &ThreadCase<'_, '_>, takers: &Takers) -> f64 {
    let times = case.thread.times;
    let clock_ns = times.runqueue_ns.saturating_sub(times.throttled_ns) as f64 * case.situation.stretch_share();
    (takers.all_ns as f64 / clock_ns.max(1.0)).min(1.0)
}

/// Share of the loss that somebody is known to have caused.
fn coherent(known_ns: u64, lost_ns: u64) -> f64 {
    share(known_ns, lost_ns).min(1.0)
}

/// The clock tells of the wait, and nothing of who had the CPU.
fn unrecorded(case: &ThreadCase<'_, '_>, lost_ns: u64) -> Draft {
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let chain = Chain::starting(waited(case, lost_ns, Vec::new())).then(edge(
        "who had that CPU meanwhile was not recorded".to_owned(),
        Evidence::Missing,
        lost_ns,
        Vec::new(),
    ));
    let summary = format!("{name} waited {lost} of its time for a CPU; who used it is not known.");
    Draft {
        fix: super::advice(&["Trace again to see who runs on those CPUs."]),
        backing: Backing { share: 1.0, records: 0 },
        most_severe: if is_harmless(case, lost_ns) { Severity::Low } else { Severity::Medium },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}
