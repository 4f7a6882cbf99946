//! When ranks were done with a collective operation: at the end of the first wait that covers it.
//!
//! An operation is asked for on a stream. A wait for that stream covers it, and so does a wait for an event or another
//! stream that was made to follow it.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{ProcessId, Span};
use gpuwhy_window::Window;

use crate::gpu::{Action, HAD_TO_WAIT_NS, Scope, action};

/// So many operations that nobody has waited for yet are followed on each stream.
const MOST_PENDING: usize = 256;

/// The wait that covers an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub wait: Span,
    /// Otherwise the operation was done before.
    pub had_to_wait: bool,
}

/// By the starts of the calls that asked for operations.
pub(crate) fn departures(window: &Window) -> BTreeMap<u64, Departure> {
    let asked: BTreeSet<u64> = window.collectives.rows.iter().map(|one| one.start_ns).collect();
    let mut departures = BTreeMap::new();
    let mut processes: BTreeMap<ProcessId, Pending> = BTreeMap::new();
    for call in window.calls.rows.iter().filter(|call| call.ret_code == 0) {
        let (Some(process), Some(op)) = (window.process_id(call.thread), window.ops.get(&call.op)) else { continue };
        let pending = processes.entry(process).or_default();
        if asked.contains(&call.start_ns) {
            pending.ask(call.stream.unwrap_or(0), call.start_ns);
            continue;
        }
        match action(call, &op.meaning) {
            Some(Action::Mark { event, stream }) => pending.follow(event, stream),
            Some(Action::Wait(scope)) => {
                let departure = Departure { wait: call.span(), had_to_wait: call.duration_ns >= HAD_TO_WAIT_NS };
                departures.extend(pending.wait(scope).into_iter().map(|start_ns| (start_ns, departure)));
            }
            Some(Action::Submit(_)) | None => {}
        }
    }
    departures
}

/// The operations of a process that nobody has waited for yet, by the starts of their calls.
#[derive(Default)]
struct Pending {
    streams: BTreeMap<u64, BTreeSet<u64>>,
    events: BTreeMap<u64, BTreeSet<u64>>,
}

impl Pending {
    fn ask(&mut self, stream: u64, start_ns: u64) {
        let operations = self.streams.entry(stream).or_default();
        operations.insert(start_ns);
        if operations.len() > MOST_PENDING {
            operations.pop_first();
        }
    }

    /// What is done when the one is done is done when the other is.
    fn follow(&mut self, event: u64, stream: u64) {
        let marked = self.events.entry(event).or_default();
        let operations = self.streams.entry(stream).or_default();
        operations.append(marked);
        marked.clone_from(operations);
    }

    /// What a wait covers.
    fn wait(&mut self, scope: Scope) -> BTreeSet<u64> {
        let covered = match scope {
            Scope::Stream(stream) => self.streams.get(&stream).cloned().unwrap_or_default(),
            Scope::Event(event) => self.events.get(&event).cloned().unwrap_or_default(),
            Scope::All => self.streams.values().flatten().copied().collect(),
        };
        for operations in self.streams.values_mut().chain(self.events.values_mut()) {
            operations.retain(|start_ns| !covered.contains(start_ns));
        }
        covered
    }
}
