//! Everybody who tells digests, and what follows from them.

use std::collections::{BTreeMap, VecDeque};

use gpuwhy_model::{Severity, UnixNs};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::account::{Account, Point};
use crate::cohort::compare;
use crate::common::{self, Common};
use crate::digest::{Digest, Part, Worker};
use crate::news::{Before, Late, News, Told as KeptWorker};
use crate::pace::{self, Pace};
use crate::span::{Sums, window_of};
use crate::standing::{Change, Standing};

/// A node that has told nothing for so long is gone. Its ranks are compared with nobody any more.
const GONE_NS: u64 = 5_000_000_000;
/// After so long it is forgotten.
const FORGOTTEN_NS: u64 = 600_000_000_000;
/// So old a finding says nothing about now.
const STALE_NS: u64 = 120_000_000_000;

/// How often workers that wait for nobody are compared.
const PACED_NS: u64 = 1_000_000_000;
/// A rank that was late before whoever gathers began anew, and is not found late again within this time, is late no more.
const STILL_LATE_NS: u64 = 15_000_000_000;

const MANY_RANKS: usize = 256;
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
    /// What is to be kept, since it was last asked for.
    news: News,
    /// Who was late before a restart, and since when.
    late_before: HashMap<Late, u64>,
    resumed_ns: u64,
    paced_ns: u64,
}

/// How a message came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    pub now_ns: u64,
    /// When it was sent, by the clock of its node, where it says so.
    pub sent_ns: Option<u64>,
    /// Whether it is among what is kept: then it counts in sums.
    pub is_kept: bool,
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
    /// Of the worker, for good.
    id: u64,
    seen_ns: u64,
    findings: VecDeque<Why>,
    pace: Pace,
}

/// The ranks of a communicator, by their number.
#[derive(Default)]
struct Group {
    ranks: u32,
    seats: BTreeMap<u32, Seat>,
    /// Accounts that have grown since they were last compared.
    news: usize,
    judged_ns: u64,
}

struct Seat {
    node: String,
    pid: u32,
    account: Account,
    standing: Standing,
    seen_ns: u64,
}

/// A finding of a node about one of its workers: why it is late.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Event {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub node: String,
    #[serde(flatten)]
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    NodeCame,
    NodeGone,
    NodeCameBack,
    RankBecameLate {
        pid: u32,
        communicator: String,
        rank: u32,
        share: f64,
        at_a_time_ns: u64,
    },
    RankIsLateNoMore {
        pid: u32,
        communicator: String,
        rank: u32,
        since_ns: u64,
    },
    /// Its steps take so many times as long as those of the same program in the same job.
    WorkerBecameSlow {
        pid: u32,
        times: f64,
    },
    WorkerIsSlowNoMore {
        pid: u32,
        since_ns: u64,
    },
    Found {
        pid: u32,
        why: Why,
    },
}

impl EventKind {
    /// As it is called in answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeCame => "node-came",
            Self::NodeGone => "node-gone",
            Self::NodeCameBack => "node-came-back",
            Self::RankBecameLate { .. } => "rank-became-late",
            Self::RankIsLateNoMore { .. } => "rank-is-late-no-more",
            Self::WorkerBecameSlow { .. } => "worker-became-slow",
            Self::WorkerIsSlowNoMore { .. } => "worker-is-slow-no-more",
            Self::Found { .. } => "found",
        }
    }

    /// Which worker it is about.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::NodeCame | Self::NodeGone | Self::NodeCameBack => None,
            Self::RankBecameLate { pid, .. }
            | Self::RankIsLateNoMore { pid, .. }
            | Self::WorkerBecameSlow { pid, .. }
            | Self::WorkerIsSlowNoMore { pid, .. }
            | Self::Found { pid, .. } => Some(*pid),
        }
    }
}

/// Who holds others up.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Straggler {
    pub node: String,
    pub pid: u32,
    pub comm: String,
    pub labels: BTreeMap<String, String>,
    /// In which it is late. None for a worker that waits for nobody, and is slow.
    pub communicator: Option<String>,
    pub rank: Option<u32>,
    pub ranks: Option<u32>,
    /// When it became late.
    #[schemars(with = "UnixNs")]
    pub since_ns: u64,
    /// The share of the time for which others wait for it; of a slow worker, the share of its own time that it loses.
    pub share: f64,
    /// How late it comes to each operation, on average.
    pub at_a_time_ns: Option<u64>,
    /// How many times as long as usual the steps of a slow worker take.
    pub times: Option<f64>,
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
    pub fn take(&mut self, node: &str, digests: Vec<Digest>, came: &Came) {
        if !self.nodes.contains_key(node) && self.nodes.len() >= MOST_NODES {
            self.refused += digests.len() as u64;
            return;
        }
        self.see(node, came.now_ns);
        let by_its_clock_ns = came.sent_ns.or_else(|| digests.iter().map(|digest| digest.at_ns).max());
        if let (Some(node), Some(its_ns)) = (self.nodes.get_mut(node), by_its_clock_ns) {
            node.clock_ns = its_ns.cast_signed().saturating_sub(came.now_ns.cast_signed());
        }
        for digest in digests {
            let rank = |part: &Part| Named { node, pid: digest.worker.pid, part: *part };
            let parts: Vec<Named<'_>> = digest.parts.iter().take(MOST_PARTS).map(rank).collect();
            parts.into_iter().for_each(|named| self.take_part(&named, came.now_ns));
            self.know(node, digest, came);
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

    fn know(&mut self, name: &str, digest: Digest, came: &Came) {
        let held_up = if came.is_kept { self.gpus_held_up(name, &digest) } else { 0.0 };
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.lost = node.lost.max(digest.lost);
        let before = node.workers.get(&digest.worker.pid);
        if before.is_none() && node.workers.len() >= MOST_WORKERS {
            self.refused += 1;
            return;
        }
        // What was told before says nothing new, whoever had the number then.
        if before.is_some_and(|known| known.last.at_ns >= digest.at_ns) {
            return;
        }
        let same = before.filter(|known| known.last.worker == digest.worker);
        let id = same.map_or_else(|| digest.worker.id(name), |known| known.id);
        if came.is_kept {
            let at_ns = digest.at_ns.saturating_add_signed(node.clock_ns.saturating_neg());
            let sums = Sums::of(&digest, same.map(|known| &known.last), held_up);
            // A second belongs to where most of it lies.
            self.news.add(window_of(at_ns.saturating_sub(sums.0[0] / 2)), id, &sums);
            if same.is_none() {
                let (node, worker) = (name.to_owned(), digest.worker.clone());
                self.news.workers.push(KeptWorker { id, node, worker, first_ns: came.now_ns });
            }
        }
        let entry = node.workers.entry(digest.worker.pid);
        let known = entry.or_insert_with(|| Known::new(id));
        if known.id != id {
            *known = Known::new(id);
        }
        if digest.steps > 0 && pace::team(&digest).is_some() {
            known.pace.take(&digest);
        }
        (known.last, known.seen_ns) = (digest, came.now_ns);
    }

    /// How many GPUs are idle for a worker that is late, as it was last compared.
    fn gpus_held_up(&self, node: &str, digest: &Digest) -> f64 {
        let of_part = |part: &Part| {
            let seat = self.groups.get(&part.communicator)?.seats.get(&part.rank)?;
            let is_so = seat.is_of(node, digest.worker.pid) && seat.standing.is_late();
            is_so.then(|| seat.standing.share * f64::from(part.ranks.saturating_sub(1)))
        };
        digest.parts.iter().take(MOST_PARTS).filter_map(of_part).fold(0.0, f64::max)
    }

    fn take_part(&mut self, named: &Named<'_>, now_ns: u64) {
        let Part { communicator, rank, ranks, operations, waited_ns, done_ns } = named.part;
        if rank >= ranks {
            self.refused += 1;
            return;
        }
        let group = self.groups.entry(communicator).or_default();
        group.ranks = ranks;
        let seat = group.seats.entry(rank).or_insert_with(|| Seat::new(named));
        if !seat.is_of(named.node, named.pid) {
            // Nobody speaks for another node's rank while that one speaks itself.
            if now_ns.saturating_sub(seat.seen_ns) < GONE_NS {
                self.refused += 1;
                return;
            }
            *seat = Seat::new(named);
        }
        seat.seen_ns = now_ns;
        group.news += usize::from(seat.account.take(Point { operations, waited_ns, at_ns: done_ns }));
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
            if group.is_due(now_ns) {
                (group.news, group.judged_ns) = (0, now_ns);
                events.extend(group.judge(communicator, now_ns, &mut self.late_before));
            }
        }
        self.groups.retain(|_, group| !group.seats.is_empty());
        if now_ns.saturating_sub(self.paced_ns) >= PACED_NS {
            self.paced_ns = now_ns;
            events.extend(self.pace(now_ns));
            events.extend(self.late_no_more(now_ns));
        }
        events.into_iter().for_each(|event| self.tell(event));
    }

    /// Compares workers that wait for nobody.
    fn pace(&mut self, now_ns: u64) -> Vec<Event> {
        let workers = self.nodes.iter_mut().flat_map(|(name, node)| {
            let here = node.workers.iter_mut().filter(|(_, known)| now_ns.saturating_sub(known.seen_ns) <= GONE_NS);
            here.filter_map(|(&pid, known)| Some((pace::team(&known.last)?, (name.as_str(), pid), &mut known.pace)))
        });
        let changes =
            pace::compare(workers, now_ns).into_iter().map(|((node, pid), change)| (node.to_owned(), pid, change));
        let changes: Vec<_> = changes.collect();
        let event = |(node, pid, change): (String, u32, pace::Change)| {
            let known = self.nodes.get(&node).and_then(|known| known.workers.get(&pid));
            let times = known.map_or(0.0, |known| known.pace.times);
            let kind = match change {
                // It was so before whoever gathers began anew.
                pace::Change::BecameSlow if self.late_before.remove(&Late::slow(&node, pid)).is_some() => return None,
                pace::Change::BecameSlow => EventKind::WorkerBecameSlow { pid, times },
                pace::Change::IsSlowNoMore { since_ns } => EventKind::WorkerIsSlowNoMore { pid, since_ns },
            };
            Some(Event { at_ns: now_ns, node, kind })
        };
        changes.into_iter().filter_map(event).collect()
    }

    /// Those who were late before a restart and have not been since.
    fn late_no_more(&mut self, now_ns: u64) -> Vec<Event> {
        if now_ns.saturating_sub(self.resumed_ns) < STILL_LATE_NS {
            return Vec::new();
        }
        let over = std::mem::take(&mut self.late_before).into_iter();
        let events = over.map(|(late, since_ns)| {
            let Late { node, pid, seat } = late;
            let kind = match seat {
                Some((communicator, rank)) => {
                    EventKind::RankIsLateNoMore { pid, communicator: name(communicator), rank, since_ns }
                }
                None => EventKind::WorkerIsSlowNoMore { pid, since_ns },
            };
            Event { at_ns: now_ns, node, kind }
        });
        events.collect()
    }

    /// Time has passed in which nobody could tell anything: nobody is gone for that.
    pub fn wake(&mut self, now_ns: u64) {
        for node in self.nodes.values_mut().filter(|node| !node.is_gone) {
            node.seen_ns = now_ns;
            node.workers.values_mut().for_each(|known| known.seen_ns = now_ns);
        }
        self.resumed_ns = now_ns;
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        self.news.tell(&event);
        self.events.push_back(event);
    }

    /// What is to be kept, since it was last asked for.
    pub fn take_news(&mut self) -> News {
        let mut news = std::mem::take(&mut self.news);
        let workers = self.nodes.values().flat_map(|node| node.workers.values());
        news.told.extend(workers.map(|known| (known.id, known.last.at_ns)));
        news
    }

    /// What could not be kept. It is among the next news.
    pub fn put_back(&mut self, news: News) {
        self.news.put_back(news);
    }

    /// How much waits to be kept.
    pub fn waiting(&self) -> usize {
        self.news.sums.len()
    }

    /// Goes on where it was before a restart.
    pub fn resume(&mut self, before: Before, now_ns: u64) {
        for (told, at_ns) in before.workers {
            let KeptWorker { id, node, worker, first_ns } = told;
            let node = self.nodes.entry(node).or_insert_with(|| Node { first_ns, seen_ns: now_ns, ..Node::default() });
            node.first_ns = node.first_ns.min(first_ns);
            let known =
                Known { last: Digest { at_ns, worker, ..Digest::default() }, seen_ns: now_ns, ..Known::new(id) };
            // The number may have been another's before.
            if node.workers.get(&known.last.worker.pid).is_none_or(|other| other.last.at_ns < at_ns) {
                node.workers.insert(known.last.worker.pid, known);
            }
        }
        for (node, pid, why) in before.findings {
            let worker = self.nodes.get_mut(&node).and_then(|node| node.workers.get_mut(&pid));
            worker.into_iter().for_each(|known| known.findings.push_back(why.clone()));
        }
        (self.late_before, self.resumed_ns) = (before.late.into_iter().collect(), now_ns);
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
            for (&rank, seat) in group.seats.iter().filter(|(_, seat)| seat.is_here(now_ns)) {
                let Some(since_ns) = seat.standing.since_ns else { continue };
                let Standing { share, at_a_time_ns, .. } = seat.standing;
                let straggler = Straggler {
                    communicator: Some(name(communicator)),
                    rank: Some(rank),
                    ranks: Some(group.ranks),
                    share,
                    at_a_time_ns: Some(at_a_time_ns),
                    gpus_idle: share * f64::from(group.ranks.saturating_sub(1)),
                    ..self.straggler(&seat.node, seat.pid, since_ns, now_ns)
                };
                let told = worst.entry((&seat.node, seat.pid));
                let told = told.or_insert_with(|| straggler.clone());
                if straggler.gpus_idle > told.gpus_idle {
                    *told = straggler;
                }
            }
        }
        let mut all: Vec<Straggler> = worst.into_values().chain(self.slow(now_ns)).collect();
        all.sort_by(|one, other| other.gpus_idle.total_cmp(&one.gpus_idle));
        all
    }

    /// Workers that wait for nobody and take longer than others.
    fn slow(&self, now_ns: u64) -> impl Iterator<Item = Straggler> {
        let workers = self.nodes.iter().flat_map(|(name, node)| node.workers.iter().map(move |one| (name, one)));
        workers.filter_map(move |(node, (&pid, known))| {
            let since_ns = known.pace.since_ns.filter(|_| now_ns.saturating_sub(known.seen_ns) <= GONE_NS)?;
            let (times, share) = (known.pace.times, 1.0 - 1.0 / known.pace.times.max(1.0));
            Some(Straggler {
                share,
                times: Some(times),
                gpus_idle: share,
                ..self.straggler(node, pid, since_ns, now_ns)
            })
        })
    }

    fn straggler(&self, node: &str, pid: u32, since_ns: u64, now_ns: u64) -> Straggler {
        let known = self.nodes.get(node).and_then(|node| node.workers.get(&pid));
        let Worker { comm, labels, .. } = known.map(|known| known.last.worker.clone()).unwrap_or_default();
        let why = known.and_then(|known| known.why(now_ns));
        let (communicator, rank, ranks, at_a_time_ns, times) = Default::default();
        let (node, share, gpus_idle) = (node.to_owned(), 0.0, 0.0);
        Straggler {
            node,
            pid,
            comm,
            labels,
            communicator,
            rank,
            ranks,
            since_ns,
            share,
            at_a_time_ns,
            times,
            gpus_idle,
            why,
        }
    }

    /// What stragglers have in common that the others have not.
    pub fn common_of(&self, stragglers: &[Straggler]) -> Option<Common> {
        let all = self.nodes.values().flat_map(|node| node.workers.values().map(|known| &known.last.worker.labels));
        common::of(stragglers, all)
    }

    /// How many nodes tell digests, and how many did until a short while ago.
    pub fn count_nodes(&self) -> (usize, usize) {
        let gone = self.nodes.values().filter(|node| node.is_gone).count();
        (self.nodes.len() - gone, gone)
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

    /// Each worker with its node, and how its ranks stand.
    pub fn ranks(&self, now_ns: u64) -> impl Iterator<Item = Ranked<'_>> {
        let workers = self.nodes.iter().flat_map(|(name, node)| node.workers.values().map(move |known| (name, known)));
        workers.map(move |(node, known)| {
            let pid = known.last.worker.pid;
            let seat_of = |part: &Part| {
                let seat = self.groups.get(&part.communicator)?.seats.get(&part.rank)?;
                seat.is_of(node, pid).then_some((*part, seat.standing))
            };
            let seats = known.last.parts.iter().take(MOST_PARTS).filter_map(seat_of).collect();
            let is_here = now_ns.saturating_sub(known.seen_ns) <= GONE_NS;
            Ranked { node, digest: &known.last, seats, pace: &known.pace, is_here, why: known.why(now_ns) }
        })
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

/// A worker as it stands.
pub struct Ranked<'a> {
    pub node: &'a str,
    pub digest: &'a Digest,
    /// Of each communicator that it has a part in.
    pub seats: Vec<(Part, Standing)>,
    pub pace: &'a Pace,
    /// Whether it was heard a short while ago.
    pub is_here: bool,
    /// What its own node found.
    pub why: Option<Why>,
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

    fn is_of(&self, node: &str, pid: u32) -> bool {
        (self.node.as_str(), self.pid) == (node, pid)
    }

    fn is_here(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.seen_ns) <= GONE_NS
    }
}

impl Known {
    fn new(id: u64) -> Self {
        let (last, findings, pace) = Default::default();
        Self { last, id, seen_ns: 0, findings, pace }
    }

    /// The gravest of what was found lately, the newest of these.
    fn why(&self, now_ns: u64) -> Option<Why> {
        let fresh = self.findings.iter().filter(|why| now_ns.saturating_sub(why.at_ns) < STALE_NS);
        fresh.max_by_key(|why| (why.severity, why.at_ns)).cloned()
    }
}

impl Group {
    /// Many ranks are compared when half of them have something new, or after a while: each comparison looks at all of them.
    fn is_due(&self, now_ns: u64) -> bool {
        let is_enough = self.seats.len() < MANY_RANKS || self.news * 2 >= self.seats.len();
        self.news > 0 && (is_enough || now_ns.saturating_sub(self.judged_ns) >= PACED_NS / 2)
    }

    /// Ranks are compared where at least half of them are heard.
    fn judge(&mut self, communicator: u64, now_ns: u64, late_before: &mut HashMap<Late, u64>) -> Vec<Event> {
        let here = self.seats.iter().filter(|(_, seat)| seat.is_here(now_ns));
        let here: Vec<(u32, &Account)> = here.map(|(rank, seat)| (*rank, &seat.account)).collect();
        if here.len() * 2 < self.ranks as usize {
            return Vec::new();
        }
        let Some(comparison) = compare(&here) else { return Vec::new() };
        let mut events = Vec::new();
        for own in &comparison.ranks {
            let Some(seat) = self.seats.get_mut(&own.rank) else { continue };
            let since_ns = seat.standing.since_ns;
            let Some(change) = seat.standing.see(own, &comparison, now_ns) else { continue };
            let late = || Late { node: seat.node.clone(), pid: seat.pid, seat: Some((communicator, own.rank)) };
            if change == Change::BecameLate
                && !late_before.is_empty()
                && let Some(before_ns) = late_before.remove(&late())
            {
                // It was so before whoever gathers began anew.
                seat.standing.since_ns = Some(before_ns);
                continue;
            }
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
    use crate::span::SUMS;

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    fn came(now_ns: u64) -> Came {
        Came { now_ns, sent_ns: None, is_kept: true }
    }

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
            let worker = Worker { pid: 100 + rank, comm: "python".to_owned(), device: Some(0), gpu: None, labels };
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
                    self.cluster.take(&format!("n{rank}"), vec![digest], &came(now_ns));
                }
            }
            self.cluster.judge(self.now_ns());
        }

        fn late(&self) -> Vec<(String, u32)> {
            let stragglers = self.cluster.stragglers(self.now_ns());
            stragglers.into_iter().map(|one| (one.node, one.rank.unwrap())).collect()
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
        assert_eq!((one.node.as_str(), one.pid, one.rank, one.ranks), ("n2", 102, Some(2), Some(4)));
        assert_eq!(one.why.as_ref().map(|why| why.cause.as_str()), Some("cpu-preempted"));
        assert!(
            one.since_ns > began_ns
                && (one.share - 0.3).abs() < 0.03
                && one.at_a_time_ns.unwrap().abs_diff(12 * MS) < MS,
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
            let now_ns = lossy.now_ns();
            lossy.cluster.take("n1", vec![again.clone(), again], &came(now_ns));
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
        job.cluster.take("evil", vec![forged], &came(job.now_ns()));
        assert_eq!(job.cluster.refused(), 1);
        (0..4).for_each(|_| job.second(|_| 0, |_| true));
        assert_eq!(job.late(), []);
        let nonsense = Part { rank: 9, ranks: 2, ..job.digest(0).parts[0] };
        let digest = Digest { parts: vec![nonsense], ..job.digest(0) };
        job.cluster.take("n0", vec![digest], &came(job.now_ns()));
        assert_eq!(job.cluster.refused(), 2);
    }

    /// What was told, in seconds, by window.
    fn told_s(news: &News) -> BTreeMap<u64, u64> {
        let mut told = BTreeMap::new();
        news.sums.iter().for_each(|((window_ns, _), sums)| *told.entry(*window_ns).or_default() += sums.0[0] / S);
        told
    }

    #[test]
    fn each_second_counts_once_in_the_window_that_it_lies_in_whatever_the_clock_of_its_node_says() {
        let mut job = Job::new(2);
        for _ in 0..30 {
            job.second(|_| 0, |_| true);
            let (again, now_ns) = (job.digest(1), job.now_ns());
            job.cluster.take("n1", vec![again], &came(now_ns));
        }
        let (news, began_ns) = (job.cluster.take_news(), 1_000_000 * S);
        assert_eq!(told_s(&news), (0..3).map(|at| (began_ns + at * 10 * S, 20)).collect());
        assert_eq!((news.workers.len(), news.events.len(), news.told.len()), (2, 2, 2));
        assert!(job.cluster.take_news().is_empty());
        // Seconds that were told long after they were over belong to where they lie.
        let late = (1..=20).map(|back| Digest { at_ns: job.now_ns() + 7 * S - (20 - back) * S, ..job.digest(0) });
        let sent_ns = Some(job.now_ns() + 7 * S);
        let mut other = Cluster::default();
        other.take("n0", late.collect(), &Came { sent_ns, ..came(job.now_ns()) });
        assert_eq!(told_s(&other.take_news()), [(began_ns + 10 * S, 10), (began_ns + 20 * S, 10)].into());
    }

    #[test]
    fn what_could_not_be_kept_is_among_the_next_news_and_what_is_not_to_be_kept_is_not() {
        let mut job = Job::new(2);
        (0..5).for_each(|_| job.second(|_| 0, |_| true));
        let news = job.cluster.take_news();
        job.cluster.put_back(news);
        (0..5).for_each(|_| job.second(|_| 0, |_| true));
        let news = job.cluster.take_news();
        assert_eq!((told_s(&news).values().sum::<u64>(), news.workers.len(), news.events.len()), (20, 2, 2));
        assert_eq!(news.told.len(), 2, "each worker once, however often it could not be kept");
        let mut other = Cluster::default();
        other.take("n0", vec![job.digest(0)], &Came { is_kept: false, ..came(job.now_ns()) });
        assert!(other.take_news().sums.is_empty());
    }

    #[test]
    fn time_of_gpus_that_wait_is_held_up_by_who_is_late() {
        let mut job = Job::new(4);
        (0..21).for_each(|_| job.second(|rank| if rank == 2 { 12 * MS } else { 0 }, |_| true));
        let news = job.cluster.take_news();
        let held_up = |rank: u32| {
            let id = news.workers.iter().find(|told| told.worker.pid == 100 + rank).unwrap().id;
            let of_it = news.sums.iter().filter(|((_, worker), _)| *worker == id);
            of_it.map(|(_, sums)| sums.0[SUMS.len() - 1]).sum::<u64>() / S
        };
        // Three others wait for three tenths of some eighteen seconds.
        assert!((14..=19).contains(&held_up(2)) && held_up(1) == 0, "{}", held_up(2));
    }

    /// A cluster that goes on with what is known of another one.
    fn restarted(job: &mut Job) {
        let news = job.cluster.take_news();
        let told = news.told;
        let workers = news.workers.into_iter().map(|one| (one.clone(), told[&one.id]));
        let late = job.cluster.stragglers(job.now_ns()).into_iter().map(|one| {
            let seat = one.rank.map(|rank| (7, rank));
            (Late { node: one.node, pid: one.pid, seat }, one.since_ns)
        });
        let before = Before { workers: workers.collect(), late: late.collect(), findings: Vec::new() };
        job.cluster = Cluster::default();
        job.cluster.resume(before, job.now_ns());
    }

    #[test]
    fn after_a_restart_who_was_late_is_so_since_then_and_nothing_counts_again() {
        let mut job = Job::new(3);
        let late = |rank| if rank == 1 { 9 * MS } else { 0 };
        (0..10).for_each(|_| job.second(late, |_| true));
        let since_ns = job.cluster.stragglers(job.now_ns())[0].since_ns;
        let again = job.digest(1);
        restarted(&mut job);
        let now_ns = job.now_ns();
        job.cluster.take("n1", vec![again], &came(now_ns));
        assert!(job.cluster.take_news().sums.is_empty());
        (0..5).for_each(|_| job.second(late, |_| true));
        assert_eq!(job.cluster.stragglers(job.now_ns())[0].since_ns, since_ns);
        assert_eq!(job.cluster.events().count(), 0, "nothing happened");
    }

    #[test]
    fn who_was_late_before_a_restart_and_is_no_more_is_on_record() {
        let mut job = Job::new(3);
        (0..10).for_each(|_| job.second(|rank| if rank == 1 { 9 * MS } else { 0 }, |_| true));
        restarted(&mut job);
        (0..20).for_each(|_| job.second(|_| 0, |_| true));
        let events: Vec<&EventKind> = job.cluster.events().map(|event| &event.kind).collect();
        assert!(matches!(events[..], [EventKind::RankIsLateNoMore { rank: 1, .. }]), "{events:?}");
    }

    #[test]
    fn a_worker_that_waits_for_nobody_is_compared_by_its_steps() {
        let mut cluster = Cluster::default();
        for second in 1..30 {
            for node in 0..4_u32 {
                let step_ns = if node == 2 { 60 * MS } else { 40 * MS };
                let labels = [("job".to_owned(), "serve".to_owned())].into();
                let worker = Worker { pid: 9, comm: "python".to_owned(), labels, ..Worker::default() };
                let steps = (S / step_ns) as u32;
                let digest = Digest { at_ns: second * S, worker, steps, step_ns: Some(step_ns), ..Digest::default() };
                cluster.take(&format!("n{node}"), vec![digest], &came(second * S));
            }
            cluster.judge(second * S);
        }
        let all = cluster.stragglers(29 * S);
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!((one.node.as_str(), one.rank), ("n2", None));
        assert!((one.times.unwrap() - 1.5).abs() < 0.01 && (one.gpus_idle - 1.0 / 3.0).abs() < 0.01, "{one:?}");
        assert!(cluster.events().any(|event| matches!(event.kind, EventKind::WorkerBecameSlow { pid: 9, .. })));
    }
}
