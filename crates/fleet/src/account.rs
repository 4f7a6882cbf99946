//! How long a rank has waited for the others, by the order of operations.
//!
//! Ranks leave an operation together and come to it apart: whoever comes last waits least. Two ranks are compared between
//! two operations, which have the same numbers for both, so that no clock has to agree with another one. Accounts only
//! grow: one that comes twice or late says nothing new, and one that gets lost is contained in the next.

use std::collections::VecDeque;

/// A minute and more.
const MOST_POINTS: usize = 80;

/// A rank's account after an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub operations: u64,
    pub waited_ns: u64,
    /// By the clock of its host.
    pub at_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Account(VecDeque<Point>);

impl Account {
    /// Whether it says something new.
    pub fn take(&mut self, point: Point) -> bool {
        let last = self.last().unwrap_or_default();
        // A program that was started anew counts from the beginning.
        if point.operations < last.operations && point.at_ns > last.at_ns {
            self.0.clear();
        } else if !self.0.is_empty() && (point.operations <= last.operations || point.waited_ns < last.waited_ns) {
            return false;
        }
        if self.0.len() == MOST_POINTS {
            self.0.pop_front();
        }
        self.0.push_back(point);
        true
    }

    pub fn first(&self) -> Option<Point> {
        self.0.front().copied()
    }

    pub fn last(&self) -> Option<Point> {
        self.0.back().copied()
    }

    /// As it was after so many operations, in equal parts between two that were told.
    pub fn after(&self, operations: u64) -> Option<Point> {
        let next = self.0.partition_point(|point| point.operations < operations);
        let to = self.0.get(next)?;
        if to.operations == operations {
            return Some(*to);
        }
        let from = self.0.get(next.checked_sub(1)?)?;
        let part = (operations - from.operations) as f64 / (to.operations - from.operations) as f64;
        let between = |from: u64, to: u64| from + (to.saturating_sub(from) as f64 * part) as u64;
        Some(Point {
            operations,
            waited_ns: between(from.waited_ns, to.waited_ns),
            at_ns: between(from.at_ns, to.at_ns),
        })
    }

    /// How many operations it had been done with at a time, at the most.
    pub fn operations_until(&self, at_ns: u64) -> Option<u64> {
        let next = self.0.partition_point(|point| point.at_ns <= at_ns);
        Some(self.0.get(next.checked_sub(1)?)?.operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(points: &[(u64, u64, u64)]) -> Account {
        let mut account = Account::default();
        for &(operations, waited_ns, at_ns) in points {
            account.take(Point { operations, waited_ns, at_ns });
        }
        account
    }

    #[test]
    fn what_comes_twice_or_late_changes_nothing() {
        let mut one = account(&[(10, 100, 1000), (20, 300, 2000)]);
        assert!(!one.take(Point { operations: 20, waited_ns: 300, at_ns: 2000 }));
        assert!(!one.take(Point { operations: 15, waited_ns: 200, at_ns: 1500 }));
        assert_eq!(one.last(), Some(Point { operations: 20, waited_ns: 300, at_ns: 2000 }));
    }

    #[test]
    fn between_two_points_it_grows_evenly_and_outside_nobody_knows() {
        let one = account(&[(10, 100, 1000), (20, 300, 2000)]);
        assert_eq!(one.after(15), Some(Point { operations: 15, waited_ns: 200, at_ns: 1500 }));
        assert_eq!(one.after(20).map(|point| point.waited_ns), Some(300));
        assert_eq!((one.after(9), one.after(21)), (None, None));
        assert_eq!((one.operations_until(1999), one.operations_until(999)), (Some(10), None));
    }

    #[test]
    fn a_program_that_starts_anew_has_a_new_account() {
        let mut one = account(&[(1000, 100, 1000)]);
        assert!(one.take(Point { operations: 5, waited_ns: 7, at_ns: 9000 }));
        assert_eq!((one.first(), one.last()), (one.last(), Some(Point { operations: 5, waited_ns: 7, at_ns: 9000 })));
    }

    #[test]
    fn it_is_bounded() {
        let points: Vec<_> = (0..1000).map(|at| (at, at, at)).collect();
        assert_eq!(account(&points).0.len(), MOST_POINTS);
    }
}
