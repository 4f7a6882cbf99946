//! The thread waited for pages that had to be read from a device, or the kernel was busy giving it pages while the GPU
//! had nothing to do.
//!
//! # How it is detected
//! A thread that blocks in a page fault for a device is counted apart from other I/O, and so is the number of its major
//! faults. Minor faults, which need no device, cost time in the kernel: where there are many, they can account for at
//! least half of what the thread computes while the GPU is idle. A thread that computes all the time, a quarter of it for
//! faults, keeps the GPU waiting with each of them, wherever in its loop. A page of two megabytes takes the kernel a tenth
//! of a millisecond: fewer faults account for it where the thread is in code that makes no system calls.
//!
//! # When it is not reported
//! A few thousand faults a second are usual. I/O that the program asked for is `io-wait`. Reclaim that precedes a
//! fault is `memory-reclaim`. Time in the kernel without faults is `host-compute`.
//!
//! # How to fix it
//! Read files that are mapped before they are needed (`MAP_POPULATE`, `madvise(MADV_WILLNEED)`), or read them into
//! memory. If pages come back again and again, memory is too small: raise the limit, or use less. Keep maps and large
//! buffers instead of making them anew.

use gpuwhy_model::{Chain, Evidence, TimePart};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Fault), Did::Compute],
    explains_its_line: &["host-compute"],
    ..Rule::new("page-fault", "Waiting for pages of memory", include_str!("page_fault.rs"), Check::Thread(check))
};

const FIX: &[&str] = &[
    "Read mapped files before they are needed (MAP_POPULATE, madvise(MADV_WILLNEED)).",
    "If the same pages are read again and again, give the job more memory.",
];

/// What a fault costs the kernel at most: a page of memory is cleared or found, and mapped. One of two megabytes takes as
/// much longer as it is larger.
const MOST_PER_FAULT_NS: u64 = 3_000;
const MOST_PER_LARGE_FAULT_NS: u64 = 300_000;

/// Where calls of the kernel are made from.
const MAKES_SYSTEM_CALLS: &[&str] = &["libc.so", "libc.musl", "libpthread", "ld-linux", "python", "libpython"];

/// Of what the thread computes while the GPU is idle.
const LEAST_OF_IDLE: f64 = 0.5;

/// A thread that computes for so much of its time has nothing else to wait for.
const BOUND: f64 = 0.75;
/// Its faults are much, of what it computes.
const LEAST_IN_KERNEL: f64 = 0.25;

const FIX_MINOR: &[&str] = &[
    "Keep maps of files and large buffers instead of making them anew: every new page costs a fault.",
    "Map with MAP_POPULATE, or use large pages, so that one fault stands for many pages.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let minor_ns = minor_ns(case);
    if minor_ns > case.thread.waits.ns(WaitClass::Fault) && case.too_little(RULE.cause, minor_ns).is_none() {
        return case.judge(tell_minor(case, minor_ns));
    }
    let sum = case.thread.waits.get(WaitClass::Fault);
    if let Some(verdict) = case.too_little(RULE.cause, sum.ns) {
        return verdict;
    }
    let (name, lost) = (case.name(), percent(case.share(sum.ns)));
    let faults = case.thread.times.major_faults;
    let waited = format!("{name} waited {} in page faults ({lost} of its time)", duration(sum.ns));
    let counted = format!("{faults} of its page faults had to wait for a device");
    let chain = Chain::starting(edge(waited, Evidence::Observed, sum.ns, sum.cited)).then(edge(
        counted,
        Evidence::Observed,
        sum.ns,
        Vec::new(),
    ));
    let summary = format!("{name} waited {lost} of its time in {faults} major page faults.");
    case.judge(Draft {
        culprit: Some(case.own_process(format!("{faults} major page faults"))),
        fix: advice(FIX),
        places: case.wait_places(|class| class == WaitClass::Fault),
        calls_affected: sum.count,
        backing: Backing { share: sum.backed, records: sum.records },
        ..Draft::new(RULE.cause, sum.ns, summary, chain)
    })
}

/// What minor faults cost of the time in which the GPU was idle, where they account for at least half of what the thread
/// computed then.
fn minor_ns(case: &ThreadCase<'_, '_>) -> u64 {
    let times = case.thread.times;
    // It may also run while it waits for the GPU.
    let own_ns = case.thread.part_ns(TimePart::Application);
    let most_ns = if is_in_system_calls(case) { MOST_PER_FAULT_NS } else { MOST_PER_LARGE_FAULT_NS };
    let faults_ns = times.system_ns.min(times.minor_faults.saturating_mul(most_ns));
    let idle_ns = case.thread.idle.did_ns(&[Did::Compute]);
    let in_kernel = share(faults_ns, own_ns).min(1.0);
    // Who computes all the time keeps the GPU waiting with whatever it does.
    let is_bound = case.share(own_ns) >= BOUND && in_kernel >= LEAST_IN_KERNEL;
    let lost_ns = if is_bound { faults_ns.min(idle_ns) } else { part(idle_ns, in_kernel) };
    if share(lost_ns, idle_ns) < LEAST_OF_IDLE { 0 } else { lost_ns }
}

/// Whether the thread may have called the kernel where it mostly computed. Elsewhere only faults lead there.
fn is_in_system_calls(case: &ThreadCase<'_, '_>) -> bool {
    let innermost = case.idle_places().into_iter().rfind(|place| place.line.is_none());
    innermost.is_none_or(|place| {
        let name = place.file.rsplit('/').next().unwrap_or_default();
        MAKES_SYSTEM_CALLS.iter().any(|library| name.starts_with(library))
    })
}

fn tell_minor(case: &ThreadCase<'_, '_>, lost_ns: u64) -> Draft {
    let times = case.thread.times;
    let (name, lost, faults) = (case.name(), percent(case.share(lost_ns)), times.minor_faults);
    let faulted = format!("{name} had {faults} page faults, {} of its time on the CPU in the kernel", {
        percent(share(times.system_ns, times.running_ns()))
    });
    let idle = format!("the GPU had nothing to do meanwhile for {}", duration(lost_ns));
    let chain = Chain::starting(edge(faulted, Evidence::Observed, times.system_ns, Vec::new())).then(edge(
        idle,
        Evidence::Inferred,
        lost_ns,
        Vec::new(),
    ));
    let summary =
        format!("The GPU had nothing to do for {lost} of the time while {name} got {faults} pages of memory.");
    Draft {
        culprit: Some(case.own_process(format!("{faults} minor page faults"))),
        fix: advice(FIX_MINOR),
        places: case.idle_places(),
        calls_affected: case.thread.idle.spans.len() as u64,
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}
