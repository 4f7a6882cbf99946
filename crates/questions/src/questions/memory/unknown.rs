//! How many allocations and frees there were in all, and what that says about those that could not be followed.

use gpuwhy_analysis::ledger::layer;
use gpuwhy_model::{CallClass, Meaning, ProcessId, Span};
use gpuwhy_window::Window;

use super::follow::Followed;

/// A bucket that lies mostly in the span belongs to it.
const HALF_A_BUCKET_NS: u64 = 500_000_000;

/// In the span, with what was not seen.
pub struct Counts {
    pub allocations: u64,
    pub frees: u64,
    pub failed: u64,
}

impl Counts {
    pub fn count(window: &Window, process: ProcessId, span: Span) -> Self {
        let mut counts = Self { allocations: 0, frees: 0, failed: 0 };
        let layer = layer(window, process);
        for second in window.call_seconds.iter().filter(|second| {
            let middle_ns = second.bucket_ns.saturating_add(HALF_A_BUCKET_NS);
            middle_ns >= span.from_ns && second.bucket_ns < span.to_ns
        }) {
            let is_own = window.process_id(second.thread) == Some(process);
            match window.ops.get(&second.op).filter(|op| is_own && Some(op.layer) == layer).map(|op| op.meaning.class) {
                Some(CallClass::Alloc) => {
                    counts.allocations = counts.allocations.saturating_add(second.calls);
                    counts.failed = counts.failed.saturating_add(second.errors);
                }
                Some(CallClass::Free) => counts.frees = counts.frees.saturating_add(second.calls),
                _ => {}
            }
        }
        counts
    }
}

pub fn reasons(window: &Window, process: ProcessId, followed: &Followed<'_>) -> Vec<String> {
    let mut unknown = Vec::new();
    if window.memory_calls.spans.is_empty() {
        unknown.push("the file is of an earlier version, in which single allocations cannot be followed".to_owned());
        return unknown;
    }
    if window.memory_calls.spans.len() > 1 {
        unknown.push("there are too many allocations to read all of them: what is live is a part of it".to_owned());
    }
    let counted = |is_wanted: fn(&Meaning) -> bool| counted(window, process, is_wanted);
    let allocations = counted(Meaning::is_followed_alloc).saturating_sub(followed.allocations);
    if allocations > 0 {
        unknown.push(format!(
            "{allocations} allocations have no record of their own, because calls were sampled or only slow ones were \
             kept: their memory is not counted"
        ));
    }
    let frees = counted(Meaning::is_followed_free).saturating_sub(followed.frees);
    if frees > 0 {
        unknown.push(format!("{frees} frees have no record of their own: what they freed still counts as live"));
    }
    if followed.orphans > 0 {
        unknown.push(format!(
            "{} frees are of memory whose allocation was not seen: it was allocated before the trace began",
            followed.orphans
        ));
    }
    let unfollowed: Vec<&str> = followed.unfollowed().into_iter().collect();
    if !unfollowed.is_empty() {
        unknown.push(format!("memory that is allocated with {} is not followed", unfollowed.join(", ")));
    }
    unknown
}

/// Calls that did not fail, over all of the trace up to the end of the window.
fn counted(window: &Window, process: ProcessId, is_wanted: fn(&Meaning) -> bool) -> u64 {
    let layer = layer(window, process);
    let own = window.call_sums.iter().filter(|sum| {
        window.process_id(sum.thread) == Some(process)
            && window.ops.get(&sum.op).is_some_and(|op| Some(op.layer) == layer && is_wanted(&op.meaning))
    });
    own.fold(0, |all, sum| all.saturating_add(sum.calls.saturating_sub(sum.errors)))
}
