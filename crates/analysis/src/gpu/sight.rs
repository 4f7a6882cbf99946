//! When it is seen that a process gives a GPU work.

use std::collections::BTreeMap;

use gpuwhy_model::{Call, DeviceAction, Layer, ProcessId, Span, ThreadId};

use crate::situation::Situation;

/// Of the launches of a second, how many must have been seen, and kept, to know when there were none; or of its waits, how
/// many must be followed by a launch that was kept.
const LEAST_SEEN: f64 = 0.98;
const LEAST_KEPT: f64 = 0.9;
const LEAST_FOLLOWED: f64 = 0.7;

/// When launches of a process are not seen, in the order of time.
#[derive(Debug, Default, PartialEq)]
pub struct Sight {
    /// Times between those in which they are.
    pub blind: Vec<Span>,
    /// They may have been seen at some moments, and nobody says at which.
    pub dark: Vec<Span>,
}

impl Sight {
    pub fn find(situation: &Situation<'_>, process: ProcessId, layer: Layer, calls: &[(&Call, DeviceAction)]) -> Self {
        let window = situation.window;
        let hidden = hidden_seconds(situation, process, layer, calls);
        let not_read = not_read(window.from_ns, window.to_ns, &window.calls.spans);
        if window.watched.is_empty() {
            return Self { blind: Vec::new(), dark: hidden.into_iter().chain(not_read).collect() };
        }
        let blind = hidden.iter().flat_map(|span| without(*span, &window.watched)).chain(not_read);
        Self { blind: united(blind.collect()), dark: Vec::new() }
    }
}

/// What is left of a span. Both are in the order of time.
fn without(span: Span, parts: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    let mut at_ns = span.from_ns;
    let first = parts.partition_point(|part| part.to_ns <= span.from_ns);
    for part in parts[first..].iter().take_while(|part| part.from_ns < span.to_ns) {
        if part.from_ns > at_ns {
            left.push(Span { from_ns: at_ns, to_ns: part.from_ns });
        }
        at_ns = at_ns.max(part.to_ns);
    }
    if at_ns < span.to_ns {
        left.push(Span { from_ns: at_ns, to_ns: span.to_ns });
    }
    left
}

/// In the order of time, those that touch as one.
pub(super) fn united(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.from_ns);
    let mut united: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match united.last_mut() {
            Some(last) if span.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(span.to_ns),
            _ => united.push(span),
        }
    }
    united
}

/// Seconds in which nobody knows when a process gave the GPU work.
fn hidden_seconds(
    situation: &Situation<'_>,
    process: ProcessId,
    layer: Layer,
    calls: &[(&Call, DeviceAction)],
) -> Vec<Span> {
    let window = situation.window;
    let mut seconds: BTreeMap<u64, Visibility> = BTreeMap::new();
    for second in &window.call_seconds {
        let visibility = seconds.entry(second.bucket_ns).or_default();
        let is_own = situation.process_id(second.thread) == Some(process);
        let is_launch = situation.op(second.op).is_some_and(|op| op.meaning.is_launch && op.layer == layer);
        if is_own && is_launch {
            visibility.made = visibility.made.saturating_add(second.calls);
            visibility.seen = visibility.seen.saturating_add(second.seen);
        }
    }
    let starts: Vec<u64> = seconds.keys().copied().collect();
    let mut last_waits: BTreeMap<ThreadId, u64> = BTreeMap::new();
    for (call, action) in calls {
        let at = starts.partition_point(|&start| start <= call.start_ns).saturating_sub(1);
        let Some(second) = starts.get(at).and_then(|start| seconds.get_mut(start)) else { continue };
        second.kept += u64::from(situation.is_launch(call.op));
        match action {
            DeviceAction::Wait(_) => {
                second.waits += 1;
                last_waits.insert(call.thread, call.start_ns);
            }
            DeviceAction::Submit(_) => second.followed += u64::from(last_waits.remove(&call.thread).is_some()),
            DeviceAction::Mark { .. } => {}
        }
    }
    let end = |at: usize| starts.get(at + 1).copied().unwrap_or(window.to_ns);
    let mut hidden = Vec::new();
    let mut is_next_hidden = false;
    for (at, (&from_ns, second)) in seconds.iter().enumerate().rev() {
        // Launches that were seen in part are counted when they are seen next: waits without launches had some.
        let is_late = second.made == 0 && second.waits > 0 && is_next_hidden;
        let is_hidden = is_late || second.is_hidden();
        if is_hidden {
            hidden.push(Span { from_ns, to_ns: end(at) });
        }
        if is_late || second.made > 0 {
            is_next_hidden = is_hidden;
        }
    }
    hidden.reverse();
    hidden
}

/// How much of a process's launches is known in a second.
#[derive(Default)]
struct Visibility {
    made: u64,
    /// Counted one by one.
    seen: u64,
    /// With a record.
    kept: u64,
    waits: u64,
    /// Waits after which the next launch has a record.
    followed: u64,
}

impl Visibility {
    /// The tracer keeps the first launch after each wait, as long as it sees all of them.
    fn is_hidden(&self) -> bool {
        let is_seen = self.seen as f64 >= LEAST_SEEN * self.made as f64;
        let is_kept = self.kept as f64 >= LEAST_KEPT * self.made as f64 - 4.0;
        let is_followed = self.followed as f64 >= LEAST_FOLLOWED * self.waits as f64;
        !is_seen || !(is_kept || (is_followed && self.waits > 0))
    }
}

/// Times of which not every call was read.
fn not_read(from_ns: u64, to_ns: u64, read: &[Span]) -> Vec<Span> {
    // The last span ends with the last record.
    let to_ns = read.last().map_or(to_ns, |last| last.to_ns);
    without(Span { from_ns, to_ns }, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> Span {
        Span { from_ns, to_ns }
    }

    #[test]
    fn parts_are_taken_out_of_a_span() {
        assert_eq!(without(span(10, 50), &[span(0, 15), span(20, 30), span(45, 60)]), [span(15, 20), span(30, 45)]);
        assert_eq!(without(span(10, 50), &[span(0, 5), span(50, 60)]), [span(10, 50)]);
        assert_eq!(without(span(10, 50), &[span(0, 60)]), []);
    }

    #[test]
    fn spans_that_touch_are_one() {
        assert_eq!(united(vec![span(20, 30), span(0, 10), span(10, 15)]), [span(0, 15), span(20, 30)]);
    }
}
