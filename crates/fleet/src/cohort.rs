//! Which rank of a communicator the others wait for, and by how much that is unusual.

use std::ops::Range;

use crate::account::Account;

/// Ranks are compared over so much time, or so many operations if these take longer.
const SPAN_NS: u64 = 1_500_000_000;
const LEAST_OPERATIONS: u64 = 2;

/// In fewer ranks, how far single ones lie apart says little about the rest.
const FEW: usize = 5;

/// What lies within so many deviations of the usual is usual. A deviation is this many times the median one.
const DEVIATIONS: f64 = 6.0;
const OF_MEDIAN: f64 = 1.4826;

/// A rank in a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lateness {
    pub rank: u32,
    /// How much later it came to all of these operations than half of the ranks did, all together.
    pub late_ns: u64,
    /// The same as a share of the time.
    pub share: f64,
}

/// The ranks of a communicator over the same operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub from_operations: u64,
    pub to_operations: u64,
    pub span_ns: u64,
    /// How long half of the ranks waited at least.
    pub usual_wait_ns: u64,
    /// In the order in which they were given.
    pub ranks: Vec<Lateness>,
    /// To be later than this share of the time is unusual among these ranks now. `None` where they are few.
    pub usual_share: Option<f64>,
    /// The two that were latest: the rank, and its share.
    latest: [(u32, f64); 2],
}

impl Comparison {
    pub fn operations(&self) -> u64 {
        self.to_operations - self.from_operations
    }

    /// How late others were at the most.
    pub fn worst_of_others(&self, rank: u32) -> f64 {
        let [(first, most), (_, next)] = self.latest;
        if first == rank { next } else { most }
    }

    pub(crate) fn new(operations: Range<u64>, span_ns: u64, usual_wait_ns: u64, ranks: Vec<Lateness>) -> Self {
        let mut latest = [(u32::MAX, 0.0); 2];
        for one in &ranks {
            if one.share > latest[0].1 {
                latest = [(one.rank, one.share), latest[0]];
            } else if one.share > latest[1].1 {
                latest[1] = (one.rank, one.share);
            }
        }
        let Range { start: from_operations, end: to_operations } = operations;
        Self { from_operations, to_operations, span_ns, usual_wait_ns, ranks, usual_share: None, latest }
    }
}

/// Compares ranks over the last operations that all of them are done with.
pub fn compare(ranks: &[(u32, &Account)]) -> Option<Comparison> {
    let (first, others) = ranks.split_first()?;
    if others.is_empty() {
        return None;
    }
    let (_, last) = ranks
        .iter()
        .filter_map(|(_, account)| Some((*account, account.last()?)))
        .min_by_key(|(_, last)| last.operations)?;
    let slowest = ranks.iter().min_by_key(|(_, account)| account.last().map(|last| last.operations)).unwrap_or(first).1;
    let to = last.operations;
    let earliest = ranks.iter().map(|(_, account)| Some(account.first()?.operations)).collect::<Option<Vec<_>>>()?;
    let earliest = earliest.into_iter().max()?;
    let in_time = slowest.operations_until(last.at_ns.saturating_sub(SPAN_NS)).unwrap_or(earliest);
    let from = in_time.min(to.saturating_sub(LEAST_OPERATIONS)).max(earliest);
    if to.saturating_sub(from) < LEAST_OPERATIONS {
        return None;
    }
    let span_ns = slowest.after(to)?.at_ns.saturating_sub(slowest.after(from)?.at_ns);
    let waited = |account: &Account| Some(account.after(to)?.waited_ns.saturating_sub(account.after(from)?.waited_ns));
    let waits: Vec<(u32, u64)> =
        ranks.iter().map(|(rank, account)| Some((*rank, waited(account)?))).collect::<Option<_>>()?;
    let usual_wait_ns = wait_of_half(waits.iter().map(|(_, ns)| *ns).collect());
    let lateness = |&(rank, ns): &(u32, u64)| {
        let late_ns = usual_wait_ns.saturating_sub(ns);
        Lateness { rank, late_ns, share: late_ns as f64 / span_ns.max(1) as f64 }
    };
    let ranks: Vec<Lateness> = waits.iter().map(lateness).collect();
    let usual_share = usual_ns(&waits, usual_wait_ns).map(|ns| ns / span_ns.max(1) as f64);
    Some(Comparison { usual_share, ..Comparison::new(from..to, span_ns, usual_wait_ns, ranks) })
}

/// Half of the ranks have waited so long or longer: they had asked by then.
fn wait_of_half(mut waits: Vec<u64>) -> u64 {
    waits.sort_unstable_by(|one, other| other.cmp(one));
    waits.get(waits.len().div_ceil(2).saturating_sub(1)).copied().unwrap_or(0)
}

/// How far ranks usually lie from the rest.
fn usual_ns(waits: &[(u32, u64)], middle: u64) -> Option<f64> {
    if waits.len() < FEW {
        return None;
    }
    let mut apart: Vec<u64> = waits.iter().map(|(_, ns)| ns.abs_diff(middle)).collect();
    apart.sort_unstable();
    Some(apart[apart.len() / 2] as f64 * OF_MEDIAN * DEVIATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Point;

    const MS: u64 = 1_000_000;

    /// Steps of 40 ms of which ranks wait 10 ms, told once a second. The clocks of hosts differ by hours.
    fn job(ranks: u32, late_ns: impl Fn(u32) -> u64) -> Vec<Account> {
        let worst = (0..ranks).map(&late_ns).max().unwrap();
        let account = |rank: u32| {
            let mut account = Account::default();
            for second in 0..4_u64 {
                // Each host has seconds of its own.
                let operations = 25 * second + u64::from(rank % 7);
                let waited_ns = operations * (10 * MS + worst - late_ns(rank));
                let at_ns = operations * 40 * MS + u64::from(rank) * 3_600_000 * MS;
                account.take(Point { operations, waited_ns, at_ns });
            }
            account
        };
        (0..ranks).map(account).collect()
    }

    fn compared(accounts: &[Account]) -> Comparison {
        let ranks: Vec<(u32, &Account)> = (0..).zip(accounts).collect();
        compare(&ranks).unwrap()
    }

    #[test]
    fn the_rank_that_the_others_wait_for_is_late_whatever_clocks_say() {
        for ranks in [2, 3, 4, 16] {
            let found = compared(&job(ranks, |rank| if rank == 1 { 5 * MS } else { 0 }));
            for one in &found.ranks {
                let expected = if one.rank == 1 { 0.125 } else { 0.0 };
                assert!((one.share - expected).abs() < 0.001, "{ranks}: {one:?}");
            }
            assert_eq!((found.usual_share.unwrap_or(0.0), found.worst_of_others(1)), (0.0, 0.0));
        }
    }

    #[test]
    fn ranks_that_differ_among_many_make_differences_usual() {
        let found = compared(&job(16, |rank| u64::from(rank) * MS / 4));
        assert!(found.ranks.iter().all(|one| Some(one.share) < found.usual_share), "{found:?}");
        assert!(
            compared(&job(16, |rank| if rank == 9 { 20 * MS } else { u64::from(rank) * MS / 4 })).ranks[9].share > 0.3
        );
    }

    #[test]
    fn who_has_told_too_little_is_compared_with_nobody() {
        let mut one = Account::default();
        assert_eq!(compare(&[(0, &one)]), None);
        one.take(Point { operations: 1, waited_ns: 0, at_ns: 0 });
        assert_eq!(compare(&[(0, &one), (1, &one)]), None);
        let late = &job(2, |_| 0)[0];
        assert_eq!(compare(&[(0, &one), (1, late)]), None, "they have no operations in common");
        assert_eq!(compare(&[(0, &Account::default()), (1, late)]), None);
    }

    #[test]
    fn operations_that_take_longer_than_the_span_are_compared_all_the_same() {
        let slow = |late_ns: u64| {
            let mut account = Account::default();
            for second in 0..50_u64 {
                let operations = second / 10;
                account.take(Point {
                    operations,
                    waited_ns: operations * (5_000 * MS - late_ns),
                    at_ns: second * 1_000 * MS,
                });
            }
            account
        };
        let (on_time, late) = (slow(0), slow(1_000 * MS));
        let found = compare(&[(0, &on_time), (1, &late)]).unwrap();
        assert_eq!((found.operations(), found.ranks[1].late_ns), (2, 2_000 * MS), "{found:?}");
    }
}
