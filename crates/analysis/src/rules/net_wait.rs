//! The thread waited for bytes from a peer: a storage server, a parameter server, another node.
//!
//! # How it is detected
//! A thread that blocks in reading, writing or polling a TCP or other network socket waits for its peer. A peer on this
//! host wakes it and is known by that; what it did meanwhile is told. A peer elsewhere is known by its address. An event
//! loop waits for all its sockets at once: it waits for an answer if a server ends the wait that its own process asks,
//! and so does a thread that gets its work from the loop.
//!
//! # When it is not reported
//! Unix sockets and pipes are `input-starved`. A server that waits for requests nobody sends has nothing to do: waits for a
//! peer that connected to the victim are not looked at, and those for one that itself waits for requests are low: a proxy
//! with little traffic.
//!
//! # How to fix it
//! Ask earlier and for more at once: prefetch, batch requests, keep connections open. Look at the peer: it is the one
//! that is late.

use gpuwhy_model::{Chain, Culprit, Evidence, Severity};

use super::blamed::{Blamed, BlamedWaits, blame, draft, main_target};
use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::graph::Activity;
use crate::words::{duration, percent};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Network)],
    ..Rule::new("net-wait", "Waiting for the network", include_str!("net_wait.rs"), Check::Thread(check))
};

const WAITS: BlamedWaits = BlamedWaits {
    cause: RULE.cause,
    class: WaitClass::Network,
    what: "the network",
    verb: "answers on",
    follows: WaitClass::is_for_a_thread,
};

const FIX: &[&str] = &["Look at the peer: it answers late.", "Ask earlier and for more at once: prefetch, batch."];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Network)) {
        return verdict;
    }
    let blamed = blame(case, &WAITS);
    let mut draft = match &blamed.culprit {
        Some(_) => draft(case, &WAITS, &blamed),
        None => remote(case, &blamed),
    };
    draft.fix = advice(FIX);
    if blamed.culprit.as_ref().is_some_and(|peer| peer.main_activity() == Activity::Waiting(WaitClass::Request)) {
        draft.most_severe = Severity::Low;
        draft.summary.push_str(" Nobody asked that one for anything, so this may be as it should be.");
    }
    case.judge(draft)
}

/// Nobody on this host ended the waits.
fn remote(case: &ThreadCase<'_, '_>, blamed: &Blamed) -> Draft {
    let (name, lost_ns) = (case.name(), blamed.sum.ns);
    let lost = percent(case.share(lost_ns));
    let peer = main_target(case, WaitClass::Network).unwrap_or("an unknown peer");
    let chain = Chain::starting(edge(
        format!("{name} waited {} for the network ({lost} of its time)", duration(lost_ns)),
        Evidence::Observed,
        lost_ns,
        blamed.sum.cited.clone(),
    ))
    .then(edge(
        format!("nothing came from {peer} meanwhile"),
        Evidence::Inferred,
        lost_ns,
        blamed.sum.cited.clone(),
    ));
    let summary = format!("{name} waited {lost} of its time for bytes from {peer}.");
    Draft {
        culprit: Some(Culprit { detail: format!("a peer elsewhere: {peer}"), ..Culprit::default() }),
        places: case.wait_places(|class| class == WaitClass::Network),
        calls_affected: blamed.sum.count,
        backing: Backing { share: blamed.sum.backed, records: blamed.sum.records },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }
}
