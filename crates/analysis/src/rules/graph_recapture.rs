//! CUDA graphs are captured again and again, or captured and never launched.
//!
//! # How it is detected
//! In the later two thirds of the thread's time there are at least three captures, in most of its seconds or at least half
//! as many as graph launches. What is lost is the time from the beginning of a capture to the end of its instantiation.
//! Memory that is allocated and freed for captures is part of them.
//!
//! # When it is not reported
//! Captures while the program warms up, as many as it has shapes. A capture now and then for a new shape.
//!
//! # How to fix it
//! Capture once for each shape and launch it many times: pad inputs to a few sizes, keep the instantiated graphs,
//! update parameters in place (`cudaGraphExecUpdate`, static input tensors) instead of capturing anew.

use gpuwhy_model::{Call, CallClass, Chain, Evidence, GraphStep, Reference};
use gpuwhy_window::Op;

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::dispatcher::steady;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    meanwhile: super::IN_CALLS,
    needs: &[CallClass::Graph],
    explains_away: &["launch-bound", "alloc-churn"],
    ..Rule::new(
        "graph-recapture",
        "Graphs are captured again and again",
        include_str!("graph_recapture.rs"),
        Check::Thread(check),
    )
};

const LEAST_CAPTURES: u64 = 3;

/// A program that captures in so many of its seconds does not do it for new shapes.
const HABIT: f64 = 0.6;

const FIX: &[&str] = &[
    "Capture once for each shape and launch it many times: pad inputs to a few sizes, keep the graphs.",
    "Change inputs in place (static tensors, cudaGraphExecUpdate) instead of capturing again.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let steps = |step| steady(case.situation, case.thread, move |op| op.meaning.graph_step == Some(step));
    let (begins, instantiations) = (steps(GraphStep::Capture), steps(GraphStep::Instantiate));
    let launches = steady(case.situation, case.thread, |op| op.meaning.is_graph_launch()).calls;
    let captures = begins.calls.max(instantiations.calls);
    let is_habit = begins.seconds > 1 && begins.share_of_seconds() >= HABIT;
    if captures < LEAST_CAPTURES || (captures.saturating_mul(2) < launches && !is_habit) {
        let name = case.name();
        let why = format!("{name} captured {captures} graphs and launched graphs {launches} times after warming up");
        return case.rule_out(RULE.cause, 0, why);
    }
    let graph_calls = steady(case.situation, case.thread, is_capture);
    let found = Captures::find(case);
    let busy_ns = match found.count {
        0 => graph_calls.ns,
        count => (found.ns / count).saturating_mul(captures).max(graph_calls.ns),
    };
    let lost_ns = part(case.thread.wall_ns(), share(busy_ns, begins.of_ns));
    case.judge(tell(case, lost_ns, captures, launches, busy_ns / captures.max(1), found.cited))
}

fn is_capture(op: &Op) -> bool {
    op.meaning.class == CallClass::Graph && !op.meaning.is_launch
}

fn tell(
    case: &ThreadCase<'_, '_>,
    lost_ns: u64,
    captures: u64,
    launches: u64,
    mean_ns: u64,
    cited: Vec<Reference>,
) -> Draft {
    let (name, lost, each) = (case.name(), percent(case.share(lost_ns)), duration(mean_ns));
    let is_capture = |op| case.situation.op(op).is_some_and(is_capture);
    let spent = format!("{name} spent {} on capturing graphs ({lost} of its time)", duration(lost_ns));
    let often = format!("after warming up it captured {captures} graphs, {each} each, for {launches} graph launches");
    let longest = case.longest_calls(|call| is_capture(call.op));
    let chain = Chain::starting(edge(spent, Evidence::Observed, lost_ns, longest)).then(edge(
        often,
        Evidence::Observed,
        lost_ns,
        cited,
    ));
    let summary =
        format!("{name} spends {lost} of its time on capturing graphs: {captures} captures for {launches} launches.");
    Draft {
        culprit: Some(case.own_process(format!("{captures} captures of {each} each"))),
        fix: advice(FIX),
        places: case.places(|call| is_capture(call.op)),
        calls_affected: captures,
        symptom: case.heaviest(|sum| is_capture(sum.op)).and_then(|sum| case.symptom(sum)),
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}

/// Captures among the calls that were read, from begin to instantiation.
#[derive(Default)]
struct Captures {
    count: u64,
    ns: u64,
    cited: Vec<Reference>,
}

impl Captures {
    fn find(case: &ThreadCase<'_, '_>) -> Self {
        let mut captures = Self::default();
        let mut begin: Option<&Call> = None;
        for call in case.situation.window.calls.rows.iter().filter(|call| call.thread == case.thread.id) {
            let step = case.situation.op(call.op).and_then(|op| op.meaning.graph_step);
            if step == Some(GraphStep::Capture) {
                begin = Some(call);
            } else if step == Some(GraphStep::Instantiate)
                && let Some(begin) = begin.take()
            {
                let end_ns = call.span().to_ns;
                captures.count += 1;
                captures.ns = captures.ns.saturating_add(end_ns.saturating_sub(begin.start_ns));
                captures.cited.push(begin.reference());
                captures.cited.truncate(3);
            }
        }
        captures
    }
}
