//! The thread was blocked on a lock that another thread held.
//!
//! # How it is detected
//! A thread that blocks in a futex wait of the kind mutexes use, or in any futex inside a call of the GPU's libraries,
//! waits for a lock. The thread that woke it released the lock. What that thread did from the beginning of the wait to its
//! end says why the wait took so long. If that thread waited for the same lock itself, as in a convoy, the search goes on
//! to the one before it. All waits count, by their time.
//!
//! # When it is not reported
//! Waits on condition variables, semaphores and queues are `input-starved`, Python's interpreter lock is `gil-wait`.
//! A lock that many want, and that everybody releases at once, stays below one percent.
//!
//! # How to fix it
//! Hold the lock for shorter: move computing, sleeping and I/O out of it. Or give each thread its own: its own stream,
//! queue, or copy of the data.

use super::blamed::{BlamedWaits, blame, draft};
use super::{Check, Rule};
use crate::case::{Draft, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;
use crate::graph::Activity;

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Lock)],
    ..Rule::new("lock-wait", "Waiting for a lock", include_str!("lock_wait.rs"), Check::Thread(check))
};

const WAITS: BlamedWaits = BlamedWaits {
    cause: RULE.cause,
    class: WaitClass::Lock,
    what: "a lock",
    verb: "held",
    follows: |class| matches!(class, WaitClass::Lock | WaitClass::Gil),
};

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Lock)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    let holder = blamed.culprit.as_ref().map(|culprit| (case.situation.name(culprit.thread), culprit.main_activity()));
    let fix = match holder {
        Some((name, Activity::Waiting(class))) => {
            vec![format!("{name} should not hold the lock while it is {}.", class.doing())]
        }
        Some((name, Activity::Running)) => vec![format!("Let {name} compute before it takes the lock, or in pieces.")],
        Some((name, Activity::Runqueue)) => vec![format!("Give {name} a CPU: it holds the lock and cannot run.")],
        _ => vec!["Find out who holds the lock, and hold it for shorter.".to_owned()],
    };
    case.judge(Draft { fix, ..draft(case, &WAITS, &blamed) })
}
