//! The thread computed in its own code while the GPU had nothing to do.
//!
//! # How it is detected
//! From a wait that returned to the next piece of work the GPU is idle. What the thread that gives it work again computes
//! in that time, outside of the GPU's libraries, is time that the GPU waits for. Stacks that were taken in such times say
//! on which line: a tokenizer, a data transformation, the garbage collector, a compiler, the interpreter itself.
//!
//! # When it is not reported
//! What a thread computes while the GPU works costs nothing. Waits in idle times are the causes that they are waits for.
//! Where launches are seen in bursts, idle times are an estimate; one that may as well be next to nothing is no more than low.
//! A thread that gives the GPU many small pieces of work and hardly pauses in between is `launch-bound`.
//!
//! # How to fix it
//! Do it ahead of time, in another process (`num_workers`), or while the GPU works: prepare the next step before waiting
//! for this one. Or make it cheaper.

use gpuwhy_model::{Chain, Evidence, Place, Severity};

use super::{Check, Rule, advice, launch_bound, lazy_load};
use crate::case::{Draft, ThreadCase, Verdict, edge, severity_of};
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::words::{duration, part, percent};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Compute],
    ..Rule::new(
        "host-compute",
        "Own code runs while the GPU is idle",
        include_str!("host_compute.rs"),
        Check::Thread(check),
    )
};

/// A smaller share of the time is not worth an alarm: every program computes something between two steps, and one that
/// waits for the GPU once a step leaves it idle for a tenth of it. Where the GPU does not say itself how long it was idle,
/// it is an estimate.
const NOTABLE: f64 = 0.15;
const NOTABLE_ESTIMATE: f64 = 0.2;

const FIX: &[&str] = &[
    "Do it before the GPU is waited for, or in another process (num_workers, a queue), so that it overlaps with the GPU's work.",
    "Make it cheaper, or do it once and not in every step.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    // Compiling for the GPU is a cause of its own, and so is what a framework does for each of many launches.
    let others_ns = lazy_load::compiling_ns(case).saturating_add(launch_bound::notable_between_launches_ns(case));
    let lost_ns = case.thread.idle.did_ns(RULE.meanwhile).saturating_sub(others_ns);
    match case.too_little(RULE.cause, lost_ns) {
        Some(verdict) => verdict,
        None => case.judge(tell(case, lost_ns)),
    }
}

fn tell(case: &ThreadCase<'_, '_>, lost_ns: u64) -> Draft {
    let idle = &case.thread.idle;
    let name = case.name();
    let is_guessed = idle.inferred_ns > idle.ns / 2 || idle.surely < 0.5;
    let evidence = if is_guessed { Evidence::Inferred } else { Evidence::Observed };
    let waited = format!(
        "the GPU had nothing to do for {} before {name} gave it work again ({} of the time)",
        duration(idle.ns),
        percent(case.share(idle.ns))
    );
    let computed = format!("{name} computed {} of that, outside of GPU calls", duration(lost_ns));
    let places = case.idle_places();
    let mut chain = Chain::starting(edge(waited, evidence, idle.ns, Vec::new())).then(edge(
        computed,
        Evidence::Observed,
        lost_ns,
        Vec::new(),
    ));
    if let Some((line, part)) = case.heaviest_idle_line() {
        chain = chain.then(edge(
            format!("{} of that was at {line}", percent(part)),
            Evidence::Observed,
            lost_ns,
            Vec::new(),
        ));
    }
    let at = places.first().map_or_else(String::new, |place| format!(", mostly at {}", named(place)));
    let summary = format!(
        "The GPU had nothing to do for {} of the time while {name} computed in its own code{at}.",
        percent(case.share(lost_ns))
    );
    let notable = if case.thread.word.is_some() { NOTABLE } else { NOTABLE_ESTIMATE };
    let is_little = severity_of(case.share(part(lost_ns, idle.surely))) == Severity::Low;
    Draft {
        culprit: Some(
            case.own_process(format!("computes {} of its time while the GPU is idle", percent(case.share(lost_ns)))),
        ),
        fix: advice(FIX),
        places,
        calls_affected: idle.spans.len() as u64,
        backing: Backing::SUMS,
        most_severe: if is_little || case.share(lost_ns) < notable { Severity::Low } else { Severity::High },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

fn named(place: &Place) -> String {
    let file = place.file.rsplit('/').next().unwrap_or_default();
    match (place.line, &place.function) {
        (Some(line), Some(function)) => format!("{file}:{line} ({function})"),
        (Some(line), None) => format!("{file}:{line}"),
        (None, Some(function)) => format!("{function} ({file})"),
        (None, None) => file.to_owned(),
    }
}
