//! What a thread did in a span of time.

use gpuwhy_model::ThreadId;

use super::Activity;
use crate::class::WaitClass;
use crate::situation::Situation;
use crate::waiting::Waiting;

/// A thread's clocks are read every second; it is watched until about then.
const WATCHED_AFTER_NS: u64 = 1_500_000_000;

pub(super) enum Piece<'a, 'w> {
    Did(Activity, u64),
    /// A wait with a record, cut to the span; or short ones that it stands for, which took a share of a span.
    Waited {
        waiting: &'a Waiting<'w>,
        class: WaitClass,
        from_ns: u64,
        to_ns: u64,
        share: f64,
    },
}

/// Splits a span; what comes after `most` records is unknown.
pub(super) fn pieces<'a, 'w>(
    situation: &'a Situation<'w>,
    thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
    most: usize,
) -> Vec<Piece<'a, 'w>> {
    if to_ns <= from_ns {
        return Vec::new();
    }
    if most == 0 || !is_watched(situation, thread, from_ns, to_ns) {
        return vec![Piece::Did(Activity::Unknown, to_ns - from_ns)];
    }
    let waits = situation.waits(thread);
    let first = waits.partition_point(|waiting| waiting.stretch.start_ns < from_ns).saturating_sub(1);
    let before_ns = first.checked_sub(1).map(|at| waits[at].end_ns());
    let mut split = Split { from_ns, to_ns, cursor_ns: from_ns, last_end_ns: before_ns, pieces: Vec::new() };
    for waiting in waits[first..].iter().take(most) {
        split.add_gap(waiting);
        if waiting.stretch.start_ns >= to_ns {
            break;
        }
        split.add_stretch(waiting);
    }
    split.run_until(to_ns);
    split.pieces
}

fn is_watched(situation: &Situation<'_>, thread: ThreadId, from_ns: u64, to_ns: u64) -> bool {
    let by_clock = situation.sum(thread).is_some_and(|sum| {
        sum.times.bucket_ns < to_ns && from_ns <= sum.last_bucket_ns.saturating_add(WATCHED_AFTER_NS)
    });
    let waits = situation.waits(thread);
    let by_waits = match (waits.first(), waits.last()) {
        (Some(first), Some(last)) => first.stretch.start_ns < to_ns && from_ns <= last.end_ns(),
        _ => false,
    };
    by_clock || by_waits
}

struct Split<'a, 'w> {
    from_ns: u64,
    to_ns: u64,
    cursor_ns: u64,
    last_end_ns: Option<u64>,
    pieces: Vec<Piece<'a, 'w>>,
}

impl<'a, 'w> Split<'a, 'w> {
    /// From the last stretch to this one the thread ran, apart from the short stretches that this one stands for.
    fn add_gap(&mut self, waiting: &'a Waiting<'w>) {
        let stretch = waiting.stretch;
        let gap_from_ns = self.last_end_ns.unwrap_or(self.from_ns);
        let whole_ns = stretch.start_ns.saturating_sub(gap_from_ns);
        let until_ns = stretch.start_ns.min(self.to_ns);
        let inside_ns = until_ns.saturating_sub(self.cursor_ns);
        if inside_ns == 0 {
            return;
        }
        let share = inside_ns as f64 / whole_ns.max(inside_ns) as f64;
        let blocked_ns = stretch.all.blocked_ns.saturating_sub(stretch.blocked_ns) as f64 * share;
        let runqueue_ns = stretch.all.runqueue_ns.saturating_sub(stretch.runqueue_ns) as f64 * share;
        let blocked_ns = (blocked_ns as u64).min(inside_ns);
        let runqueue_ns = (runqueue_ns as u64).min(inside_ns - blocked_ns);
        if let (Some(class), 1..) = (waiting.class, blocked_ns) {
            let (from_ns, share) = (self.cursor_ns, blocked_ns as f64 / inside_ns as f64);
            self.pieces.push(Piece::Waited { waiting, class, from_ns, to_ns: until_ns, share });
        }
        self.did(Activity::Runqueue, runqueue_ns);
        self.did(Activity::Running, inside_ns - blocked_ns - runqueue_ns);
        self.cursor_ns = until_ns;
    }

    fn add_stretch(&mut self, waiting: &'a Waiting<'w>) {
        let blocked_to_ns = waiting.blocked_to_ns().min(self.to_ns);
        let from_ns = waiting.stretch.start_ns.max(self.cursor_ns);
        if blocked_to_ns > from_ns {
            match waiting.class {
                Some(class) => {
                    self.pieces.push(Piece::Waited { waiting, class, from_ns, to_ns: blocked_to_ns, share: 1.0 });
                }
                None => self.did(Activity::Waiting(WaitClass::Other), blocked_to_ns - from_ns),
            }
            self.cursor_ns = blocked_to_ns;
        }
        let end_ns = waiting.end_ns().min(self.to_ns);
        if end_ns > self.cursor_ns {
            self.did(Activity::Runqueue, end_ns - self.cursor_ns);
            self.cursor_ns = end_ns;
        }
        self.last_end_ns = Some(waiting.end_ns());
    }

    fn run_until(&mut self, to_ns: u64) {
        if to_ns > self.cursor_ns {
            self.did(Activity::Running, to_ns - self.cursor_ns);
            self.cursor_ns = to_ns;
        }
    }

    fn did(&mut self, activity: Activity, ns: u64) {
        if ns > 0 {
            self.pieces.push(Piece::Did(activity, ns));
        }
    }
}
