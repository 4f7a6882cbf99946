//! The thread waited for the GPU, which had work: not a problem of the host.
//!
//! # How it is detected
//! The thread spends at least three tenths of its time in calls that wait for the GPU: synchronizations, copies that
//! take far longer than their bytes would, and launches that block because the queue is full.
//!
//! # When it is not reported
//! Below three tenths of the time. When the waits come from synchronizing so often that the GPU runs dry, it is
//! `sync-storm`. It is never more than low, since nothing on the host is wrong.
//!
//! # How to fix it
//! Nothing to fix on the host. To make the program faster, make the GPU's work cheaper: larger batches, lower
//! precision, fused kernels; a GPU profiler shows what it does.

use gpuwhy_model::{Chain, Evidence, Severity, TimePart};

use super::launch_bound::blocked_launches_ns;
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::sync_point::is_sync_point;
use crate::words::{duration, percent};

pub const RULE: Rule = Rule {
    is_problem: false,
    ..Rule::new("gpu-busy", "The GPU was busy", include_str!("gpu_busy.rs"), Check::Thread(check))
};

const LEAST_SHARE: f64 = 0.3;

const FIX: &[&str] =
    &["Nothing to fix on the host: look at the GPU's own work (batch size, precision, fused kernels)."];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let waiting_ns = case.thread.part_ns(TimePart::WaitingForGpu).saturating_add(blocked_launches_ns(case));
    let waiting_ns = waiting_ns.min(case.thread.wall_ns());
    let (name, lost) = (case.name(), percent(case.share(waiting_ns)));
    if case.share(waiting_ns) < LEAST_SHARE {
        let why = format!("{name} waited {lost} of its time for the GPU, so the GPU is not what holds it up");
        return case.rule_out(RULE.cause, waiting_ns, why);
    }
    let syncs = case.heaviest(|sum| is_sync_point(case.situation, sum));
    let cited = case.longest_calls(|call| syncs.is_some_and(|sum| sum.op == call.op));
    let waited = format!("{name} was {} in calls that wait for the GPU ({lost} of its time)", duration(waiting_ns));
    let chain = Chain::starting(edge(waited, Evidence::Observed, waiting_ns, cited)).then(edge(
        "the GPU was working meanwhile".to_owned(),
        Evidence::Inferred,
        waiting_ns,
        Vec::new(),
    ));
    let summary = format!("{name} waited {lost} of its time for the GPU, which had work to do.");
    case.judge(Draft {
        culprit: Some(case.own_process("its own work on the GPU".to_owned())),
        fix: advice(FIX),
        places: case.places(|call| syncs.is_some_and(|sum| sum.op == call.op)),
        calls_affected: syncs.map_or(0, |sum| sum.calls),
        symptom: syncs.and_then(|sum| case.symptom(sum)),
        most_severe: Severity::Low,
        ..Draft::new(RULE.cause, waiting_ns, summary, chain)
    })
}
