//! A rank that becomes late: ranks came together for long, and since a moment ago one of them does not. In the run as a whole
//! that is next to nothing yet.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::Span;
use gpuwhy_window::{Unusual, Window};

use crate::cohorts::whole_operations;

/// How ranks usually come is known from this part of the operations, and not from fewer of them.
const BEFORE: f64 = 0.6;
const LEAST_BEFORE: usize = 20;

/// How a rank becomes late: much later than the last one hardly ever used to be, or later than it usually was, but each time.
const WAYS: [Way; 2] = [
    Way { usual: 0.95, times_later: 3, iterations: 2, least_part: 0.3, since_its_first: true },
    Way { usual: 0.75, times_later: 1, iterations: 6, least_part: 0.8, since_its_first: false },
];

struct Way {
    /// So many times as late as the last one was at most in this part of the operations.
    usual: f64,
    times_later: u64,
    /// In so many iterations, and in this part of all operations since.
    iterations: usize,
    least_part: f64,
    /// Since no other rank was. Otherwise what it was late to by chance before is no part of it.
    since_its_first: bool,
}

/// Less is not late.
const LEAST_LATE_NS: u64 = 5_000_000;

/// What is looked at on its own is no shorter: sums are kept by the second.
const SHORTEST_NS: u64 = 2_000_000_000;

/// What goes on may have been seen last before so many of its iterations, and this long.
const ITERATIONS_AGO: u64 = 2;
const AGO_NS: u64 = 1_000_000_000;

/// Since when a rank is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onset {
    /// From the first operation to which it came late to the end of the window.
    pub during: Span,
    pub unusual: Unusual,
}

/// The one who came last to an operation, from when half of the ranks had asked.
struct Last {
    rank: u32,
    late: Span,
    done_ns: Option<u64>,
}

/// Whether a rank of some communicator has become late, and is. The one that lost most time since.
pub fn onset(window: &Window) -> Option<Onset> {
    let mut communicators: BTreeMap<i64, Vec<Last>> = BTreeMap::new();
    for asked in whole_operations(window) {
        let (usual, last) = (asked[(asked.len() - 1) / 2], asked[asked.len() - 1]);
        let late = Span { from_ns: usual.start_ns, to_ns: last.start_ns };
        let last = Last { rank: last.rank, late, done_ns: last.done_ns };
        communicators.entry(usual.communicator).or_default().push(last);
    }
    let found = communicators.values().filter_map(|lasts| onset_of(window, lasts));
    found.max_by_key(|(lost_ns, _)| *lost_ns).map(|(_, onset)| onset)
}

/// With how much it was late in all.
fn onset_of(window: &Window, lasts: &[Last]) -> Option<(u64, Onset)> {
    let (before, since) = lasts.split_at((lasts.len() as f64 * BEFORE) as usize);
    if before.len() < LEAST_BEFORE {
        return None;
    }
    let mut usual: Vec<u64> = before.iter().map(|last| last.late.ns()).collect();
    usual.sort_unstable();
    WAYS.iter().find_map(|way| way.onset(window, since, &usual))
}

impl Way {
    /// Since when a rank is late in this way, with how much it was late in all.
    /// `usual` is how late the last one was before, in order.
    fn onset(&self, window: &Window, since: &[Last], usual: &[u64]) -> Option<(u64, Onset)> {
        let usual_ns = usual[(usual.len() as f64 * self.usual) as usize];
        let late_ns = usual_ns.saturating_mul(self.times_later).max(LEAST_LATE_NS);
        let mut late = (1..).zip(since.iter().rev()).filter(|(_, last)| last.late.ns() > late_ns).peekable();
        let rank = late.peek()?.1.rank;
        let mut own: Vec<(usize, &Last)> = late.take_while(|(_, last)| last.rank == rank).collect();
        let is_often = |count: &usize| *count as f64 >= self.least_part * own[count - 1].0 as f64;
        let fewest = if self.since_its_first { own.len() } else { 1 };
        own.truncate((fewest..=own.len()).rev().find(is_often)?);
        let (newest, first) = (own[0].1, own[own.len() - 1].1);
        // To what one wait covers, a rank is late once.
        let iterations = own.iter().map(|(_, last)| last.done_ns).collect::<BTreeSet<_>>().len();
        if iterations < self.iterations {
            return None;
        }
        let iteration_ns = newest.late.to_ns.saturating_sub(first.late.to_ns) / (iterations as u64 - 1);
        let ago_ns = window.to_ns.saturating_sub(newest.late.to_ns);
        let is_over = ago_ns > iteration_ns.saturating_mul(ITERATIONS_AGO).saturating_add(AGO_NS);
        let from_ns = first.late.from_ns.min(window.to_ns.saturating_sub(SHORTEST_NS)).max(window.from_ns);
        let lost_ns = own.iter().fold(0u64, |sum, (_, last)| sum.saturating_add(last.late.ns()));
        let unusual = Unusual { since_ns: first.late.to_ns, late_ns };
        let onset = Onset { during: Span { from_ns, to_ns: window.to_ns }, unusual };
        (!is_over).then_some((lost_ns, onset))
    }
}
