//! The thread waited for the network while segments of its connections had to be sent again: packets are lost on the way.
//!
//! # How it is detected
//! The kernel says when it sends a segment again, and of which connection. A wait for the network counts when that happened
//! during the wait, on the connection that the thread waited for: at its own end, or at the other one where that is traced,
//! too. Whoever happens to run at that moment has nothing to do with it: the socket tells whose it is.
//!
//! # When it is not reported
//! A peer that is slow is `net-wait`, also where a few segments are sent again now and then: they must fall into most of the
//! time that was waited.
//!
//! # How to fix it
//! Look at the way to the peer: errors and drops of the interfaces (`ip -s link`), of the switch, of its queues, an MTU that
//! does not fit, a firewall that limits. Both ends count what they send again (`nstat -az TcpRetransSegs`).

use gpuwhy_model::{Chain, Culprit, Evidence, ProcessId, Severity, TcpEvent};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::waiting::Waiting;
use crate::words::{duration, part, percent, share};

pub const RULE: Rule = Rule {
    explains_away: &["net-wait"],
    meanwhile: &[Did::Wait(WaitClass::Network)],
    ..Rule::new(
        "tcp-retransmit",
        "Packets are lost on the way",
        include_str!("tcp_retransmit.rs"),
        Check::Thread(check),
    )
};

/// The part of the waits into which it has to fall.
const MOST: f64 = 0.5;

/// Fewer say nothing about a connection.
const LEAST_EVENTS: usize = 3;

const FIX: &[&str] = &[
    "Look at the way to the peer: errors and drops of interfaces and switches, an MTU that does not fit, a limit.",
    "Compare what both ends send again: nstat -az TcpRetransSegs, ss -ti.",
];

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    if let Some(verdict) = case.too_little(RULE.cause, case.thread.waits.ns(WaitClass::Network)) {
        return verdict;
    }
    let lossy = Lossy::find(case);
    let hit = share(lossy.hit_ns, lossy.all_ns);
    if hit < MOST || lossy.events < LEAST_EVENTS {
        let why = format!("segments were sent again in {} of the time that it waited for the network", percent(hit));
        return Verdict::ruled_out(RULE.cause, why);
    }
    let lost_ns = part(case.thread.waits.ns(WaitClass::Network), hit);
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let peer = lossy.peer.unwrap_or("its peer");
    let waited = format!("{name} waited {} for the network, {peer} ({lost} of its time)", duration(lost_ns));
    let again = format!("{} segments of these connections were sent again during the waits", lossy.events);
    let sum = case.thread.waits.get(WaitClass::Network);
    let chain = Chain::starting(edge(waited, Evidence::Observed, lost_ns, sum.cited.clone())).then(edge(
        again,
        Evidence::Observed,
        lost_ns,
        Vec::new(),
    ));
    let summary = format!("{name} waited {lost} of its time for {peer}, while packets were lost on the way.");
    case.judge(Draft {
        culprit: Some(Culprit { detail: format!("the way to {peer}"), ..Culprit::default() }),
        fix: advice(FIX),
        places: case.wait_places(|class| class == WaitClass::Network),
        calls_affected: sum.count,
        backing: Backing { share: sum.backed, records: sum.records },
        most_severe: Severity::High,
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    })
}

/// The waits for the network of a thread, and those in which segments were sent again.
#[derive(Default)]
struct Lossy<'w> {
    all_ns: u64,
    hit_ns: u64,
    events: usize,
    /// Of the longest of them.
    peer: Option<&'w str>,
    longest_ns: u64,
}

impl<'w> Lossy<'w> {
    fn find(case: &ThreadCase<'_, 'w>) -> Self {
        let mut found = Self::default();
        let situation = case.situation;
        let waits = situation.waits(case.thread.id).iter();
        for waiting in waits.filter(|waiting| waiting.class == Some(WaitClass::Network)) {
            let ns = waiting.stretch.blocked_ns;
            found.all_ns = found.all_ns.saturating_add(ns);
            let Some(target) = situation.target_name(waiting.stretch.target) else { continue };
            let events = during(&situation.window.tcp_events, waiting);
            let events = events.iter().filter(|event| is_of(event, target, case.thread.process_id)).count();
            if events == 0 {
                continue;
            }
            found.hit_ns = found.hit_ns.saturating_add(ns);
            found.events += events;
            if ns > found.longest_ns {
                (found.longest_ns, found.peer) = (ns, Some(target));
            }
        }
        found
    }
}

fn during<'w>(events: &'w [TcpEvent], waiting: &Waiting<'_>) -> &'w [TcpEvent] {
    let from = events.partition_point(|event| event.at_ns < waiting.stretch.start_ns);
    let to = events.partition_point(|event| event.at_ns <= waiting.blocked_to_ns());
    &events[from..to.max(from)]
}

/// Whether it is about the connection to a peer, which a target names after what the peer is.
fn is_of(event: &TcpEvent, target: &str, own: Option<ProcessId>) -> bool {
    let peer = target.rsplit(' ').next();
    let is_peer = |end: Option<String>| end.as_deref() == peer;
    event.process.is_some() && event.process == own && is_peer(event.remote()) || is_peer(event.local())
}
