//! Calls and waits of one thread, as they come in the order of time, merged so that nothing is narrower than a pixel.

use gpuwhy_model::{OpId, Span, WaitReason};
use gpuwhy_store::{CallSpan, WaitSpan};

use super::{CallItem, WaitItem};

/// Why a thread was off the CPU: what it was blocked in, in the order of `WaitReason`, or why it was not let run.
pub const REASONS: &[&str] =
    &["futex", "io", "fault", "sleep", "poll", "stream", "ioctl", "other", "preempted", "throttled"];
const PREEMPTED: usize = WaitReason::COUNT;
const THROTTLED: usize = WaitReason::COUNT + 1;

/// Threads nest calls a few deep, so a lane has a few items for each pixel; more than this is no real trace.
const MOST_ITEMS: usize = 100_000;

/// How time becomes pixels.
#[derive(Clone, Copy)]
pub struct Pixels {
    pub from_ns: u64,
    pub span_ns: i64,
    pub width_ns: u64,
}

impl Pixels {
    pub fn new(span: Span, width: u32) -> Self {
        let span_ns = span.ns();
        let width_ns = span_ns.div_ceil(u64::from(width.max(1))).max(1);
        Self { from_ns: span.from_ns, span_ns: i64::try_from(span_ns).unwrap_or(i64::MAX), width_ns }
    }

    pub fn offset(self, ns: u64) -> i64 {
        let signed = |ns| i64::try_from(ns).unwrap_or(i64::MAX);
        signed(ns).saturating_sub(signed(self.from_ns))
    }

    fn at(self, ns: u64) -> u64 {
        ns.saturating_sub(self.from_ns) / self.width_ns
    }
}

pub struct Calls {
    pixels: Pixels,
    items: Vec<Drawn>,
    /// What is narrower than a pixel, of the pixel that is being filled.
    narrow: Option<Drawn>,
}

#[derive(Clone, Copy)]
struct Drawn {
    start_ns: u64,
    end_ns: u64,
    longest: CallSpan,
    count: u64,
}

impl Calls {
    pub fn new(pixels: Pixels) -> Self {
        Self { pixels, items: Vec::new(), narrow: None }
    }

    pub fn add(&mut self, call: &CallSpan) {
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        let drawn = Drawn { start_ns: call.start_ns, end_ns, longest: *call, count: 1 };
        if call.duration_ns >= self.pixels.width_ns {
            return push(&mut self.items, drawn);
        }
        match &mut self.narrow {
            Some(open) if self.pixels.at(open.start_ns) == self.pixels.at(call.start_ns) => {
                open.end_ns = open.end_ns.max(end_ns);
                open.count += 1;
                if call.duration_ns > open.longest.duration_ns {
                    open.longest = *call;
                }
            }
            narrow => {
                let full = narrow.replace(drawn);
                full.into_iter().for_each(|full| push(&mut self.items, full));
            }
        }
    }

    /// The items in the order of time; `None` where there are more than a drawing can have. `index` gives the place of a
    /// function's class and name.
    pub fn items(mut self, mut index: impl FnMut(OpId) -> (usize, usize)) -> Option<Vec<CallItem>> {
        self.items.extend(self.narrow);
        self.items.sort_by_key(|item| item.start_ns);
        let item = |item: &Drawn| {
            let (class, op) = index(item.longest.op);
            let duration_ns = item.end_ns.saturating_sub(item.start_ns);
            let id = self.pixels.offset(item.longest.start_ns);
            (self.pixels.offset(item.start_ns), duration_ns, class, op, id, item.count)
        };
        (self.items.len() <= MOST_ITEMS).then(|| self.items.iter().map(item).collect())
    }
}

pub struct Waits {
    pixels: Pixels,
    items: Vec<Off>,
    narrow: Option<Off>,
}

#[derive(Clone, Copy)]
struct Off {
    start_ns: u64,
    blocked_ns: u64,
    runqueue_ns: u64,
    longest: WaitSpan,
    waker: Option<usize>,
    count: u64,
}

impl Waits {
    pub fn new(pixels: Pixels) -> Self {
        Self { pixels, items: Vec::new(), narrow: None }
    }

    /// `waker` is the lane of whoever ended it.
    pub fn add(&mut self, wait: &WaitSpan, waker: Option<usize>) {
        let (blocked_ns, runqueue_ns) = (wait.blocked_ns, wait.runqueue_ns);
        let off = Off { start_ns: wait.start_ns, blocked_ns, runqueue_ns, longest: *wait, waker, count: 1 };
        if length(wait) >= self.pixels.width_ns {
            return push(&mut self.items, off);
        }
        match &mut self.narrow {
            Some(open) if self.pixels.at(open.start_ns) == self.pixels.at(wait.start_ns) => {
                open.blocked_ns = open.blocked_ns.saturating_add(blocked_ns);
                open.runqueue_ns = open.runqueue_ns.saturating_add(runqueue_ns);
                open.count += 1;
                if length(wait) > length(&open.longest) {
                    (open.longest, open.waker) = (*wait, waker);
                }
            }
            narrow => {
                let full = narrow.replace(off);
                full.into_iter().for_each(|full| push(&mut self.items, full));
            }
        }
    }

    pub fn items(mut self) -> Option<Vec<WaitItem>> {
        self.items.extend(self.narrow);
        self.items.sort_by_key(|item| item.start_ns);
        let item = |item: &Off| {
            let waker = item.waker.and_then(|lane| i64::try_from(lane).ok()).unwrap_or(-1);
            let (start, id) = (self.pixels.offset(item.start_ns), self.pixels.offset(item.longest.start_ns));
            (start, item.blocked_ns, item.runqueue_ns, reason(&item.longest), waker, id, item.count)
        };
        (self.items.len() <= MOST_ITEMS).then(|| self.items.iter().map(item).collect())
    }
}

/// One more than there may be says that there are too many.
fn push<T>(items: &mut Vec<T>, item: T) {
    if items.len() <= MOST_ITEMS {
        items.push(item);
    }
}

fn length(wait: &WaitSpan) -> u64 {
    wait.blocked_ns.saturating_add(wait.runqueue_ns)
}

fn reason(wait: &WaitSpan) -> usize {
    match wait.reason {
        Some(reason) => reason as usize,
        None if wait.is_throttled => THROTTLED,
        None => PREEMPTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::ThreadId;

    fn call(start_ns: u64, duration_ns: u64, op: u32) -> CallSpan {
        CallSpan { start_ns, duration_ns, thread: ThreadId(1), op: OpId(op) }
    }

    fn items(calls: &[CallSpan]) -> Vec<CallItem> {
        let mut merged = Calls::new(Pixels::new(Span { from_ns: 1000, to_ns: 11_000 }, 100));
        calls.iter().for_each(|call| merged.add(call));
        merged.items(|op| (0, op.0 as usize)).unwrap()
    }

    #[test]
    fn reasons_have_the_names_and_places_of_the_trace() {
        let words: Vec<&str> = WaitReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(REASONS[..WaitReason::COUNT], words);
    }

    #[test]
    fn calls_of_one_pixel_are_one_item_with_the_longest_ones_name() {
        let merged = items(&[call(1000, 5, 1), call(1010, 30, 2), call(1050, 7, 3), call(1100, 5, 4)]);
        assert_eq!(merged, [(0, 57, 0, 2, 10, 3), (100, 5, 0, 4, 100, 1)]);
    }

    #[test]
    fn a_call_that_is_wide_enough_stands_for_itself() {
        let merged = items(&[call(900, 500, 1), call(1010, 30, 2), call(1020, 300, 3), call(1050, 7, 4)]);
        assert_eq!(merged, [(-100, 500, 0, 1, -100, 1), (10, 47, 0, 2, 10, 2), (20, 300, 0, 3, 20, 1)]);
    }

    #[test]
    fn a_lane_with_more_items_than_pixels_can_have_is_refused() {
        let mut merged = Calls::new(Pixels::new(Span { from_ns: 0, to_ns: 100 }, 100));
        (0..MOST_ITEMS as u64 + 2).for_each(|_| merged.add(&call(0, 50, 1)));
        assert!(merged.items(|_| (0, 0)).is_none());
    }
}
