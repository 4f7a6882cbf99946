//! The thread was blocked on Python's interpreter lock, which another Python thread held.
//!
//! # How it is detected
//! The futexes of the interpreter lock are known by their address. A waiter wakes up by a timer every few milliseconds
//! to ask for the lock, and blocks again: such pieces belong to the thread that ends the last of them. What that thread
//! did meanwhile says what it held the lock for.
//!
//! # When it is not reported
//! Other locks are `lock-wait`. Threads that take turns within moments stay below one percent.
//!
//! # How to fix it
//! Move pure-Python work out of the process (`multiprocessing`, DataLoader workers), or into calls that release the
//! lock (NumPy, PyTorch, C extensions). A free-threaded Python has no such lock.

use super::blamed::{BlamedWaits, blame, draft};
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Gil)],
    ..Rule::new("gil-wait", "Waiting for Python's interpreter lock", include_str!("gil_wait.rs"), Check::Thread(check))
};

const WAITS: BlamedWaits = BlamedWaits {
    cause: RULE.cause,
    class: WaitClass::Gil,
    what: "Python's interpreter lock",
    verb: "held",
    follows: |class| matches!(class, WaitClass::Lock | WaitClass::Gil),
};

const FIX: &[&str] = &[
    "Move that thread's Python code into a process of its own (multiprocessing, DataLoader workers).",
    "Or let it call code that releases the interpreter lock.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Gil)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    case.judge(Draft { fix: advice(FIX), ..draft(case, &WAITS, &blamed) })
}
