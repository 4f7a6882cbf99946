//! The thread waited for a process that it had started.
//!
//! # How it is detected
//! The kernel says what a blocked thread is in: a wait for the end of another process (`waitpid`), or Python's
//! `subprocess` reading what the other one says until it ends. The one that ended the wait is that process. Whoever reads
//! what a process says that it started, and that one ends right after or lives only for a moment, waits for it too. So does
//! whoever keeps a command running, sends it something and waits for what it answers.
//!
//! # When it is not reported
//! Workers that hand something over again and again, and do not end, are producers: `input-starved`.
//!
//! # How to fix it
//! Start it earlier and collect it later (`Popen`, then `poll`), keep one process running and send it work, or do the work
//! in a library.

use super::blamed::{BlamedWaits, blame, doing, draft};
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;
use crate::graph::Activity;
use crate::words::percent;

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Child)],
    ..Rule::new("child-wait", "Waiting for a process it started", include_str!("child_wait.rs"), Check::Thread(check))
};

const WAITS: BlamedWaits = BlamedWaits {
    cause: RULE.cause,
    class: WaitClass::Child,
    what: "a process that it started",
    verb: "is",
    follows: WaitClass::is_for_a_thread,
};

const FIX: &[&str] = &[
    "Start it, or ask it, earlier and collect the answer later (Popen, then poll), so that it runs while the GPU works.",
    "Keep one process running and send it work, or do the work in a library: starting a process takes milliseconds.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Child)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    let waited = format!(
        "{} waited {} of its time for processes that it started",
        case.name(),
        percent(case.share(blamed.sum.ns))
    );
    let summary = match &blamed.culprit {
        Some(culprit) if culprit.main_activity() == Activity::Unknown => {
            format!("{waited}, mostly for {}.", case.situation.name(culprit.thread))
        }
        Some(culprit) => {
            let name = case.situation.name(culprit.thread);
            format!("{waited}, mostly for {name}, which was {}.", doing(case.situation, culprit))
        }
        None => format!("{waited}."),
    };
    case.judge(Draft { fix: advice(FIX), summary, ..draft(case, &WAITS, &blamed) })
}
