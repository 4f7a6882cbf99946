//! The thread waited for what another thread or process had to hand over: a DataLoader worker, a tokenizer, a queue.
//!
//! # How it is detected
//! A thread that blocks on a pipe, a Unix socket, an eventfd, or a futex of the kind that condition variables and
//! semaphores use, waits for a producer: the one that woke it. What the producer did meanwhile is its own cause. Where
//! the producer itself waited for another thread, the search goes on, over several hops. The culprit is the last thread of
//! that chain: the one that computed, or that waited for a device, a peer or a timer.
//!
//! # When it is not reported
//! Threads of one process that feed the GPU in turns, as PyTorch's main and autograd threads do, hand over and starve
//! nobody. A producer that sleeps on purpose, or that itself waits for something outside without having been asked for
//! anything, has nothing to deliver: that is reported as low. So does somebody who sleeps and who spoke first, as a user does
//! who thinks, and a thread that waits for a signal until its time is over. Waits on TCP are `net-wait`, on locks `lock-wait`. A producer in the same process that is blocked in writing
//! is `output-blocked`.
//!
//! # How to fix it
//! Make the producer faster, or start more of them (`num_workers`), or let them work ahead (`prefetch_factor`, deeper
//! queues). If it waits for a disk or a CPU, that is what to fix.

use gpuwhy_model::Severity;

use super::blamed::{Blamed, BlamedWaits, blame, draft};
use super::{Check, Rule, advice, output_blocked};
use crate::case::{Draft, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;
use crate::graph::{Activity, Culprit};
use crate::words::share;

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Input), Did::Wait(WaitClass::Handover)],
    ..Rule::new("input-starved", "Input came too late", include_str!("input_starved.rs"), Check::Thread(check))
};

const WAITS: BlamedWaits = BlamedWaits {
    cause: RULE.cause,
    class: WaitClass::Input,
    what: "input",
    verb: "delivers",
    follows: WaitClass::is_for_a_thread,
};

/// Of the time that it waited.
const MOST: f64 = 0.5;

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Input)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    let mut draft = Draft { fix: fix(case, &blamed), ..draft(case, &WAITS, &blamed) };
    // Who delivers is of the same process, and has its own reason.
    if blamed.blame.share_out_by(WaitClass::Output) > MOST {
        (draft.cause, draft.fix) = (output_blocked::RULE.cause, advice(output_blocked::FIX));
        draft.summary = output_blocked::summary_of_another(case, &blamed);
    }
    match &blamed.culprit {
        // Timers ended the waits, as they do for somebody who looks now and then whether there is something to do.
        None => draft.most_severe = Severity::Low,
        Some(culprit) if has_nothing_to_deliver(case, culprit) => {
            draft.most_severe = Severity::Low;
            draft.summary.push_str(" Nothing was there to deliver, so this may be as it should be.");
        }
        Some(_) => {}
    }
    case.judge(draft)
}

/// Whether the culprit mostly slept, or waited for something outside, without having been asked for anything.
fn has_nothing_to_deliver(case: &ThreadCase<'_, '_>, culprit: &Culprit) -> bool {
    const IDLE: &[WaitClass] = &[WaitClass::Sleep, WaitClass::Network, WaitClass::Input, WaitClass::Other];
    match culprit.main_activity() {
        Activity::Waiting(WaitClass::Request) => true,
        // An event loop sleeps until one of its timers is due.
        Activity::Waiting(WaitClass::Sleep | WaitClass::Other) if spoke_first(case, culprit) => true,
        Activity::Waiting(WaitClass::Input) if paused(case, culprit) => true,
        Activity::Waiting(class) if IDLE.contains(&class) => !was_asked(case, culprit),
        _ => false,
    }
}

/// Whether the culprit waits for a signal that hardly ever comes before its time is over: it pauses, and can be told to stop.
fn paused(case: &ThreadCase<'_, '_>, culprit: &Culprit) -> bool {
    let waits = case.situation.waits(culprit.thread).iter().filter(|waiting| waiting.class == Some(WaitClass::Input));
    let (mut all_ns, mut paused_ns) = (0u64, 0u64);
    for stretch in waits.map(|waiting| waiting.stretch) {
        all_ns = all_ns.saturating_add(stretch.blocked_ns);
        paused_ns = paused_ns.saturating_add(if stretch.woken_by.is_none() { stretch.blocked_ns } else { 0 });
    }
    share(paused_ns, all_ns) > MOST
}

/// Whether the culprit's process asks and the victim's answers: it spoke first, which was seen.
fn spoke_first(case: &ThreadCase<'_, '_>, culprit: &Culprit) -> bool {
    let situation = case.situation;
    let (Some(other), Some(own)) = (situation.process_id(culprit.thread), case.thread.process_id) else { return false };
    let started_ns = |process| situation.window.processes.get(&process).map_or(0, |process| process.started_ns);
    let began_ns = situation.window.sessions.iter().map(|session| session.started_ns).min().unwrap_or(u64::MAX);
    let is_seen = started_ns(other).max(started_ns(own)) >= began_ns;
    let waits = situation.waits(case.thread.id).iter().filter(|waiting| waiting.class == Some(WaitClass::Input));
    let mut kinds =
        waits.filter_map(|waiting| situation.window.targets.get(&waiting.stretch.target?)).map(|one| one.kind);
    is_seen && kinds.any(|kind| situation.window.spoke_first.contains(&(other, own, kind)))
}

/// Whether the victim's process, or one on the way to the culprit, woke the culprit about as often as it waited.
fn was_asked(case: &ThreadCase<'_, '_>, culprit: &Culprit) -> bool {
    let situation = case.situation;
    let waits = situation.waits(case.thread.id).iter();
    let waits = waits.filter(|waiting| matches!(waiting.class, Some(WaitClass::Input | WaitClass::Network))).count();
    let asks = |thread| {
        situation.process_id(thread) == case.thread.process_id && thread != culprit.thread
            || culprit.path.iter().any(|&one| one == thread && one != culprit.thread)
    };
    let asked = situation.waits(culprit.thread).iter();
    let asked = asked.filter(|waiting| {
        waiting.class.is_some_and(WaitClass::is_for_a_thread) && waiting.ended_by.is_some_and(|by| asks(by.thread))
    });
    asked.count() * 2 >= waits.max(1)
}

fn fix(case: &ThreadCase<'_, '_>, blamed: &Blamed) -> Vec<String> {
    let Some(culprit) = &blamed.culprit else {
        return vec!["Find out who fills this queue, and let it work ahead.".to_owned()];
    };
    let name = case.situation.name(culprit.thread);
    let first = match culprit.main_activity() {
        Activity::Waiting(WaitClass::Io) => format!("{name} waits for a disk: read ahead, cache, or use a faster one."),
        Activity::Runqueue => format!("{name} has no CPU: give it one, or start fewer workers."),
        Activity::Waiting(class) => format!("{name} is itself {}: fix that first.", class.doing()),
        _ => format!("{name} computes: make that cheaper, or spread it over more workers (num_workers)."),
    };
    vec![first, "Let producers work ahead (prefetch_factor, a deeper queue).".to_owned()]
}
