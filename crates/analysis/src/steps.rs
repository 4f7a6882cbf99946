//! Iterations of a thread, found from the order of its calls: no change to the program, no marker in it.
//!
//! In a loop, many functions are called the same number of times a step, with the same number of calls in between.
//! Among the counts on which several of them agree, the smallest is the number of steps.

mod change;

use std::collections::BTreeMap;

use gpuwhy_model::{Call, OpId, Span, Steps, ThreadId};
use gpuwhy_window::CallSum;

use crate::situation::Situation;
use crate::words::share;

/// A marker must be seen this often.
const LEAST_OCCURRENCES: usize = 6;

/// Share of the distances between occurrences that must be about the same.
const LEAST_REGULAR: f64 = 0.6;

/// About the same: off by so much, or by two calls.
const TOLERANCE: f64 = 0.15;

/// Share of the time that a marker must span.
const LEAST_SPANNED: f64 = 0.5;

/// Share of a function's calls that must have been kept for it to count.
const LEAST_KEPT: f64 = 0.9;

/// A count of steps needs this share of the voices that the loudest count has.
const LEAST_VOICES: f64 = 0.3;

/// More than this many kinds of calls are not looked at one by one.
const MOST_MARKERS: usize = 2_000;

/// A kind of call: a function, alone or with what it was called for.
type Marker = (OpId, Option<u64>);

/// The steps of a thread, and each of those that follow each other without a gap in the records.
pub(crate) struct Found {
    pub steps: Steps,
    pub gaps: Vec<Gap>,
}

pub(crate) fn find(situation: &Situation<'_>, thread: ThreadId, sums: &[&CallSum], wall_ns: u64) -> Option<Found> {
    let calls = Sequence::new(situation, thread, sums);
    let marker = calls.best_marker()?;
    let gaps = calls.gaps(marker);
    let covered_ns = gaps.iter().fold(0u64, |sum, gap| sum.saturating_add(gap.ns));
    let mut sorted: Vec<u64> = gaps.iter().map(|gap| gap.ns).collect();
    sorted.sort_unstable();
    let (&median_ns, &p99_ns) = (sorted.get(sorted.len() / 2)?, sorted.get((sorted.len() * 99) / 100)?);
    let count = (gaps.len() as f64 * wall_ns as f64 / covered_ns.max(1) as f64).round() as u64;
    // Where every call was read nothing has to be estimated.
    let count = if calls.is_whole { gaps.len() as u64 } else { count.max(gaps.len() as u64) };
    let name = situation.op(marker.0)?.name.clone();
    let steps = Steps { count, median_ns, p99_ns, marker: name, change: change::find(&gaps) };
    Some(Found { steps, gaps })
}

/// From one occurrence of the marker to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    pub at_ns: u64,
    pub ns: u64,
}

/// Calls of one thread in the order of time.
struct Sequence<'w> {
    calls: Vec<Position<'w>>,
    is_whole: bool,
}

/// Where in the sequence. There are 100,000 calls at most, and one of these for each marker that a call has.
type Place = u32;

struct Position<'w> {
    call: &'w Call,
    is_launch: bool,
    /// Which of the spans without gaps it lies in.
    span: u32,
    /// How many calls of its kind, launch or not, came before it.
    order: u32,
}

impl<'w> Sequence<'w> {
    /// Functions are left out when not all of their calls were seen and kept.
    fn new(situation: &Situation<'w>, thread: ThreadId, sums: &[&CallSum]) -> Self {
        let window = situation.window;
        let length_ns = window.to_ns.saturating_sub(window.from_ns);
        let read = share(window.calls.covered_ns(), length_ns);
        let mut kept: BTreeMap<OpId, u64> = BTreeMap::new();
        window
            .calls
            .rows
            .iter()
            .filter(|call| call.thread == thread)
            .for_each(|call| *kept.entry(call.op).or_default() += 1);
        let is_kept =
            |sum: &CallSum| kept.get(&sum.op).is_some_and(|&kept| kept as f64 >= LEAST_KEPT * read * sum.calls as f64);
        let complete = sums.iter().filter(|sum| is_kept(sum));
        let ops: BTreeMap<OpId, bool> = complete.map(|sum| (sum.op, situation.is_launch(sum.op))).collect();
        let spans = &window.calls.spans;
        let mut orders = [0, 0];
        let mut calls = Vec::new();
        for call in window.calls.rows.iter().filter(|call| call.thread == thread) {
            let (Some(&is_launch), Some(span)) = (ops.get(&call.op), span_of(spans, call.start_ns)) else { continue };
            let order = orders[usize::from(is_launch)];
            orders[usize::from(is_launch)] += 1;
            calls.push(Position { call, is_launch, span, order });
        }
        Self { calls, is_whole: spans.len() == 1 }
    }

    fn best_marker(&self) -> Option<Marker> {
        let mut occurrences: BTreeMap<Marker, Vec<Place>> = BTreeMap::new();
        for (at, position) in (0..).zip(&self.calls) {
            occurrences.entry((position.call.op, None)).or_default().push(at);
            if let Some(what) = position.call.handle.or(position.call.bytes) {
                occurrences.entry((position.call.op, Some(what))).or_default().push(at);
            }
        }
        let mut voices: BTreeMap<usize, Vec<Marker>> = BTreeMap::new();
        for (marker, places) in occurrences.iter().take(MOST_MARKERS) {
            let says_nothing_new =
                marker.1.is_some() && occurrences.get(&(marker.0, None)).is_some_and(|all| all.len() == places.len());
            if places.len() >= LEAST_OCCURRENCES
                && !says_nothing_new
                && self.is_lasting(places)
                && self.is_regular(places)
            {
                voices.entry(places.len()).or_default().push(*marker);
            }
        }
        quietest_of_the_loud(&voices)
    }

    fn is_regular(&self, places: &[Place]) -> bool {
        let mut distances: Vec<u32> = self.pairs(places).map(|(one, next)| next.order - one.order).collect();
        distances.sort_unstable();
        let Some(&median) = distances.get(distances.len() / 2) else { return false };
        let tolerance = (median as f64 * TOLERANCE).max(2.0);
        let regular = distances.iter().filter(|&&distance| distance.abs_diff(median) as f64 <= tolerance).count();
        regular as f64 >= LEAST_REGULAR * distances.len() as f64
    }

    /// Whether these calls go on for most of the time that the thread's calls do.
    fn is_lasting(&self, places: &[Place]) -> bool {
        let start_ns = |position: Option<&Position<'_>>| position.map_or(0, |position| position.call.start_ns);
        let place = |at: Option<&Place>| at.and_then(|&at| self.calls.get(at as usize));
        let spanned_ns = start_ns(place(places.last())).saturating_sub(start_ns(place(places.first())));
        let all_ns = start_ns(self.calls.last()).saturating_sub(start_ns(self.calls.first()));
        spanned_ns as f64 >= LEAST_SPANNED * all_ns as f64
    }

    /// Occurrences that follow each other with nothing missing in between.
    fn pairs<'a>(&'a self, places: &'a [Place]) -> impl Iterator<Item = (&'a Position<'w>, &'a Position<'w>)> {
        let pairs = places.windows(2).map(|pair| (&self.calls[pair[0] as usize], &self.calls[pair[1] as usize]));
        pairs.filter(|(one, next)| one.span == next.span && one.is_launch == next.is_launch)
    }

    fn gaps(&self, (op, what): Marker) -> Vec<Gap> {
        let is_marker = |position: &Position<'_>| {
            let call = position.call;
            call.op == op && (what.is_none() || call.handle.or(call.bytes) == what)
        };
        let places: Vec<Place> =
            (0..).zip(&self.calls).filter(|(_, position)| is_marker(position)).map(|(at, _)| at).collect();
        let gap = |(one, next): (&Position<'_>, &Position<'_>)| Gap {
            at_ns: one.call.start_ns,
            ns: next.call.start_ns.saturating_sub(one.call.start_ns),
        };
        self.pairs(&places).map(gap).collect()
    }
}

fn span_of(spans: &[Span], at_ns: u64) -> Option<u32> {
    let after = spans.partition_point(|span| span.from_ns <= at_ns);
    let at = after.checked_sub(1).filter(|&at| spans.get(at).is_some_and(|span| at_ns <= span.to_ns));
    at.and_then(|at| u32::try_from(at).ok())
}

/// The smallest count of those that many kinds of calls agree on. Counts of loops cut at their ends differ by a few.
fn quietest_of_the_loud(voices: &BTreeMap<usize, Vec<Marker>>) -> Option<Marker> {
    let mut groups: Vec<(usize, Vec<Marker>)> = Vec::new();
    for (&count, markers) in voices {
        match groups.last_mut() {
            Some((first, group)) if count <= *first + 2 + *first / 32 => group.extend(markers),
            _ => groups.push((count, markers.clone())),
        }
    }
    let loudest = groups.iter().map(|(_, markers)| markers.len()).max()? as f64;
    let (_, markers) = groups.iter().find(|(_, markers)| markers.len() as f64 >= LEAST_VOICES * loudest)?;
    // A function alone is easier to understand than one with a handle.
    markers.iter().min_by_key(|(op, what)| (what.is_some(), *op)).copied()
}
