//! How a thread gives a GPU work that is done as soon as it comes.

use gpuwhy_model::{Span, ThreadId};

use super::{Gpu, LONGEST_LAUNCH_NS};
use crate::situation::Situation;

/// The times in which a GPU kept up with what it was given, and the thread's launches in them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Feeding {
    pub ns: u64,
    /// In launch calls, of those.
    pub launching_ns: u64,
    pub launches: u64,
}

impl Feeding {
    pub fn find(situation: &Situation<'_>, gpus: &[Gpu], thread: ThreadId) -> Self {
        let mut feeding = Self::default();
        for gpu in gpus {
            let seen = Self::seen(situation, &gpu.kept_up, thread);
            let all = |ns: u64| (ns as f64 * gpu.growth) as u64;
            feeding.ns = feeding.ns.saturating_add(all(seen.ns));
            feeding.launching_ns = feeding.launching_ns.saturating_add(all(seen.launching_ns));
            feeding.launches = feeding.launches.saturating_add(all(seen.launches));
        }
        feeding
    }

    fn seen(situation: &Situation<'_>, kept_up: &[Span], thread: ThreadId) -> Self {
        let mut seen = Self::default();
        let launches = situation.window.calls.rows.iter();
        let mut launches = launches.filter(|call| call.thread == thread && situation.is_launch(call.op)).peekable();
        for span in kept_up {
            while launches.next_if(|call| call.start_ns < span.from_ns).is_some() {}
            let before = seen.launches;
            while let Some(call) = launches.next_if(|call| call.start_ns < span.to_ns) {
                // The rest is a wait for a place in the queue.
                seen.launching_ns = seen.launching_ns.saturating_add(call.running_ns().min(LONGEST_LAUNCH_NS));
                seen.launches += 1;
            }
            // What another thread was given is its own.
            if seen.launches > before {
                seen.ns = seen.ns.saturating_add(span.ns());
            }
        }
        seen
    }
}
