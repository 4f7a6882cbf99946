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

use super::blamed::{Blamed, BlamedWaits, blame, doing, draft};
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;
use crate::words::percent;

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Output), Did::Wait(WaitClass::Input), Did::Wait(WaitClass::Handover)],
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

pub(super) const FIX: &[&str] = &[
    "Look at the reader: it takes less than is written.",
    "Write less, or from another thread with a queue that may drop what does not fit.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Output)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    let waited = format!("{} was blocked in writing", case.name());
    let summary = told(case, &blamed, &waited);
    case.judge(Draft { fix: advice(FIX), summary, ..draft(case, &WAITS, &blamed) })
}

/// Of a thread that got nothing to do, because another one of its process was blocked in writing.
pub(super) fn summary_of_another(case: &ThreadCase<'_, '_>, blamed: &Blamed) -> String {
    told(case, blamed, &format!("Another thread of {} was blocked in writing", case.name()))
}

fn told(case: &ThreadCase<'_, '_>, blamed: &Blamed, waited: &str) -> String {
    let lost = percent(case.share(blamed.sum.ns));
    match &blamed.culprit {
        Some(culprit) => {
            let (name, doing) = (case.situation.name(culprit.thread), doing(case.situation, culprit));
            format!("{waited} for {lost} of its time, until {name} read, which was {doing}.")
        }
        None => format!("{waited} for {lost} of its time; who reads is not known."),
    }
}
