//! Copies that should run in the background hold the caller, because the host memory is pageable.
//!
//! # How it is detected
//! An asynchronous copy from page-locked memory returns within microseconds. One from pageable memory is staged by the
//! driver and holds the caller about as long as its bytes take: calls of at least 50 us on average, at no more than
//! 30 GB/s.
//!
//! # When it is not reported
//! Synchronous copies are meant to wait. Copies that take far longer than their bytes would wait
//! for the GPU's other work: `gpu-busy` or `sync-storm`.
//!
//! # How to fix it
//! Use page-locked memory: `pin_memory=True` for the DataLoader, `tensor.pin_memory()`, `cudaHostAlloc`; and copy with
//! `non_blocking=True`.

use gpuwhy_model::{CallClass, Chain, Evidence, Meaning, MemoryKind};
use gpuwhy_window::CallSum;

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::sync_point::is_sync_point;
use crate::words::{bytes, duration, percent};

pub const RULE: Rule = Rule {
    meanwhile: super::IN_CALLS,
    needs: &[CallClass::Copy],
    ..Rule::new("pageable-copy", "Copies from pageable memory", include_str!("pageable_copy.rs"), Check::Thread(check))
};

const LEAST_MEAN_NS: u64 = 50_000;
const MOST_BYTES_PER_NS: f64 = 30.0;

const FIX: &[&str] = &[
    "Copy from page-locked memory: pin_memory=True, tensor.pin_memory(), cudaHostAlloc.",
    "Then copy with non_blocking=True, so that the copy overlaps with the GPU's work.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let copies: Vec<&CallSum> = case.thread.calls.iter().copied().filter(|sum| is_held(case, sum)).collect();
    let lost_ns = copies.iter().fold(0u64, |all, sum| all.saturating_add(held_ns(sum))).min(case.thread.wall_ns());
    match case.too_little(RULE.cause, lost_ns) {
        Some(verdict) => verdict,
        None => case.judge(tell(case, &copies, lost_ns)),
    }
}

fn tell(case: &ThreadCase<'_, '_>, copies: &[&CallSum], lost_ns: u64) -> Draft {
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let count = copies.iter().fold(0u64, |all, sum| all.saturating_add(sum.calls));
    let size = copies.iter().fold(0u64, |all, sum| all.saturating_add(sum.bytes));
    let is_copy = |op| copies.iter().any(|sum| sum.op == op);
    let rate = size as f64 / lost_ns.max(1) as f64;
    let each = bytes(size / count.max(1));
    let held = format!("{name} was held {} by asynchronous copies ({lost} of its time)", duration(lost_ns));
    let slow = format!("{count} copies of {each} ran at {rate:.1} GB/s: as fast as memory is staged");
    let cited = case.longest_calls(|call| is_copy(call.op));
    let chain = Chain::starting(edge(held, Evidence::Observed, lost_ns, cited)).then(edge(
        slow,
        Evidence::Inferred,
        lost_ns,
        Vec::new(),
    ));
    let summary = format!("{name} is held {lost} of its time by {count} copies from pageable memory ({rate:.1} GB/s).");
    Draft {
        culprit: Some(case.own_process(format!("{count} copies of {each} each"))),
        fix: advice(FIX),
        places: case.places(|call| is_copy(call.op)),
        calls_affected: count,
        symptom: case.heaviest(|sum| is_copy(sum.op)).and_then(|sum| case.symptom(sum)),
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

fn held_ns(sum: &CallSum) -> u64 {
    sum.sum_ns.saturating_sub(sum.runqueue_ns)
}

fn is_held(case: &ThreadCase<'_, '_>, sum: &CallSum) -> bool {
    let is_meant = |meaning: &Meaning| {
        // Managed memory is not staged.
        meaning.class == CallClass::Copy && meaning.is_async && meaning.memory != Some(MemoryKind::Managed)
    };
    let is_asynchronous = case.situation.op(sum.op).is_some_and(|op| is_meant(&op.meaning));
    let is_slow = held_ns(sum) / sum.calls.max(1) >= LEAST_MEAN_NS;
    let rate = sum.bytes as f64 / held_ns(sum).max(1) as f64;
    is_asynchronous && is_slow && rate <= MOST_BYTES_PER_NS && !is_sync_point(case.situation, sum)
}
