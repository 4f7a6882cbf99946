//! The program allocates and frees GPU memory over and over, long after it has warmed up.
//!
//! # How it is detected
//! In the later two thirds of the thread's time there is at least one allocation with its release a step, or one in 20
//! launches, or some in most seconds; and these calls take at least one percent of the time. Releasing memory also
//! waits for the GPU, which is counted.
//!
//! # When it is not reported
//! Allocations while the program warms up. Allocations from a pool (`cudaMallocAsync`), which take next to no time. A
//! few calls in which the driver itself takes milliseconds are `driver-call`; retries after a failure are
//! `alloc-failed`.
//!
//! # How to fix it
//! Allocate once and keep it: no `torch.cuda.empty_cache()` in the loop, a caching or pooled allocator, buffers of a
//! fixed size. In PyTorch `expandable_segments:True` helps when sizes vary.

use gpuwhy_model::{CallClass, Chain, Evidence, WorkKind};

use super::driver_call::Ioctls;
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::dispatcher::{Steady, steady};
use crate::words::{duration, part, percent};

pub const RULE: Rule = Rule {
    meanwhile: super::IN_CALLS,
    needs: &[CallClass::Alloc, CallClass::Free],
    explains_away: &["driver-call"],
    ..Rule::new(
        "alloc-churn",
        "Allocating GPU memory again and again",
        include_str!("alloc_churn.rs"),
        Check::Thread(check),
    )
};

const LAUNCHES_PER_PAIR: u64 = 20;
const MOST_SECONDS: f64 = 0.8;
const LEAST_PER_SECOND: u64 = 2;

/// So few allocations a step, that take so long each with their release, nearly all of it in the driver, are the
/// driver's fault. Where steps are not known they have to take even longer.
const FEW_PER_STEP: f64 = 4.0;
const SLOW_NS: u64 = 300_000;
const VERY_SLOW_NS: u64 = 1_000_000;
const MOSTLY_DRIVER: f64 = 0.7;

const FIX: &[&str] = &[
    "Allocate once and keep it: no empty_cache() in the loop, a caching or pooled allocator (cudaMallocAsync).",
    "If sizes vary, allocate the largest, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
];

/// Allocations and releases after the warm-up.
struct Churn {
    allocs: Steady,
    frees: Steady,
    /// Of the process: one thread may free what another one allocated.
    pairs: u64,
    /// Seconds in which the process allocated.
    seconds: u64,
    busy_ns: u64,
    lost_ns: u64,
}

impl Churn {
    fn find(case: &ThreadCase<'_, '_>) -> Self {
        let of_class = |wanted| steady(case.situation, case.thread, move |op| op.meaning.class == wanted);
        let (allocs, frees) = (of_class(CallClass::Alloc), of_class(CallClass::Free));
        let own = case.dispatchers.iter().filter(|one| one.process_id == case.thread.process_id);
        let (mut made, mut given_back, mut seconds) = (0u64, 0u64, 0);
        for thread in own {
            let of_class = |wanted| steady(case.situation, thread, move |op| op.meaning.class == wanted);
            let allocs = of_class(CallClass::Alloc);
            made = made.saturating_add(allocs.calls);
            given_back = given_back.saturating_add(of_class(CallClass::Free).calls);
            seconds = seconds.max(allocs.seconds);
        }
        Self {
            pairs: made.min(given_back),
            seconds,
            busy_ns: allocs.ns.saturating_add(frees.ns),
            lost_ns: part(case.thread.wall_ns(), allocs.share() + frees.share()),
            allocs,
            frees,
        }
    }

    fn calls(&self) -> u64 {
        self.allocs.calls.saturating_add(self.frees.calls)
    }
}

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let churn = Churn::find(case);
    if let Some(verdict) = case.too_little(RULE.cause, churn.lost_ns) {
        return verdict;
    }
    if !is_churn(case, &churn) {
        let why = format!("{} allocated and freed only {} times after it had warmed up", case.name(), churn.pairs);
        return case.rule_out(RULE.cause, churn.lost_ns, why);
    }
    match other_cause(case, &churn) {
        Some(why) => case.rule_out(RULE.cause, churn.lost_ns, why),
        None => case.judge(tell(case, &churn)),
    }
}

fn tell(case: &ThreadCase<'_, '_>, churn: &Churn) -> Draft {
    let Churn { allocs, frees, pairs, busy_ns, lost_ns, .. } = churn;
    let (name, lost) = (case.name(), percent(case.share(*lost_ns)));
    let is_memory = |op| matches!(case.situation.class_of(op), Some(CallClass::Alloc | CallClass::Free));
    let each = duration(busy_ns / churn.calls().max(1));
    let spent =
        format!("{name} spent {} on allocating and freeing GPU memory ({lost} of its time)", duration(*lost_ns));
    let often =
        format!("after warming up it made {} allocations and {} releases, {each} each", allocs.calls, frees.calls);
    let cited = case.longest_calls(|call| is_memory(call.op));
    let chain = Chain::starting(edge(spent, Evidence::Observed, *lost_ns, cited)).then(edge(
        often,
        Evidence::Observed,
        *busy_ns,
        Vec::new(),
    ));
    let summary = format!("{name} spends {lost} of its time on allocating and freeing GPU memory, {pairs} times.");
    Draft {
        culprit: Some(case.own_process(format!("{pairs} allocations that are freed again, {each} a call"))),
        fix: advice(FIX),
        places: case.places(|call| is_memory(call.op)),
        calls_affected: churn.calls(),
        symptom: case.heaviest(|sum| is_memory(sum.op)).and_then(|sum| case.symptom(sum)),
        ..Draft::new(RULE.cause, *lost_ns, summary, chain)
    }
}

fn is_churn(case: &ThreadCase<'_, '_>, churn: &Churn) -> bool {
    let Churn { allocs, pairs, seconds: busy_seconds, .. } = churn;
    let steady_launches = case.thread.launches / 3 * 2;
    let seconds = allocs.of_ns / 1_000_000_000;
    let is_often = *busy_seconds as f64 >= MOST_SECONDS * seconds as f64;
    let is_lasting = is_often && *pairs >= LEAST_PER_SECOND * seconds.max(1);
    let is_each_step = steady_steps(case).is_some_and(|steps| *pairs as f64 >= 0.9 * steps);
    *pairs > 0 && (*pairs >= steady_launches / LAUNCHES_PER_PAIR || is_each_step || is_lasting)
}

fn steady_steps(case: &ThreadCase<'_, '_>) -> Option<f64> {
    case.thread.steps.as_ref().map(|steps| steps.count as f64 * 2.0 / 3.0)
}

/// Why calls that look like churn are something else.
fn other_cause(case: &ThreadCase<'_, '_>, churn: &Churn) -> Option<String> {
    let (name, pairs) = (case.name(), churn.pairs);
    let allocs = case.thread.calls.iter().filter(|sum| case.situation.class_of(sum.op) == Some(CallClass::Alloc));
    let failed = allocs.fold(0u64, |all, sum| all.saturating_add(sum.errors));
    if failed.saturating_mul(10) >= pairs {
        return Some(format!("{failed} allocations of {name} failed, and the others follow from that"));
    }
    let ioctls = Ioctls::find(case);
    let in_memory = ioctls.share_in(case, |meaning| matches!(meaning.class, CallClass::Alloc | CallClass::Free));
    let in_ioctls_ns = case.thread.times.work_ns[WorkKind::Ioctl as usize];
    let is_driver = case.share(part(in_ioctls_ns, in_memory)) >= MOSTLY_DRIVER * case.share(churn.lost_ns);
    let mean_ns = churn.busy_ns / pairs.max(1);
    let is_few = steady_steps(case).map_or(mean_ns >= VERY_SLOW_NS, |steps| pairs as f64 <= FEW_PER_STEP * steps);
    let is_slow = mean_ns >= SLOW_NS;
    (is_driver && is_few && is_slow)
        .then(|| format!("{name} allocates {pairs} times, but it is the driver that takes long for each"))
}
