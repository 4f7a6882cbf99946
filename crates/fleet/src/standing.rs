//! Since when a rank is late. One comparison proves nothing: ranks are late in turn where they share CPUs.

use crate::cohort::{Comparison, Lateness};

/// To be late for less of the time harms nobody.
const LEAST_SHARE: f64 = 0.03;
/// Among few ranks: so many times as late as others are now and then.
const TIMES_OTHERS: f64 = 3.0;
/// So many comparisons in a row, each with new operations, make a rank late.
const IN_A_ROW: u32 = 2;
/// Who was less late than half of what it takes for so long is late no more.
const QUIET_NS: u64 = 5_000_000_000;
/// How much of what others were before counts after one more comparison.
const MEMORY: f64 = 0.9;

/// How a rank stands among the others of its communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// As a share of the time, when it was last compared.
    pub share: f64,
    /// By how much at a time, on average.
    pub at_a_time_ns: u64,
    /// What it takes to be late.
    pub threshold: f64,
    /// When it became late, by the clock of whoever compares.
    pub since_ns: Option<u64>,
    compared_to: u64,
    in_a_row: u32,
    first_over_ns: u64,
    last_over_ns: u64,
    others: f64,
}

/// What has become of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    BecameLate,
    IsLateNoMore,
}

impl Standing {
    pub fn is_late(&self) -> bool {
        self.since_ns.is_some()
    }

    /// Looks at one more comparison.
    pub fn see(&mut self, own: &Lateness, all: &Comparison, now_ns: u64) -> Option<Change> {
        if all.to_operations <= self.compared_to {
            return None;
        }
        self.compared_to = all.to_operations;
        self.others = (self.others * MEMORY).max(all.worst_of_others(own.rank));
        // Of many ranks the middle tells what is usual; of few only what the others were before.
        let unusual = all.usual_share.unwrap_or(TIMES_OTHERS * self.others);
        self.threshold = unusual.max(LEAST_SHARE);
        self.share = own.share;
        self.at_a_time_ns = own.late_ns / all.operations().max(1);
        if own.share >= self.threshold {
            if self.in_a_row == 0 {
                self.first_over_ns = now_ns;
            }
            self.in_a_row += 1;
            self.last_over_ns = now_ns;
            if self.since_ns.is_none() && self.in_a_row >= IN_A_ROW {
                self.since_ns = Some(self.first_over_ns);
                return Some(Change::BecameLate);
            }
            return None;
        }
        self.in_a_row = 0;
        if own.share >= self.threshold / 2.0 {
            self.last_over_ns = now_ns;
        }
        if self.since_ns.is_some() && now_ns.saturating_sub(self.last_over_ns) >= QUIET_NS {
            self.since_ns = None;
            return Some(Change::IsLateNoMore);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn comparison(at: u64, shares: &[f64]) -> Comparison {
        let ranks = (0..).zip(shares);
        let ranks = ranks.map(|(rank, &share)| Lateness { rank, late_ns: (share * S as f64) as u64, share });
        Comparison::new(25 * at..25 * (at + 1), S, S / 2, ranks.collect())
    }

    /// What becomes of rank 1, second by second.
    fn changes(seconds: impl IntoIterator<Item = Vec<f64>>) -> Vec<(u64, Change)> {
        let mut standing = Standing::default();
        let each = (0..).zip(seconds).filter_map(|(at, shares)| {
            let all = comparison(at, &shares);
            let change = standing.see(&all.ranks[1], &all, at * S);
            assert_eq!(standing.see(&all.ranks[1], &all, at * S + S / 2), None, "nothing new");
            Some((at, change?))
        });
        each.collect()
    }

    #[test]
    fn a_rank_that_is_late_twice_in_a_row_is_late_until_it_has_been_on_time_for_a_while() {
        let late = |at: u64| vec![0.0, if (3..9).contains(&at) { 0.2 } else { 0.0 }, 0.0];
        assert_eq!(changes((0..20).map(late)), [(4, Change::BecameLate), (13, Change::IsLateNoMore)]);
    }

    #[test]
    fn ranks_that_are_late_in_turn_are_not_late() {
        let in_turn = |at: u64| (0..3).map(|rank| if at % 3 == rank { 0.15 } else { 0.0 }).collect();
        assert_eq!(changes((0..60).map(in_turn)), []);
        // Also where it is the same one twice by chance.
        let by_chance = |at: u64| (0..3).map(|rank| if (at / 2) % 3 == rank { 0.15 } else { 0.01 }).collect();
        assert_eq!(changes((4..60).map(by_chance)), []);
    }

    #[test]
    fn a_rank_that_flaps_stays_late() {
        let flaps = |at: u64| vec![0.0, if at % 3 < 2 { 0.2 } else { 0.0 }];
        assert_eq!(changes((0..30).map(flaps)), [(1, Change::BecameLate)]);
    }

    #[test]
    fn what_is_usual_among_many_is_not_late() {
        let mut standing = Standing::default();
        for at in 0..20 {
            let mut all = comparison(at, &[0.0, 0.2, 0.1, 0.2, 0.1, 0.0]);
            all.usual_share = Some(0.3);
            assert_eq!(standing.see(&all.ranks[1], &all, at * S), None);
        }
    }
}
