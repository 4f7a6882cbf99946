//! Everybody who tells digests, and what follows from them.

use std::collections::{BTreeMap, VecDeque};

use gpuwhy_model::{Severity, UnixNs};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::account::{Account, Point};
use crate::cohort::compare;
use crate::digest::{Digest, Part};
use crate::standing::{Change, Standing};

/// A node that has told nothing for so long is gone. Its ranks are compared with nobody any more.
const GONE_NS: u64 = 5_000_000_000;
/// After so long it is forgotten.
const FORGOTTEN_NS: u64 = 600_000_000_000;
/// So old a finding says nothing about now.
const STALE_NS: u64 = 120_000_000_000;

const MOST_NODES: usize = 50_000;
const MOST_WORKERS: usize = 256;
const MOST_PARTS: usize = 16;
const MOST_EVENTS: usize = 100_000;
const MOST_FINDINGS: usize = 8;

#[derive(Default)]
pub struct Cluster {
    nodes: HashMap<String, Node>,
    groups: HashMap<u64, Group>,
    events: VecDeque<Event>,
    /// What was told and not taken, because there are too many already.
    refused: u64,
}

#[derive(Default)]
struct Node {
    first_ns: u64,
    seen_ns: u64,
    is_gone: bool,
    /// How far its clock is ahead of the one here, at the most.
    clock_ns: i64,
    lost: u64,
    workers: BTreeMap<u32, Known>,
}

struct Known {
    last: Digest,
    seen_ns: u64,
    findings: VecDeque<Why>,
}

/// The ranks of a communicator, by their number.
#[derive(Default)]
struct Group {
    ranks: u32,
    seats: BTreeMap<u32, Seat>,
    has_news: bool,
}

struct Seat {
    node: String,
    pid: u32,
    account: Account,
    standing: Standing,
    seen_ns: u64,
}

/// A finding of a node about one of its workers: why it is late.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Why {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub cause: String,
    pub severity: Severity,
    pub summary: String,
    /// Who is to blame, where that is somebody else.
    pub culprit: Option<String>,
    /// The first line of the user's own code.
    pub place: Option<String>,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Event {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub node: String,
    #[serde(flatten)]
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    NodeCame,
    NodeGone,
    NodeCameBack,
    RankBecameLate { pid: u32, communicator: String, rank: u32, share: f64, at_a_time_ns: u64 },
    RankIsLateNoMore { pid: u32, communicator: String, rank: u32, since_ns: u64 },
    Found { pid: u32, why: Why },
}

/// Who holds others up.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Straggler {
    pub node: String,
    pub pid: u32,
    pub comm: String,
    pub labels: BTreeMap<String, String>,
    pub communicator: String,
    pub rank: u32,
    pub ranks: u32,
    /// When it became late.
    #[schemars(with = "UnixNs")]
    pub since_ns: u64,
    /// The share of the time for which others wait for it.
    pub share: f64,
    /// How late it comes to each operation, on average.
    pub at_a_time_ns: u64,
    /// GPUs that are idle for it, on average: so many ranks wait for that share of the time.
    pub gpus_idle: f64,
    /// What its own node found.
    pub why: Option<Why>,
}

/// What a node is told of one of its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub communicator: u64,
    pub rank: u32,
    pub pid: u32,
    pub share: f64,
    pub threshold: f64,
    pub since_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct NodeState {
    pub node: String,
    #[schemars(with = "UnixNs")]
    pub first_seen_ns: u64,
    #[schemars(with = "UnixNs")]
    pub last_seen_ns: u64,
    pub is_gone: bool,
    /// How far its clock is ahead of the one here; what it took to come here is a part of it.
    pub clock_ns: i64,
    pub workers: usize,
    pub late_ranks: usize,
    /// Records that its tracers lost.
    pub lost: u64,
}

impl Cluster {
    /// What a node tells. Of what comes twice or late only what is new counts.
    pub fn take(&mut self, node: &str, digests: Vec<Digest>, now_ns: u64) {
        if !self.nodes.contains_key(node) && self.nodes.len() >= MOST_NODES {
            self.refused += digests.len() as u64;
            return;
        }
        self.see(node, now_ns);
        for digest in digests {
            let rank = |part: &Part| Named { node, pid: digest.worker.pid, part: *part };
            let parts: Vec<Named<'_>> = digest.parts.iter().take(MOST_PARTS).map(rank).collect();
            parts.into_iter().for_each(|named| self.take_part(&named, now_ns));
            self.know(node, digest, now_ns);
        }
    }

    fn see(&mut self, name: &str, now_ns: u64) {
        let mut kind = None;
        let node = self.nodes.entry_ref(name).or_insert_with(|| {
            kind = Some(EventKind::NodeCame);
            Node { first_ns: now_ns, ..Node::default() }
        });
        if std::mem::take(&mut node.is_gone) {
            kind = Some(EventKind::NodeCameBack);
        }
        node.seen_ns = now_ns;
        if let Some(kind) = kind {
            self.tell(Event { at_ns: now_ns, node: name.to_owned(), kind });
        }
    }

    fn know(&mut self, node: &str, digest: Digest, now_ns: u64) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        node.clock_ns = digest.at_ns.cast_signed().saturating_sub(now_ns.cast_signed());
        node.lost = node.lost.max(digest.lost);
        if let Some(known) = node.workers.get_mut(&digest.worker.pid) {
            if known.last.at_ns <= digest.at_ns {
                (known.last, known.seen_ns) = (digest, now_ns);
            }
        } else if node.workers.len() >= MOST_WORKERS {
            self.refused += 1;
        } else {
            let known = Known { last: digest, seen_ns: now_ns, findings: VecDeque::new() };
            node.workers.insert(known.last.worker.pid, known);
        }
    }

    fn take_part(&mut self, named: &Named<'_>, now_ns: u64) {
        let Part { communicator, rank, ranks, operations, waited_ns, done_ns } = named.part;
        if rank >= ranks {
            self.refused += 1;
            return;
        }
        let group = self.groups.entry(communicator).or_default();
        group.ranks = ranks;
        let is_own = |seat: &Seat| (seat.node.as_str(), seat.pid) == (named.node, named.pid);
        let seat = group.seats.entry(rank).or_insert_with(|| Seat::new(named));
        if !is_own(seat) {
            // Nobody speaks for another node's rank while that one speaks itself.
            if now_ns.saturating_sub(seat.seen_ns) < GONE_NS {
                self.refused += 1;
                return;
            }
            *seat = Seat::new(named);
        }
        seat.seen_ns = now_ns;
        group.has_news |= seat.account.take(Point { operations, waited_ns, at_ns: done_ns });
    }

    /// What a node found about one of its workers.
    pub fn take_finding(&mut self, node: &str, pid: u32, why: Why, now_ns: u64) {
        self.see(node, now_ns);
        let worker = self.nodes.get_mut(node).and_then(|node| node.workers.get_mut(&pid));
        let Some(known) = worker else { return };
        // Its numbers change from time to time.
        let is_same = |other: &Why| (&other.cause, &other.place) == (&why.cause, &why.place);
        let is_new = !known.findings.iter().any(is_same);
        known.findings.retain(|other| !is_same(other));
        known.findings.push_back(why.clone());
        if known.findings.len() > MOST_FINDINGS {
            known.findings.pop_front();
        }
        if is_new {
            self.tell(Event { at_ns: now_ns, node: node.to_owned(), kind: EventKind::Found { pid, why } });
        }
    }

    /// Compares ranks that have told something new, and notices who is gone.
    pub fn judge(&mut self, now_ns: u64) {
        let mut events = Vec::new();
        for (name, node) in &mut self.nodes {
            if !node.is_gone && now_ns.saturating_sub(node.seen_ns) > GONE_NS {
                node.is_gone = true;
                events.push(Event { at_ns: now_ns, node: name.clone(), kind: EventKind::NodeGone });
            }
            node.workers.retain(|_, known| now_ns.saturating_sub(known.seen_ns) < FORGOTTEN_NS);
        }
        self.nodes.retain(|_, node| now_ns.saturating_sub(node.seen_ns) < FORGOTTEN_NS);
        for (&communicator, group) in &mut self.groups {
            group.seats.retain(|_, seat| now_ns.saturating_sub(seat.seen_ns) < FORGOTTEN_NS);
            if std::mem::take(&mut group.has_news) {
                events.extend(group.judge(communicator, now_ns));
            }
        }
        self.groups.retain(|_, group| !group.seats.is_empty());
        events.into_iter().for_each(|event| self.tell(event));
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// What is to be told to a node, about its ranks that have been compared.
    pub fn told_to(&self, node: &str) -> Vec<Told> {
        let Some(known) = self.nodes.get(node) else { return Vec::new() };
        let parts = known.workers.values().flat_map(|known| &known.last.parts);
        let told = parts.filter_map(|part| {
            let seat = self.groups.get(&part.communicator)?.seats.get(&part.rank)?;
            let Standing { share, threshold, since_ns, .. } = seat.standing;
            let is_compared = seat.node == node && threshold > 0.0;
            let (communicator, rank, pid) = (part.communicator, part.rank, seat.pid);
            is_compared.then_some(Told { communicator, rank, pid, share, threshold, since_ns })
        });
        told.collect()
    }

    /// Who holds others up now, the worst first. A worker is told once, with the communicator in which it is late for most of
    /// the time.
    pub fn stragglers(&self, now_ns: u64) -> Vec<Straggler> {
        let mut worst: BTreeMap<(&str, u32), Straggler> = BTreeMap::new();
        for (&communicator, group) in &self.groups {
            for (&rank, seat) in &group.seats {
                let is_here = now_ns.saturating_sub(seat.seen_ns) <= GONE_NS;
                let Some(since_ns) = seat.standing.since_ns.filter(|_| is_here) else { continue };
                let Standing { share, at_a_time_ns, .. } = seat.standing;
                let known = self.nodes.get(&seat.node).and_then(|node| node.workers.get(&seat.pid));
                let worker = known.map(|known| known.last.worker.clone()).unwrap_or_default();
                let straggler = Straggler {
                    node: seat.node.clone(),
                    pid: seat.pid,
                    comm: worker.comm,
                    labels: worker.labels,
                    communicator: name(communicator),
                    rank,
                    ranks: group.ranks,
                    since_ns,
                    share,
                    at_a_time_ns,
                    gpus_idle: share * f64::from(group.ranks.saturating_sub(1)),
                    why: known.and_then(|known| known.why(now_ns)),
                };
                let told = worst.entry((&seat.node, seat.pid));
                let told = told.or_insert_with(|| straggler.clone());
                if straggler.gpus_idle > told.gpus_idle {
                    *told = straggler;
                }
            }
        }
        let mut all: Vec<Straggler> = worst.into_values().collect();
        all.sort_by(|one, other| other.gpus_idle.total_cmp(&one.gpus_idle));
        all
    }

    pub fn nodes(&self) -> Vec<NodeState> {
        let late = self.groups.values().flat_map(|group| group.seats.values()).filter(|seat| seat.standing.is_late());
        let mut late_of: HashMap<&str, usize> = HashMap::new();
        late.for_each(|seat| *late_of.entry(&seat.node).or_default() += 1);
        let state = |(name, node): (&String, &Node)| NodeState {
            node: name.clone(),
            first_seen_ns: node.first_ns,
            last_seen_ns: node.seen_ns,
            is_gone: node.is_gone,
            clock_ns: node.clock_ns,
            workers: node.workers.len(),
            late_ranks: late_of.get(name.as_str()).copied().unwrap_or(0),
            lost: node.lost,
        };
        let mut all: Vec<NodeState> = self.nodes.iter().map(state).collect();
        all.sort_by(|one, other| one.node.cmp(&other.node));
        all
    }

    /// The workers of a node, with what they did last.
    pub fn workers(&self, node: &str) -> Vec<&Digest> {
        let known = self.nodes.get(node).into_iter().flat_map(|node| node.workers.values());
        known.map(|known| &known.last).collect()
    }

    /// From the oldest to the newest, as far as they are kept.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }

    /// How much was told and not taken.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// A part and whose it is.
struct Named<'a> {
    node: &'a str,
    pid: u32,
    part: Part,
}

impl Seat {
    fn new(named: &Named<'_>) -> Self {
        let (account, standing) = Default::default();
        Self { node: named.node.to_owned(), pid: named.pid, account, standing, seen_ns: 0 }
    }
}

impl Known {
    /// The gravest of what was found lately, the newest of these.
    fn why(&self, now_ns: u64) -> Option<Why> {
        let fresh = self.findings.iter().filter(|why| now_ns.saturating_sub(why.at_ns) < STALE_NS);
        fresh.max_by_key(|why| (why.severity, why.at_ns)).cloned()
    }
}

impl Group {
    /// Ranks are compared where at least half of them are heard.
    fn judge(&mut self, communicator: u64, now_ns: u64) -> Vec<Event> {
        let is_here = |seat: &Seat| now_ns.saturating_sub(seat.seen_ns) <= GONE_NS;
        let here: Vec<(u32, &Account)> =
            self.seats.iter().filter(|(_, seat)| is_here(seat)).map(|(rank, seat)| (*rank, &seat.account)).collect();
        if here.len() * 2 < self.ranks as usize {
            return Vec::new();
        }
        let Some(comparison) = compare(&here) else { return Vec::new() };
        let mut events = Vec::new();
        for own in &comparison.ranks {
            let Some(seat) = self.seats.get_mut(&own.rank) else { continue };
            let since_ns = seat.standing.since_ns;
            let Some(change) = seat.standing.see(own, &comparison, now_ns) else { continue };
            let (pid, rank, communicator) = (seat.pid, own.rank, name(communicator));
            let Standing { share, at_a_time_ns, .. } = seat.standing;
            let kind = match change {
                Change::BecameLate => EventKind::RankBecameLate { pid, communicator, rank, share, at_a_time_ns },
                Change::IsLateNoMore => {
                    EventKind::RankIsLateNoMore { pid, communicator, rank, since_ns: since_ns.unwrap_or(now_ns) }
                }
            };
            events.push(Event { at_ns: now_ns, node: seat.node.clone(), kind });
        }
        events
    }
}

/// Communicators are called the same everywhere.
fn name(communicator: u64) -> String {
    format!("{communicator:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Worker;

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    /// Nodes of one rank each, in steps of 40 ms. Clocks of nodes differ by hours.
    struct Job {
        cluster: Cluster,
        waited_ns: Vec<u64>,
        second: u64,
    }

    impl Job {
        fn new(ranks: u32) -> Self {
            Self { cluster: Cluster::default(), waited_ns: vec![0; ranks as usize], second: 0 }
        }

        fn now_ns(&self) -> u64 {
            1_000_000 * S + self.second * S
        }

        fn digest(&self, rank: u32) -> Digest {
            let at_ns = self.now_ns() + u64::from(rank) * 3600 * S;
            let ranks = self.waited_ns.len() as u32;
            let (operations, waited_ns) = (25 * self.second, self.waited_ns[rank as usize]);
            let part = Part { communicator: 7, rank, ranks, operations, waited_ns, done_ns: at_ns };
            let labels = [("job".to_owned(), "llm".to_owned())].into();
            let worker = Worker { pid: 100 + rank, comm: "python".to_owned(), device: Some(0), labels };
            Digest { at_ns, worker, parts: vec![part], ..Digest::default() }
        }

        /// A second in which ranks come so late to each operation. Nodes that are left out tell nothing of it.
        fn second(&mut self, late_ns: impl Fn(u32) -> u64, tells: impl Fn(u32) -> bool) {
            self.second += 1;
            let ranks = self.waited_ns.len() as u32;
            let worst = (0..ranks).map(&late_ns).max().unwrap_or(0);
            for rank in 0..ranks {
                self.waited_ns[rank as usize] += 25 * (10 * MS + worst - late_ns(rank));
                if tells(rank) {
                    let (digest, now_ns) = (self.digest(rank), self.now_ns());
                    self.cluster.take(&format!("n{rank}"), vec![digest], now_ns);
                }
            }
            self.cluster.judge(self.now_ns());
        }

        fn late(&self) -> Vec<(String, u32)> {
            let stragglers = self.cluster.stragglers(self.now_ns());
            stragglers.into_iter().map(|one| (one.node, one.rank)).collect()
        }
    }

    fn why(cause: &str, severity: Severity, at_ns: u64) -> Why {
        let summary = format!("{cause} of it");
        Why { at_ns, cause: cause.to_owned(), severity, summary, culprit: None, place: None }
    }

    #[test]
    fn the_rank_that_becomes_late_is_told_within_two_seconds_with_its_node_and_its_reason() {
        let mut job = Job::new(4);
        (0..10).for_each(|_| job.second(|_| 0, |_| true));
        assert_eq!(job.late(), []);
        let began_ns = job.now_ns();
        (0..2).for_each(|_| job.second(|rank| if rank == 2 { 12 * MS } else { 0 }, |_| true));
        let now_ns = job.now_ns();
        job.cluster.take_finding("n2", 102, why("cpu-preempted", Severity::High, now_ns), now_ns);
        job.cluster.take_finding("n2", 102, why("lock-wait", Severity::Low, now_ns), now_ns);
        job.cluster.take_finding("n9", 102, why("io-wait", Severity::High, now_ns), now_ns);
        let all = job.cluster.stragglers(now_ns);
        let [one] = &all[..] else { panic!("{all:#?}") };
        assert_eq!((one.node.as_str(), one.pid, one.rank, one.ranks), ("n2", 102, 2, 4));
        assert_eq!(one.why.as_ref().map(|why| why.cause.as_str()), Some("cpu-preempted"));
        assert!(
            one.since_ns > began_ns && (one.share - 0.3).abs() < 0.03 && one.at_a_time_ns.abs_diff(12 * MS) < MS,
            "{one:?}"
        );
        let told = job.cluster.told_to("n2");
        assert!(told.len() == 1 && told[0].since_ns == Some(one.since_ns), "{told:?}");
        assert!(job.cluster.told_to("n1").iter().all(|told| told.since_ns.is_none()));
        assert_eq!(job.cluster.told_to("n9"), []);
    }

    #[test]
    fn a_node_that_is_slow_from_its_first_second_is_found() {
        let mut job = Job::new(8);
        (0..4).for_each(|_| job.second(|rank| if rank == 5 { 4 * MS } else { 0 }, |_| true));
        assert_eq!(job.late(), [("n5".to_owned(), 5)]);
    }

    #[test]
    fn who_is_on_time_again_is_late_no_more_and_both_are_on_record() {
        let mut job = Job::new(3);
        for second in 0..20 {
            job.second(|rank| if rank == 0 && (3..8).contains(&second) { 9 * MS } else { 0 }, |_| true);
        }
        assert_eq!(job.late(), []);
        let kinds: Vec<&EventKind> =
            job.cluster.events().filter(|event| event.node == "n0").map(|event| &event.kind).collect();
        assert!(
            matches!(
                kinds[..],
                [EventKind::NodeCame, EventKind::RankBecameLate { rank: 0, .. }, EventKind::RankIsLateNoMore { .. }]
            ),
            "{kinds:?}"
        );
    }

    #[test]
    fn pushes_that_come_late_twice_or_never_change_nothing() {
        let (mut job, mut lossy) = (Job::new(4), Job::new(4));
        for second in 0..12_u32 {
            let late = |rank| if rank == 3 { 6 * MS } else { 0 };
            job.second(late, |_| true);
            // Each node's push is lost now and then; the next one contains it.
            lossy.second(late, |rank| (second + rank) % 3 != 0);
            let again = lossy.digest(1);
            lossy.cluster.take("n1", vec![again.clone(), again], lossy.now_ns());
        }
        assert_eq!((job.late(), lossy.late()), (vec![("n3".to_owned(), 3)], vec![("n3".to_owned(), 3)]));
    }

    #[test]
    fn who_tells_nothing_any_more_is_gone_and_no_straggler() {
        let mut job = Job::new(3);
        (0..5).for_each(|_| job.second(|rank| if rank == 1 { 9 * MS } else { 0 }, |_| true));
        (0..8).for_each(|_| job.second(|_| 0, |rank| rank != 1));
        assert_eq!(job.late(), []);
        let nodes = job.cluster.nodes();
        assert_eq!(nodes.iter().map(|node| node.is_gone).collect::<Vec<_>>(), [false, true, false]);
        job.second(|_| 0, |_| true);
        assert!(job.cluster.events().any(|event| event.node == "n1" && event.kind == EventKind::NodeCameBack));
    }

    #[test]
    fn half_of_the_ranks_have_to_be_heard() {
        let mut job = Job::new(8);
        (0..6).for_each(|_| job.second(|rank| if rank == 1 { 9 * MS } else { 0 }, |rank| rank < 3));
        assert_eq!(job.late(), []);
        (0..6).for_each(|_| job.second(|rank| if rank == 1 { 9 * MS } else { 0 }, |rank| rank < 4));
        assert_eq!(job.late(), [("n1".to_owned(), 1)]);
    }

    #[test]
    fn a_node_cannot_speak_for_the_rank_of_another_one() {
        let mut job = Job::new(2);
        (0..4).for_each(|_| job.second(|_| 0, |_| true));
        let forged = Digest {
            parts: vec![Part { waited_ns: u64::MAX / 2, operations: 1 << 40, ..job.digest(0).parts[0] }],
            ..job.digest(0)
        };
        job.cluster.take("evil", vec![forged], job.now_ns());
        assert_eq!(job.cluster.refused(), 1);
        (0..4).for_each(|_| job.second(|_| 0, |_| true));
        assert_eq!(job.late(), []);
        let nonsense = Part { rank: 9, ranks: 2, ..job.digest(0).parts[0] };
        job.cluster.take("n0", vec![Digest { parts: vec![nonsense], ..job.digest(0) }], job.now_ns());
        assert_eq!(job.cluster.refused(), 2);
    }
}
