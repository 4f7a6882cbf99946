//! The program waits for the GPU so often that the GPU runs dry: each wait lets it finish all it has, and it idles until
//! the next launch comes.
//!
//! # How it is detected
//! At least half of the waits for the GPU follow the one before within 1.5 ms, with few launches in between.
//! Waits are synchronizations and copies to the host that block (`.item()`, `.cpu()`, `print` of a tensor); a copy and the
//! synchronization right after it are one. What is
//! lost is the host's time between such waits, in which the GPU has nothing or next to nothing to do. Only waits around
//! which launches were seen count. In a storm most launches are not seen, and some have none but copies. The rule then
//! uses the mean distance of waits and the mean number of launches and copies between them. The loss is an upper bound,
//! and it is inferred.
//!
//! # When it is not reported
//! One wait at the end of a step is usual, however long it is: then the GPU is busy. So is a wait after a graph launch
//! that is the whole step. Computing between two waits that are far apart is the application's own choice.
//!
//! # How to fix it
//! Wait once a step or less: keep losses and metrics on the GPU and read them every hundredth step, copy with
//! `non_blocking=True`, remove `torch.cuda.synchronize()` and `CUDA_LAUNCH_BLOCKING=1`.

use gpuwhy_model::{Call, CallClass, Chain, Evidence, OpId, Reference, Span, TimePart};
use gpuwhy_window::CallSum;

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::sync_point::is_sync_point;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    meanwhile: super::IN_CALLS,
    needs: &[CallClass::Sync],
    explains_away: &["gpu-busy"],
    explains_its_line: &["host-compute"],
    ..Rule::new("sync-storm", "Waiting for the GPU too often", include_str!("sync_storm.rs"), Check::Thread(check))
};

/// So few launches and copies between two waits, and waits so close to each other, are too many.
const LITTLE_WORK: u64 = 16;
const CLOSE_NS: u64 = 1_500_000;
const LEAST_CLOSE: f64 = 0.5;

/// So many waits among launches tell what is usual.
const ENOUGH_SYNCS: u64 = 20;

/// What the end of a wait itself takes, with the copy that it is for, while the GPU has nothing to do any more.
const WAKE_UP_NS: u64 = 30_000;

const FIX: &[&str] = &[
    "Wait once a step or less: read losses and metrics (.item(), .cpu(), print) every hundredth step.",
    "Remove cudaStreamSynchronize, torch.cuda.synchronize() and CUDA_LAUNCH_BLOCKING=1 from the loop.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let thread = case.thread;
    let syncs: Vec<&CallSum> = thread.calls.iter().copied().filter(|sum| is_sync_point(case.situation, sum)).collect();
    let count = syncs.iter().fold(0u64, |all, sum| all.saturating_add(sum.calls));
    let gaps = Gaps::find(case, &syncs, count);
    if gaps.is_storm() {
        return case.judge(tell(case, &syncs, &gaps));
    }
    let (name, launches, count) = (case.name(), thread.launches, gaps.waits);
    let why = format!("{name} waited for the GPU {count} times in {launches} launches, not in rapid succession");
    case.rule_out(RULE.cause, 0, why)
}

fn tell(case: &ThreadCase<'_, '_>, syncs: &[&CallSum], gaps: &Gaps) -> Draft {
    let count = gaps.waits;
    let lost_ns = lost_ns(case, gaps);
    let at_most = if gaps.evidence == Evidence::Observed { "" } else { "up to " };
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let often = syncs.iter().max_by_key(|sum| sum.calls).copied();
    let op = often.map(|sum| sum.op);
    let call = op.and_then(|op| case.situation.op(op)).map_or("a synchronization", |op| op.name.as_str());
    let times = match per_step(case, count) {
        Some(per_step) => format!("{count} times, {per_step:.0} times a step"),
        None => format!("{count} times"),
    };
    let waiting_ns = case.thread.part_ns(TimePart::WaitingForGpu);
    let waited = format!("{name} waited for the GPU {times}, {} in all", duration(waiting_ns));
    let idle = format!(
        "after each wait the GPU had nothing to do until more was launched, {at_most}{} in all",
        duration(lost_ns)
    );
    let cited = case.longest_calls(|call| Some(call.op) == op);
    let chain = Chain::starting(edge(waited, Evidence::Observed, waiting_ns, cited)).then(edge(
        idle,
        gaps.evidence,
        lost_ns,
        gaps.cited.clone(),
    ));
    let summary = format!("{name} waits for the GPU {times}; the GPU idles {at_most}{lost} of the time because of it.");
    Draft {
        culprit: Some(case.own_process(format!("calls {call} {times}"))),
        fix: advice(FIX),
        places: case.places(|call| Some(call.op) == op),
        calls_affected: count,
        symptom: often.and_then(|sum| case.symptom(sum)),
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

/// Waits in a step, where there is more than one.
fn per_step(case: &ThreadCase<'_, '_>, count: u64) -> Option<f64> {
    let steps = case.thread.steps.as_ref()?.count;
    Some(count as f64 / steps.max(1) as f64).filter(|per_step| *per_step >= 1.5)
}

/// The time the GPU had nothing to do: as measured between calls that were read, for all of them.
fn lost_ns(case: &ThreadCase<'_, '_>, gaps: &Gaps) -> u64 {
    let mean_ns = gaps.ns / gaps.count.max(1);
    let waits = part(gaps.waits, share(gaps.count, gaps.syncs));
    let thread = case.thread;
    let host = [TimePart::Launching, TimePart::Application, TimePart::Copying, TimePart::Memory, TimePart::OtherCalls];
    let host_ns = host.iter().fold(0u64, |all, &part| all.saturating_add(thread.part_ns(part)));
    let waiting_ns = thread.part_ns(TimePart::WaitingForGpu);
    let at_the_end_ns = waits.saturating_mul(WAKE_UP_NS).min(waiting_ns / 2);
    waits.saturating_mul(mean_ns).min(host_ns).saturating_add(at_the_end_ns)
}

/// The host's time between waits that follow each other closely.
struct Gaps {
    /// All waits of the thread.
    waits: u64,
    count: u64,
    /// All waits among launches that were seen.
    syncs: u64,
    ns: u64,
    evidence: Evidence,
    cited: Vec<Reference>,
}

impl Gaps {
    fn find(case: &ThreadCase<'_, '_>, syncs: &[&CallSum], count: u64) -> Self {
        let seen = Self::seen(case, syncs, count);
        let is_told = seen.is_storm() && seen.syncs >= ENOUGH_SYNCS;
        if is_told { seen } else { Self::on_average(case, seen.waits).unwrap_or(seen) }
    }

    fn is_storm(&self) -> bool {
        self.count > 0 && share(self.count, self.syncs) >= LEAST_CLOSE
    }

    fn seen(case: &ThreadCase<'_, '_>, syncs: &[&CallSum], count: u64) -> Self {
        let is_sync = |op: OpId| syncs.iter().any(|sum| sum.op == op);
        let mut gaps =
            Self { waits: count, count: 0, syncs: 0, ns: 0, evidence: Evidence::Observed, cited: Vec::new() };
        let (mut calls, mut waits) = (0u64, 0u64);
        let is_copy = |op: Option<OpId>| op.and_then(|op| case.situation.class_of(op)) == Some(CallClass::Copy);
        let mut last_sync: Option<Span> = None;
        let mut last_op = None;
        let (mut launches, mut last_launch_ns) = (0, 0u64);
        for call in case.situation.window.calls.rows.iter().filter(|call| call.thread == case.thread.id) {
            if is_sync(call.op) {
                calls += 1;
                // A copy to the host that waits, and a synchronization right after it, are one wait.
                if let Some(last) = last_sync.as_mut()
                    && launches == 0
                    && is_copy(last_op)
                    && !is_copy(Some(call.op))
                    && call.start_ns.saturating_sub(last.to_ns) <= WAKE_UP_NS
                {
                    last.to_ns = call.span().to_ns;
                    last_op = Some(call.op);
                    continue;
                }
                last_op = Some(call.op);
                waits += 1;
                let is_among_launches = call.start_ns.saturating_sub(last_launch_ns) <= CLOSE_NS;
                gaps.syncs += u64::from(launches > 0 || is_among_launches);
                if let Some(last) = last_sync.replace(call.span())
                    && (1..=LITTLE_WORK).contains(&launches)
                {
                    gaps.add(last, call);
                }
                launches = 0;
            } else if case.situation.is_launch(call.op) {
                launches += 1;
                last_launch_ns = call.start_ns;
            }
        }
        gaps.waits = if calls == 0 { count } else { part(count, share(waits, calls)) };
        gaps
    }

    /// As if all waits were alike, where the mean one is close to the next.
    fn on_average(case: &ThreadCase<'_, '_>, count: u64) -> Option<Self> {
        let thread = case.thread;
        let usual = part(count, LEAST_CLOSE).max(1)..=count.saturating_mul(LITTLE_WORK);
        let gives_work = |sum: &&&CallSum| case.situation.op(sum.op).is_some_and(|op| op.meaning.gives_work());
        let work = thread.calls.iter().filter(gives_work);
        let work = work.fold(0u64, |all, sum| all.saturating_add(sum.calls));
        let is_close = thread.wall_ns() / count.max(1) <= CLOSE_NS && usual.contains(&work);
        let ns = thread.wall_ns().saturating_sub(thread.part_ns(TimePart::WaitingForGpu));
        is_close.then(|| Self {
            waits: count,
            count,
            syncs: count,
            ns,
            evidence: Evidence::Inferred,
            cited: Vec::new(),
        })
    }

    fn add(&mut self, sync: Span, next: &Call) {
        if next.start_ns.saturating_sub(sync.from_ns) > CLOSE_NS {
            return;
        }
        self.count += 1;
        self.ns = self.ns.saturating_add(next.start_ns.saturating_sub(sync.to_ns));
        if self.cited.len() < 3 {
            self.cited.push(next.reference());
        }
    }
}
