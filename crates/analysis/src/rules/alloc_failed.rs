//! An allocation of GPU memory failed: there was not enough left.
//!
//! # How it is detected
//! Every call's return code is counted. Allocations that return an error, with the driver's code for "out of memory"
//! where the call was kept, are the evidence: the driver itself says so.
//!
//! # When it is not reported
//! Errors of other calls. Allocations that fail for another reason, as far as the calls that were kept tell.
//!
//! # How to fix it
//! Use less: a smaller batch, activation checkpointing, lower precision. Look at who else is on the GPU. If memory is
//! free but in pieces, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` helps. If live memory only grows, see
//! `memory-leak`.

use gpuwhy_model::{Call, CallClass, Chain, Evidence, Finding, Impact, LifeKind, ProcessId, Severity, ThreadId};
use gpuwhy_window::CallSum;

use super::{Check, Rule, advice};
use crate::case::{JobCase, Verdict, edge, found, own_process, victim};
use crate::confidence::{self, Backing};
use crate::places;
use crate::situation::Situation;
use crate::words::bytes;

pub const RULE: Rule =
    Rule::new("alloc-failed", "GPU memory ran out", include_str!("alloc_failed.rs"), Check::Job(check));

/// `CUDA_ERROR_OUT_OF_MEMORY`, `cudaErrorMemoryAllocation`.
const OUT_OF_MEMORY: i32 = 2;

/// A process that ends so soon after a failure ended because of it.
const SOON_NS: u64 = 1_000_000_000;

/// Failures from which on they are a habit, and the steps that may lie between two.
const HABIT: u64 = 3;
const STEPS_BETWEEN: u64 = 10;

const FIX: &[&str] = &[
    "Use less GPU memory: a smaller batch, activation checkpointing, lower precision.",
    "Look at who else uses the GPU, and at fragmentation (expandable_segments:True).",
];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let processes = case.situation.job().into_iter();
    let mut verdicts: Vec<Verdict> = processes.filter_map(|process| of_process(case, process)).collect();
    if verdicts.is_empty() {
        let why = "no allocation of GPU memory failed".to_owned();
        verdicts.push(Verdict::ruled_out(RULE.cause, why));
    }
    verdicts
}

fn of_process(case: &JobCase<'_, '_>, process: ProcessId) -> Option<Verdict> {
    let situation = case.situation;
    let is_alloc = |sum: &&CallSum| {
        situation.process_id(sum.thread) == Some(process) && situation.class_of(sum.op) == Some(CallClass::Alloc)
    };
    let allocs = situation.window.call_sums.iter().filter(is_alloc);
    let worst = allocs.clone().filter(|sum| sum.errors > 0).max_by_key(|sum| sum.errors)?;
    let errors = allocs.clone().fold(0u64, |all, sum| all.saturating_add(sum.errors));
    let total = allocs.fold(0u64, |all, sum| all.saturating_add(sum.calls));
    let rows = failed_rows(situation, process);
    // Kept calls that all failed for other reasons are somebody else's story.
    if !rows.is_empty() && rows.iter().all(|call| call.ret_code != OUT_OF_MEMORY) {
        return None;
    }
    Some(Verdict::Found(Box::new(finding(case, worst.thread, errors, total, &rows))))
}

fn failed_rows<'w>(situation: &Situation<'w>, process: ProcessId) -> Vec<&'w Call> {
    let is_failed = |call: &&Call| {
        call.ret_code != 0
            && situation.class_of(call.op) == Some(CallClass::Alloc)
            && situation.process_id(call.thread) == Some(process)
    };
    situation.window.calls.rows.iter().filter(is_failed).collect()
}

fn finding(case: &JobCase<'_, '_>, thread: ThreadId, errors: u64, total: u64, rows: &[&Call]) -> Finding {
    let situation = case.situation;
    let name = situation.name(thread);
    let most = rows.iter().filter_map(|call| call.bytes).max();
    let asked = most.map_or_else(String::new, |most| format!(", the largest for {}", bytes(most)));
    let evidence = if rows.is_empty() { Evidence::Inferred } else { Evidence::Explicit };
    let refs = rows.iter().take(3).map(|call| call.reference()).collect();
    let what = format!("the driver refused {errors} of {total} allocations of {name}{asked}");
    let end = ended_soon(situation, thread, rows);
    let mut chain = Chain::starting(edge(what, evidence, 0, refs));
    if end {
        let what = "the process ended within a second of the last failure".to_owned();
        chain = chain.then(edge(what, Evidence::Explicit, 0, Vec::new()));
    }
    let severity = if end || is_habit(case, thread, errors) { Severity::High } else { Severity::Medium };
    let failed = |call: &Call| call.ret_code != 0 && situation.class_of(call.op) == Some(CallClass::Alloc);
    let confidence = confidence::weigh(&chain, Backing::SUMS, situation.window);
    let summary = format!("{errors} allocations of GPU memory by {name} failed because there was not enough{asked}.");
    Finding {
        impact: Impact { lost_ns: 0, share: 0.0, calls_affected: errors, calls_total: total },
        victim: victim(situation, thread),
        culprit: Some(own_process(situation, thread, format!("{errors} allocations refused{asked}"))),
        r#where: places::of_calls(situation, thread, failed),
        fix: advice(FIX),
        ..found(RULE.cause, severity, confidence, summary, chain)
    }
}

fn ended_soon(situation: &Situation<'_>, thread: ThreadId, rows: &[&Call]) -> bool {
    let Some(last_ns) = rows.iter().map(|call| call.span().to_ns).max() else {
        return false;
    };
    let (window, Some(process)) = (situation.window, situation.process_id(thread)) else { return false };
    let pid = window.processes.get(&process).map(|process| process.pid);
    window.life_on(window.host_of(process)).any(|life| {
        life.kind == LifeKind::Exit
            && Some(life.pid) == pid
            && life.status.is_some_and(|status| status != 0)
            && (last_ns..=last_ns.saturating_add(SOON_NS)).contains(&life.at_ns)
    })
}

fn is_habit(case: &JobCase<'_, '_>, thread: ThreadId, errors: u64) -> bool {
    let process = case.situation.process_id(thread);
    let own = case.dispatchers.iter().filter(|dispatcher| dispatcher.process_id == process);
    let steps = own.filter_map(|dispatcher| dispatcher.steps.as_ref()).map(|steps| steps.count).max();
    errors >= HABIT && steps.is_none_or(|steps| errors.saturating_mul(STEPS_BETWEEN) >= steps)
}
