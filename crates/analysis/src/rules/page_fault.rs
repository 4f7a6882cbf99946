//! The thread waited for pages that had to be read from a device: major page faults.
//!
//! # How it is detected
//! A thread that blocks in a page fault for a device is counted apart from other I/O, and so is the number of its major
//! faults.
//!
//! # When it is not reported
//! Minor faults need no device and do not block. I/O that the program asked for is `io-wait`. Reclaim that precedes a
//! fault is `memory-reclaim`.
//!
//! # How to fix it
//! Read files that are mapped before they are needed (`MAP_POPULATE`, `madvise(MADV_WILLNEED)`), or read them into
//! memory. If pages come back again and again, memory is too small: raise the limit, or use less.

use gpuwhy_model::{Chain, Evidence};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::words::{duration, percent};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Fault)],
    ..Rule::new("page-fault", "Waiting for pages of memory", include_str!("page_fault.rs"), Check::Thread(check))
};

const FIX: &[&str] = &[
    "Read mapped files before they are needed (MAP_POPULATE, madvise(MADV_WILLNEED)).",
    "If the same pages are read again and again, give the job more memory.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
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
