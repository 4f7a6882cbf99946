//! The thread was blocked in writing: nobody takes what it writes as fast as it does.
//!
//! # How it is detected
//! The kernel says what a blocked thread is in: writing to a pipe, a socket or a terminal whose buffer is full. The one
//! that makes room ends the wait: that is the reader.
//!
//! # When it is not reported
//! Writing to files is `io-wait`. Reading from a pipe or socket is `input-starved` or `net-wait`.
//!
//! # How to fix it
//! Make the reader faster, write less, or write from another thread with a queue that may drop what does not fit.

use super::blamed::{BlamedWaits, blame, doing, draft};
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;
use crate::words::percent;

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Output)],
    ..Rule::new(
        "output-blocked",
        "Nobody takes what it writes",
        include_str!("output_blocked.rs"),
        Check::Thread(check),
    )
};

const WAITS: BlamedWaits = BlamedWaits {
    cause: RULE.cause,
    class: WaitClass::Output,
    what: "room to write",
    verb: "makes",
    // A reader that waits does so on purpose: there is enough to read.
    follows: |_| false,
};

const FIX: &[&str] = &[
    "Look at the reader: it takes less than is written.",
    "Write less, or from another thread with a queue that may drop what does not fit.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Output)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    let waited =
        format!("{} was blocked in writing for {} of its time", case.name(), percent(case.share(blamed.sum.ns)));
    let summary = match &blamed.culprit {
        Some(culprit) => {
            let name = case.situation.name(culprit.thread);
            format!("{waited}, until {name} read, which was {}.", doing(case.situation, culprit))
        }
        None => format!("{waited}; who reads is not known."),
    };
    case.judge(Draft { fix: advice(FIX), summary, ..draft(case, &WAITS, &blamed) })
}
