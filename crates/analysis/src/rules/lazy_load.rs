//! Code is loaded onto the GPU, or compiled for it, while the program is at work.
//!
//! # How it is detected
//! Calls that load, link or unload modules and libraries in the later two thirds of the thread's time take at least one
//! percent of it.
//!
//! # When it is not reported
//! Loading while the program warms up, which every program does. In the first seconds of a run, loads from ever new places
//! are low, unless they go on all the time: what has a habit of loading comes back to where it did.
//!
//! # How to fix it
//! Load everything before the loop: run each shape once, set `CUDA_MODULE_LOADING=EAGER`, keep modules instead of
//! loading them anew. For Triton and `torch.compile`, keep shapes fixed (`dynamic=True`, padding) so that nothing is
//! compiled again, and keep the cache directory.

use std::collections::BTreeSet;

use gpuwhy_model::{Call, CallClass, Chain, Evidence, Severity};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::dispatcher::{Steady, steady};
use crate::words::{duration, part, percent};

pub const RULE: Rule = Rule {
    meanwhile: super::IN_CALLS,
    needs: &[CallClass::Module],
    explains_away: &["driver-call"],
    ..Rule::new("lazy-load", "Code was loaded in the hot path", include_str!("lazy_load.rs"), Check::Thread(check))
};

/// Fewer loads are late, but no habit.
const HABIT: u64 = 3;

/// A run that is shorter may still be warming up, if so many loads or more tell where they come from.
const YOUNG_NS: u64 = 15_000_000_000;
const LEAST_STACKS: usize = 2;
/// Nor is it, if it loads in so many of these parts of its time.
const PARTS: u64 = 8;
const LEAST_PART_NS: u64 = 500_000_000;
const HABIT_PARTS: usize = 6;

/// Libraries that make code for the GPU: the beginnings of their files' names.
const COMPILERS: &[&str] = &["libnvrtc", "libnvJitLink", "libnvptxcompiler", "libtriton"];

const FIX: &[&str] = &[
    "Load code before the loop: warm up every shape, set CUDA_MODULE_LOADING=EAGER, keep modules.",
    "Keep shapes fixed, so that torch.compile and Triton do not compile again.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let loads = loads(case);
    let lost_ns = part(case.thread.wall_ns(), loads.share()).saturating_add(compiling_with(case, &loads));
    match case.too_little(RULE.cause, lost_ns) {
        Some(verdict) => verdict,
        None => case.judge(tell(case, &loads, lost_ns)),
    }
}

/// What is computed inside of compilers for the GPU while it has nothing to do, by a thread that goes on loading code.
pub(super) fn compiling_ns(case: &ThreadCase<'_, '_>) -> u64 {
    compiling_with(case, &loads(case))
}

fn loads(case: &ThreadCase<'_, '_>) -> Steady {
    steady(case.situation, case.thread, |op| op.meaning.class == CallClass::Module)
}

fn compiling_with(case: &ThreadCase<'_, '_>, loads: &Steady) -> u64 {
    if loads.calls < HABIT { 0 } else { case.idle_in(COMPILERS) }
}

fn tell(case: &ThreadCase<'_, '_>, loads: &Steady, lost_ns: u64) -> Draft {
    let (name, count, lost) = (case.name(), loads.calls, percent(case.share(lost_ns)));
    let is_load = |op| case.situation.class_of(op) == Some(CallClass::Module);
    let each = duration(loads.ns / count.max(1));
    let spent = format!("{name} spent {} on loading code ({lost} of its time)", duration(lost_ns));
    let often = format!("{count} such calls of {each} each came after it had warmed up");
    let cited = case.longest_calls(|call| is_load(call.op));
    let chain = Chain::starting(edge(spent, Evidence::Observed, lost_ns, cited)).then(edge(
        often,
        Evidence::Observed,
        loads.ns,
        Vec::new(),
    ));
    let summary = format!("{name} spends {lost} of its time on loading GPU code, {count} times after warming up.");
    Draft {
        culprit: Some(case.own_process(format!("{count} loads of {each} each"))),
        fix: advice(FIX),
        places: case.places(|call| is_load(call.op)),
        calls_affected: count,
        symptom: case.heaviest(|sum| is_load(sum.op)).and_then(|sum| case.symptom(sum)),
        most_severe: if count < HABIT || is_warming_up(case) { Severity::Low } else { Severity::High },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

/// Whether a young thread loads where it has not loaded before, and not all the time.
fn is_warming_up(case: &ThreadCase<'_, '_>) -> bool {
    let thread = case.thread;
    if thread.to_ns.saturating_sub(thread.from_ns) >= YOUNG_NS {
        return false;
    }
    let part_ns = (thread.to_ns.saturating_sub(thread.steady_from_ns()) / PARTS).max(LEAST_PART_NS);
    let is_load =
        |call: &&Call| call.thread == thread.id && case.situation.class_of(call.op) == Some(CallClass::Module);
    let (mut places, mut parts, mut later, mut again) = (BTreeSet::new(), BTreeSet::new(), 0, 0);
    for load in case.situation.window.calls.rows.iter().filter(is_load) {
        let since_ns = load.start_ns.checked_sub(thread.steady_from_ns());
        parts.extend(since_ns.map(|since_ns| since_ns / part_ns));
        let Some(stack) = load.stack_id else { continue };
        let is_known = !places.insert(stack);
        if since_ns.is_some() {
            later += 1;
            again += usize::from(is_known);
        }
    }
    parts.len() < HABIT_PARTS && later >= LEAST_STACKS && again * 4 < later * 3
}
