//! The thread waited for the network, or for other ranks, while segments had to be sent again: packets are lost on the way.
//!
//! # How it is detected
//! The kernel says when it sends a segment again, and of which connection. A wait for the network counts when that happened
//! during the wait, on the connection that the thread waited for: at its own end, or at the other one where that is traced,
//! too. Whoever happens to run at that moment has nothing to do with it: the socket tells whose it is.
//!
//! A thread that waits for a collective operation waits for the network through others: there, segments count that any rank
//! of the job sent again during the wait, after the last rank had asked for the operation.
//!
//! # When it is not reported
//! A connection whose other end says that it had most of what was sent again has lost nothing: TCP asks this way whether a
//! peer that is silent is still there.
//!
//! A peer that is slow is `net-wait`, also where a few segments are sent again now and then: they must fall into most of the
//! time that was waited.
//!
//! # How to fix it
//! Look at the way to the peer: errors and drops of the interfaces (`ip -s link`), of the switch, of its queues, an MTU that
//! does not fit, a firewall that limits. Both ends count what they send again (`nstat -az TcpRetransSegs`).

use std::collections::BTreeMap;

use gpuwhy_model::{Chain, Culprit, Evidence, Place, ProcessId, Reference, Severity, Span, TcpEvent};
use gpuwhy_window::Collective;

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge, own_process};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::gpu::Did;
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
    if case.situation.window.tcp_events.is_empty() {
        return case.rule_out(RULE.cause, 0, "no segment was sent again".to_owned());
    }
    let lossy = [Lossy::in_waits(case), Lossy::in_operations(case)];
    let most = lossy.iter().max_by_key(|lossy| lossy.hit_ns);
    let (lossy, hit) = match most {
        Some(lossy) if lossy.is_to_blame() => (lossy, share(lossy.hit_ns, lossy.all_ns)),
        most => {
            let hit = most.map_or(0.0, |lossy| share(lossy.hit_ns, lossy.all_ns));
            let why =
                format!("segments were sent again in {} of the time that it waited for the network", percent(hit));
            return case.rule_out(RULE.cause, most.map_or(0, |lossy| lossy.hit_ns), why);
        }
    };
    let lost_ns = lossy.hit_ns;
    let (name, lost) = (case.name(), percent(case.share(lost_ns)));
    let Lossy { awaited, sender, .. } = lossy;
    let waited = format!("{name} waited {} for {awaited} ({lost} of its time)", duration(lost_ns));
    let again =
        format!("{} segments were sent again in {} of that time, most of them {sender}", lossy.events, percent(hit));
    let chain = Chain::starting(edge(waited, Evidence::Observed, lost_ns, lossy.cited.clone())).then(edge(
        again,
        Evidence::Observed,
        lost_ns,
        Vec::new(),
    ));
    let summary = format!("{name} waited {lost} of its time for {awaited}, while packets were lost on the way.");
    case.judge(Draft {
        culprit: Some(lossy.culprit.clone()),
        fix: advice(FIX),
        places: lossy.places.clone(),
        calls_affected: lossy.waits,
        backing: Backing { share: 1.0, records: lossy.waits },
        most_severe: Severity::High,
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    })
}

/// What a thread waited for, and how much of that while segments were sent again.
struct Lossy {
    awaited: String,
    /// Of most of the segments, after their number.
    sender: String,
    culprit: Culprit,
    all_ns: u64,
    hit_ns: u64,
    events: usize,
    waits: u64,
    cited: Vec<Reference>,
    places: Vec<Place>,
}

impl Lossy {
    fn is_to_blame(&self) -> bool {
        share(self.hit_ns, self.all_ns) >= MOST && self.events >= LEAST_EVENTS
    }

    /// Its own waits for the network.
    fn in_waits(case: &ThreadCase<'_, '_>) -> Self {
        let situation = case.situation;
        let (mut all_ns, mut hit_ns, mut events) = (0u64, 0u64, 0);
        let mut longest: Option<(u64, &str)> = None;
        let waits = situation.waits(case.thread.id).iter();
        for waiting in waits.filter(|waiting| waiting.class == Some(WaitClass::Network)) {
            let ns = waiting.stretch.blocked_ns;
            all_ns = all_ns.saturating_add(ns);
            let Some(target) = situation.target_name(waiting.stretch.target) else { continue };
            let span = Span { from_ns: waiting.stretch.start_ns, to_ns: waiting.blocked_to_ns() };
            let own = during(&situation.window.tcp_events, span).iter();
            let own = own.filter(|event| is_about(event, target, case.thread.process_id)).count();
            if own == 0 {
                continue;
            }
            (hit_ns, events) = (hit_ns.saturating_add(ns), events + own);
            longest = longest.max(Some((ns, target)));
        }
        let sum = case.thread.waits.get(WaitClass::Network);
        let peer = longest.map_or("its peer", |(_, peer)| peer);
        Self {
            awaited: peer.to_owned(),
            sender: "on its way".to_owned(),
            culprit: Culprit { detail: format!("the way to {peer}"), ..Culprit::default() },
            all_ns: sum.ns,
            // Records stand for all waits.
            hit_ns: part(sum.ns, share(hit_ns, all_ns)),
            events,
            waits: sum.count,
            cited: sum.cited.clone(),
            places: case.wait_places(|class| class == WaitClass::Network),
        }
    }

    /// Operations of several ranks that its process waited for.
    fn in_operations(case: &ThreadCase<'_, '_>) -> Self {
        let situation = case.situation;
        let rows = &situation.window.collectives.rows;
        let by_process = |one: &'_ Collective| Some((situation.process_id(one.thread)?, *one));
        let ranks: BTreeMap<ProcessId, Collective> = rows.iter().filter_map(by_process).collect();
        let (mut all_ns, mut hit_ns, mut waits) = (0u64, 0u64, 0);
        let mut senders: BTreeMap<(ProcessId, Option<String>), usize> = BTreeMap::new();
        let mut all_asked_ns: BTreeMap<(i64, u64), u64> = BTreeMap::new();
        for one in rows {
            let last_ns = all_asked_ns.entry((one.communicator, one.sequence)).or_default();
            *last_ns = one.start_ns.max(*last_ns);
        }
        for one in rows.iter().filter(|one| situation.process_id(one.thread) == case.thread.process_id) {
            let Some(to_ns) = one.done_ns.filter(|_| one.wait_ns > 0) else { continue };
            all_ns = all_ns.saturating_add(one.wait_ns);
            // Before, a rank was late, and nothing had to be sent.
            let asked_ns = all_asked_ns.get(&(one.communicator, one.sequence)).copied().unwrap_or(0);
            let span = Span { from_ns: to_ns.saturating_sub(one.wait_ns).max(asked_ns).min(to_ns), to_ns };
            let of_ranks = during(&situation.window.tcp_events, span).iter().filter_map(|event| {
                Some((event.process.filter(|process| ranks.contains_key(process))?, event.remote()))
            });
            let of_ranks: Vec<_> = of_ranks.collect();
            if !of_ranks.is_empty() {
                (hit_ns, waits) = (hit_ns.saturating_add(span.ns()), waits + 1);
            }
            of_ranks.into_iter().for_each(|sender| *senders.entry(sender).or_default() += 1);
        }
        let most = senders.iter().max_by_key(|(_, events)| **events);
        let (sender, culprit) = most
            .and_then(|((process, peer), _)| {
                let one = ranks.get(process)?;
                let peer = peer.as_deref().unwrap_or("another rank");
                let sender = format!("by rank {}, {}, to {peer}", one.rank, situation.name(one.thread));
                let detail = format!("the way from rank {} to {peer}", one.rank);
                Some((sender, own_process(situation, one.thread, detail)))
            })
            .unwrap_or_default();
        Self {
            awaited: "operations of several ranks".to_owned(),
            sender,
            culprit,
            all_ns,
            hit_ns,
            events: senders.values().sum(),
            waits,
            cited: Vec::new(),
            places: case.places(|call| situation.is_wait(call.op)),
        }
    }
}

fn during(events: &[TcpEvent], span: Span) -> &[TcpEvent] {
    let from = events.partition_point(|event| event.at_ns < span.from_ns);
    let to = events.partition_point(|event| event.at_ns <= span.to_ns);
    &events[from..to.max(from)]
}

/// Whether it is about the connection to a peer, which a target names after what the peer is.
fn is_about(event: &TcpEvent, target: &str, own: Option<ProcessId>) -> bool {
    let peer = target.rsplit(' ').next();
    let is_peer = |end: Option<String>| end.as_deref() == peer;
    event.process.is_some() && event.process == own && is_peer(event.remote()) || is_peer(event.local())
}
