//! What an answer is based on, and what could not be seen.

use std::collections::BTreeMap;

use gpuwhy_model::{Coverage, OpId, RuledOut, Sampled, StackWalks, WalksEnded};
use gpuwhy_window::CallSum;

use crate::rules;
use crate::situation::Situation;
use crate::words::{percent, rounded, share};

/// A function that was seen this much of the time was seen.
const SEEN: f64 = 0.995;

pub(crate) fn coverage(situation: &Situation<'_>) -> Coverage {
    let window = situation.window;
    let calls = window.call_sums.iter().fold(0u64, |sum, calls| sum.saturating_add(calls.seen));
    let others = window.stretches.rows.len() + window.kernel_work.rows.len() + window.io_requests.rows.len();
    let mut lost = BTreeMap::new();
    for (reason, count) in window.sessions.iter().flat_map(|session| &session.losses) {
        let sum: &mut u64 = lost.entry(reason.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    Coverage {
        events: calls.saturating_add(others as u64),
        lost,
        sampled: sampled(situation),
        unattached: unattached(situation),
        stacks: stacks(situation),
    }
}

fn stacks(situation: &Situation<'_>) -> Vec<WalksEnded> {
    let mut stacks: Vec<WalksEnded> = situation.window.stack_walks.iter().map(StackWalks::ended).collect();
    stacks.sort_by_key(|walks| std::cmp::Reverse(walks.count));
    stacks
}

fn sampled(situation: &Situation<'_>) -> Vec<Sampled> {
    let mut ops: BTreeMap<OpId, (u64, u64)> = BTreeMap::new();
    for sum in &situation.window.call_sums {
        let (seen, calls) = ops.entry(sum.op).or_default();
        (*seen, *calls) = (seen.saturating_add(sum.seen), calls.saturating_add(sum.calls));
    }
    let in_part = |(op, (seen, calls)): (OpId, (u64, u64))| seen_in_part(&situation.op(op)?.name, seen, calls);
    ops.into_iter().filter_map(in_part).collect()
}

/// A function that was not seen all the time.
pub fn seen_in_part(op: &str, seen: u64, calls: u64) -> Option<Sampled> {
    let fraction = share(seen, calls.max(1));
    (fraction < SEEN).then(|| Sampled { op: op.to_owned(), fraction: rounded(fraction) })
}

/// Adds to what was ruled out from calls how many of those were not seen.
pub(crate) fn note_gaps(situation: &Situation<'_>, ruled_out: &mut [RuledOut]) {
    for one in ruled_out {
        let Some(rule) = rules::find(&one.cause) else { continue };
        let of_class = |sum: &&CallSum| situation.class_of(sum.op).is_some_and(|class| rule.needs.contains(&class));
        let sums = situation.window.call_sums.iter().filter(of_class);
        let (seen, calls) = sums
            .fold((0u64, 0u64), |(seen, calls), sum| (seen.saturating_add(sum.seen), calls.saturating_add(sum.calls)));
        if calls > 0 && share(seen, calls) < SEEN {
            let gap = format!("; a gap in the trace: {} of these calls were seen", percent(share(seen, calls)));
            one.why.push_str(&gap);
        }
    }
}

fn unattached(situation: &Situation<'_>) -> Vec<String> {
    let window = situation.window;
    let mut gaps = window.gaps.clone();
    if situation.feeders().next().is_none() {
        gaps.push(why_nobody_feeds(situation));
    }
    let read = situation.stretch_share();
    if read < SEEN && !window.stretches.spans.is_empty() {
        gaps.push(format!("so many waits that those of {} of the time were read", percent(read)));
    }
    let notes = window.sessions.iter().flat_map(|session| &session.notes);
    gaps.extend(notes.filter(|note| note.kind.tells_of_gap()).map(|note| note.text.clone()));
    gaps
}

fn why_nobody_feeds(situation: &Situation<'_>) -> String {
    let window = situation.window;
    let whom = window.pid.map_or_else(String::new, |pid| format!(" of process {pid}"));
    match () {
        () if window.sessions.is_empty() => "nothing was traced in this span".to_owned(),
        () if window.call_sums.is_empty() => "no call of a GPU library was seen in this span".to_owned(),
        () if window.thread_sums.is_empty() => "no clocks of threads were kept in this span".to_owned(),
        () => format!("no thread{whom} launched work on a GPU regularly in this span"),
    }
}
