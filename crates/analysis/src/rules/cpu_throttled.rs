//! The thread was stopped by its cgroup's CPU quota.
//!
//! # How it is detected
//! A thread that waits in the run queue while its cgroup's quota is used up is marked as throttled by the kernel side,
//! which reads the run queue's own throttling state. The sum of that time is kept apart from waiting for a CPU.
//!
//! # When it is not reported
//! A thread that waits for a CPU while its quota is not used up is `cpu-preempted`. A quota that is never used up is not
//! reported, however small it is.
//!
//! # How to fix it
//! Raise or remove the quota (`cpu.max`, `cpu.cfs_quota_us`, a container's `--cpus`, Kubernetes' `limits.cpu`), or let
//! the job use fewer threads: all of them share the quota, also data-loading workers.

use gpuwhy_model::{Chain, Evidence, Process};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::gpu::Did;
use crate::waits::longest;
use crate::words::{duration, percent};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::QueueForCpu],
    ..Rule::new("cpu-throttled", "Stopped by a CPU quota", include_str!("cpu_throttled.rs"), Check::Thread(check))
};

const FIX: &[&str] = &[
    "Raise or remove the CPU quota (cpu.max, cpu.cfs_quota_us, --cpus, limits.cpu).",
    "Or use fewer threads and workers: they share the quota.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let times = case.thread.times;
    let lost_ns = times.throttled_ns.min(times.runqueue_ns);
    if let Some(verdict) = case.too_little(RULE.cause, lost_ns) {
        return verdict;
    }
    let (name, lost, quota) = (case.name(), percent(case.share(lost_ns)), quota(case.thread.process));
    let stops = case.situation.waits(case.thread.id).iter().filter(|waiting| waiting.stretch.is_throttled);
    let count = stops.clone().count() as u64;
    let cited = longest(stops, |waiting| waiting.stretch.runqueue_ns);
    let held = format!("{name} was ready to run, and was held back for {} ({lost} of its time)", duration(lost_ns));
    let used_up = format!("its cgroup had used up its CPU quota: {quota}");
    let chain = Chain::starting(edge(held, Evidence::Observed, lost_ns, cited)).then(edge(
        used_up,
        Evidence::Explicit,
        lost_ns,
        Vec::new(),
    ));
    let summary = format!("{name} was stopped {lost} of its time by the CPU quota of its cgroup ({quota}).");
    case.judge(Draft {
        culprit: Some(case.own_process(quota)),
        fix: advice(FIX),
        places: case.run_places(),
        calls_affected: count,
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    })
}

fn quota(process: Option<&Process>) -> String {
    let cgroup = process.map(|process| process.cgroup.as_str()).filter(|cgroup| !cgroup.is_empty());
    let cgroup = cgroup.unwrap_or("its cgroup");
    match process.and_then(|process| process.cpu_quota) {
        Some(cpus) => format!("{cgroup} may use {cpus:.2} CPUs"),
        None => cgroup.to_owned(),
    }
}
