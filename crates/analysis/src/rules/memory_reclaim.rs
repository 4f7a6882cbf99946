//! The thread spent its time on freeing memory because there was none left: direct reclaim or compaction.
//!
//! # How it is detected
//! The kernel says when a thread begins and ends reclaim (of the whole machine or of its cgroup) and compaction. The
//! time in between is summed up, working and waiting alike.
//!
//! # When it is not reported
//! Reclaim by the kernel's own threads costs the job nothing by itself. A cgroup that is full stays below one percent
//! as long as its pages are freed without delay.
//!
//! # How to fix it
//! Raise the memory limit (`memory.max`, `memory.limit_in_bytes`, a container's `--memory`), or use less: fewer
//! workers, smaller caches, `O_DIRECT` or `posix_fadvise(POSIX_FADV_DONTNEED)` for files that are read once.

use gpuwhy_model::{Chain, Evidence, KernelWork, Process, WorkKind};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::class::WaitClass;
use crate::gpu::Did;
use crate::parts::reclaim_ns;
use crate::words::{bytes, duration, percent};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Reclaim)],
    ..Rule::new(
        "memory-reclaim",
        "The kernel was freeing memory",
        include_str!("memory_reclaim.rs"),
        Check::Thread(check),
    )
};

const FIX: &[&str] = &[
    "Raise the memory limit of the job's cgroup (memory.max, memory.limit_in_bytes, --memory).",
    "Or use less memory: fewer workers, smaller caches, no page cache for files that are read once.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let lost_ns = reclaim_ns(case.thread.times).min(case.thread.wall_ns());
    match case.too_little(RULE.cause, lost_ns) {
        Some(verdict) => verdict,
        None => case.judge(tell(case, lost_ns)),
    }
}

fn tell(case: &ThreadCase<'_, '_>, lost_ns: u64) -> Draft {
    let (name, lost, limit) = (case.name(), percent(case.share(lost_ns)), limit(case.thread.process));
    let is_own = |work: &&KernelWork| {
        work.thread == case.thread.id && matches!(work.kind, WorkKind::Reclaim | WorkKind::Compaction)
    };
    let mut records: Vec<&KernelWork> = case.situation.window.kernel_work.rows.iter().filter(is_own).collect();
    records.sort_by_key(|work| std::cmp::Reverse(work.duration_ns));
    let cited = records.iter().take(3).map(|work| work.reference()).collect();
    let spent = format!("{name} spent {} on freeing memory in the kernel ({lost} of its time)", duration(lost_ns));
    let chain = Chain::starting(edge(spent, Evidence::Observed, lost_ns, cited)).then(edge(
        format!("its memory was used up: {limit}"),
        Evidence::Inferred,
        lost_ns,
        Vec::new(),
    ));
    let summary = format!("{name} spent {lost} of its time on freeing memory because there was none left ({limit}).");
    Draft {
        culprit: Some(case.own_process(limit)),
        fix: advice(FIX),
        places: case.run_places(),
        calls_affected: records.iter().fold(0u64, |sum, work| sum.saturating_add(work.all_count.max(1))),
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

fn limit(process: Option<&Process>) -> String {
    match process {
        Some(process) if process.memory_limit.is_some() => allowed(process),
        _ => "no limit of its cgroup is known, so the machine's".to_owned(),
    }
}

/// What memory a process may use, as far as that is known.
pub(super) fn allowed(process: &Process) -> String {
    let cgroup = if process.cgroup.is_empty() { "its cgroup" } else { &process.cgroup };
    match process.memory_limit {
        Some(limit) => format!("{cgroup} may use {}", bytes(limit)),
        None => cgroup.to_owned(),
    }
}
