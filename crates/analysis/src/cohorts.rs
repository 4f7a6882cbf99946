//! Ranks that work together: who asks for collective operations later than most, and by how much.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{HAD_TO_WAIT_NS, OpId, RecordKind, Reference, Span, ThreadId};
use gpuwhy_window::{Collective, Window};

/// Ranks that are no further apart come together: no two hosts are equally fast.
const TOGETHER_NS: u64 = 2_000_000;

/// A rank asks for no more operations before it waits for one of them.
const MOST_PENDING: usize = 256;

/// So many of the operations to which a rank came latest are cited.
const CITED: usize = 3;

/// The ranks of a communicator.
pub(crate) struct Cohort {
    pub communicator_id: i64,
    pub ranks: Vec<Rank>,
    /// Operations that all of them were seen to ask for.
    pub operations: u64,
}

/// A rank in the operations of its communicator.
pub(crate) struct Rank {
    pub number: u32,
    /// Which thread asked, the last time.
    pub thread: ThreadId,
    pub op: OpId,
    /// By how much it was later than half of the ranks, in all operations together. Not what it was later already when it
    /// came out of the operation before.
    pub late_ns: u64,
    /// From when half of the ranks had asked, or it could have, to when it did. What it is late to at once is one.
    pub late: Vec<Span>,
    /// To how many operations it was late.
    pub late_operations: u64,
    /// To what one wait covers, a rank is late once.
    waits: BTreeSet<u64>,
}

impl Rank {
    fn new(one: &Collective) -> Self {
        let (number, thread, op) = (one.rank, one.thread, one.op);
        Self { number, thread, op, late_ns: 0, late: Vec::new(), late_operations: 0, waits: BTreeSet::new() }
    }

    /// The operations to which it came latest.
    pub fn cited(&self) -> Vec<Reference> {
        let mut latest: Vec<&Span> = self.late.iter().collect();
        latest.sort_by_key(|late| std::cmp::Reverse(late.ns()));
        latest.iter().take(CITED).map(|late| RecordKind::Cuda.at(late.to_ns)).collect()
    }

    /// How late it was at a time, on average.
    pub fn at_a_time_ns(&self) -> u64 {
        self.late_ns / self.late.len().max(1) as u64
    }

    /// How often it was late.
    pub fn times_late(&self) -> usize {
        self.waits.len()
    }

    fn came_late(&mut self, one: &Collective, late: Span) {
        self.late_operations += 1;
        self.waits.insert(one.done_ns.unwrap_or(one.start_ns));
        let known_ns = self.late.last().map_or(0, |last| last.to_ns);
        self.late_ns = self.late_ns.saturating_add(late.to_ns.saturating_sub(late.from_ns.max(known_ns)));
        match self.late.last_mut().filter(|last| late.from_ns < last.to_ns) {
            Some(last) => last.to_ns = last.to_ns.max(late.to_ns),
            None => self.late.push(late),
        }
    }
}

impl Cohort {
    /// The rank that was late for the longest time.
    pub fn latest(&self) -> Option<&Rank> {
        self.ranks.iter().max_by_key(|rank| rank.late_ns)
    }

    /// How late ranks usually are: half of the others were no later.
    pub fn usual_ns(&self, rank: &Rank) -> Option<u64> {
        let others = self.ranks.iter().filter(|other| other.number != rank.number);
        let mut others: Vec<u64> = others.map(|other| other.late_ns).collect();
        others.sort_unstable();
        others.get(others.len().saturating_sub(1) / 2).copied()
    }
}

/// By how much the times of two ranks may be off each other. `None` where nobody knows.
fn clock_error_ns(window: &Window, one: &Collective, other: &Collective) -> Option<u64> {
    let process = |rank: &Collective| window.process_id(rank.thread);
    let (one, other) = (process(one)?, process(other)?);
    if window.host_of(one) == window.host_of(other) {
        return Some(0);
    }
    let error_ns = |process| window.host(process).and_then(|host| host.clock_error_ns);
    Some(error_ns(one)?.saturating_add(error_ns(other)?))
}

/// Operations that all ranks of their communicator were seen to ask for, each rank once, in the order in which they came.
pub(crate) fn whole_operations(window: &Window) -> Vec<Vec<&Collective>> {
    let mut operations: BTreeMap<(i64, u64), Vec<&Collective>> = BTreeMap::new();
    for one in &window.collectives.rows {
        operations.entry((one.communicator, one.sequence)).or_default().push(one);
    }
    operations.into_values().filter_map(whole).filter(|asked| is_possible(window, asked)).collect()
}

fn whole(mut asked: Vec<&Collective>) -> Option<Vec<&Collective>> {
    asked.sort_by_key(|one| one.start_ns);
    // Two tracers may have seen the same rank.
    let mut seen = BTreeSet::new();
    asked.retain(|one| seen.insert(one.rank));
    let is_whole = asked.len() > 1 && asked.iter().all(|one| asked.len() as u64 == u64::from(one.ranks));
    is_whole.then_some(asked)
}

/// Nobody is done before the last one has asked. Where that is not so, a launch of a graph was not seen, and those that were
/// do not belong together.
fn is_possible(window: &Window, asked: &[&Collective]) -> bool {
    let Some(last) = asked.last() else { return false };
    let is_early = |one: &&Collective| {
        let error_ns = clock_error_ns(window, one, last).unwrap_or(u64::MAX);
        one.done_ns.is_some_and(|done_ns| done_ns.saturating_add(error_ns) < last.start_ns)
    };
    last.has_root || !asked.iter().any(is_early)
}

/// By how much later `one` came out of the operation before than `usual` did. Nobody comes out before the last one has
/// asked: what is between them then is their GPUs' matter, which may take turns, and not what the host of `one` did.
fn came_out_apart_ns(before: &[Vec<&Collective>], usual: &Collective, one: &Collective) -> u64 {
    let own = before.iter().rev().take_while(|asked| asked[0].communicator == one.communicator);
    let out = |asked: &[&Collective], now: &Collective| {
        let then = asked.iter().find(|then| then.rank == now.rank)?;
        Some((then.done_ns.filter(|&done_ns| done_ns <= now.start_ns)?, then.wait_ns >= HAD_TO_WAIT_NS))
    };
    let last = own.take(MOST_PENDING).find_map(|asked| Some((out(asked, usual)?, out(asked, one)?)));
    match last {
        // Who did not have to wait came when it liked.
        Some(((usual_ns, _), (out_ns, true))) => out_ns.saturating_sub(usual_ns),
        _ => 0,
    }
}

/// Of operations of which not all ranks were seen, nobody knows who came late. Nor is it known of ranks whose clocks differ by
/// more than they are apart.
pub(crate) fn cohorts(window: &Window) -> Vec<Cohort> {
    let mut cohorts: BTreeMap<i64, BTreeMap<u32, Rank>> = BTreeMap::new();
    let mut counts: BTreeMap<i64, (i64, u64)> = BTreeMap::new();
    let operations = whole_operations(window);
    for (at, asked) in operations.iter().enumerate() {
        // When it comes, half of them are there.
        let half = (asked.len() - 1) / 2;
        let usual = asked[half];
        counts.entry(usual.communicator).or_insert((usual.communicator_id, 0)).1 += 1;
        let ranks = cohorts.entry(usual.communicator).or_default();
        for one in asked {
            let rank = ranks.entry(one.rank).or_insert_with(|| Rank::new(one));
            (rank.thread, rank.op) = (one.thread, one.op);
        }
        for one in &asked[half + 1..] {
            let apart_ns = came_out_apart_ns(&operations[..at], usual, one);
            let from_ns = usual.start_ns.saturating_add(apart_ns).min(one.start_ns);
            let late = Span { from_ns, to_ns: one.start_ns };
            let is_sure =
                clock_error_ns(window, usual, one).is_some_and(|error_ns| late.ns() > error_ns.max(TOGETHER_NS));
            let is_usual = window.unusual.is_some_and(|unusual| !unusual.has(late));
            if let Some(rank) = ranks.get_mut(&one.rank).filter(|_| is_sure && !is_usual) {
                rank.came_late(one, late);
            }
        }
    }
    // Both have the same communicators.
    let cohort = |(ranks, (communicator_id, operations)): (BTreeMap<u32, Rank>, (i64, u64))| Cohort {
        communicator_id,
        ranks: ranks.into_values().collect(),
        operations,
    };
    cohorts.into_values().zip(counts.into_values()).map(cohort).collect()
}
