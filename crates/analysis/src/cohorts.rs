//! Ranks that work together: who is the last to ask for a collective operation, and how long after the others.

use std::collections::BTreeMap;

use gpuwhy_model::{OpId, RecordKind, Reference, Span, ThreadId};
use gpuwhy_window::{Collective, Window};

/// So many of the operations to which a rank came latest are cited.
const CITED: usize = 3;

/// The ranks of a communicator.
pub(crate) struct Cohort {
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
    /// In how many operations it was the last.
    pub last: u64,
    /// How long after the one before it, in all of those together.
    pub late_ns: u64,
    /// From when the one before it asked to when it did.
    pub late: Vec<Span>,
}

impl Rank {
    /// The operations to which it came latest.
    pub fn cited(&self) -> Vec<Reference> {
        let mut latest: Vec<&Span> = self.late.iter().collect();
        latest.sort_by_key(|late| std::cmp::Reverse(late.ns()));
        latest.iter().take(CITED).map(|late| RecordKind::Cuda.at(late.to_ns)).collect()
    }

    fn came_last(&mut self, late: Span) {
        self.last += 1;
        self.late_ns = self.late_ns.saturating_add(late.ns());
        self.late.push(late);
    }
}

impl Cohort {
    /// The rank that was last for the longest time, and how long the others were on the average.
    pub fn latest(&self) -> Option<(&Rank, u64)> {
        let latest = self.ranks.iter().max_by_key(|rank| rank.late_ns)?;
        let all_ns = self.ranks.iter().fold(0u64, |sum, rank| sum.saturating_add(rank.late_ns));
        let others = (self.ranks.len() as u64).checked_sub(1).filter(|others| *others > 0)?;
        Some((latest, (all_ns - latest.late_ns) / others))
    }
}

/// Of operations of which not all ranks were seen, nobody knows who came last.
pub(crate) fn cohorts(window: &Window) -> Vec<Cohort> {
    let mut operations: BTreeMap<(i64, u64), Vec<&Collective>> = BTreeMap::new();
    for one in &window.collectives.rows {
        operations.entry((one.communicator, one.sequence)).or_default().push(one);
    }
    let mut cohorts: BTreeMap<i64, BTreeMap<u32, Rank>> = BTreeMap::new();
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for ((communicator, _), mut asked) in operations {
        asked.sort_by_key(|one| one.start_ns);
        let &[.., before, last] = asked.as_slice() else { continue };
        if asked.len() as u64 != u64::from(last.ranks) {
            continue;
        }
        *counts.entry(communicator).or_default() += 1;
        let ranks = cohorts.entry(communicator).or_default();
        for one in &asked {
            let new =
                || Rank { number: one.rank, thread: one.thread, op: one.op, last: 0, late_ns: 0, late: Vec::new() };
            let rank = ranks.entry(one.rank).or_insert_with(new);
            (rank.thread, rank.op) = (one.thread, one.op);
        }
        if let Some(rank) = ranks.get_mut(&last.rank) {
            rank.came_last(Span { from_ns: before.start_ns, to_ns: last.start_ns });
        }
    }
    let cohort = |(communicator, ranks): (i64, BTreeMap<u32, Rank>)| Cohort {
        ranks: ranks.into_values().collect(),
        operations: counts.get(&communicator).copied().unwrap_or(0),
    };
    cohorts.into_iter().map(cohort).collect()
}
