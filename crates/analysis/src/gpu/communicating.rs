//! How long a GPU sat in operations of several GPUs and waited for others.
//!
//! Of ranks that wait for the same operation, the one that waits the shortest came last: it waits for its own work and for
//! the transfer. What others wait beyond that, they wait for other ranks. How much of the rest is transfer is not known.

use std::collections::BTreeMap;

use gpuwhy_model::{HAD_TO_WAIT_NS, ProcessId, Span};
use gpuwhy_window::{Collective, Device};

use super::sight::united;
use crate::cohorts::whole_operations;
use crate::situation::Situation;

/// At least so long.
pub(super) fn communicating_ns(situation: &Situation<'_>, device: Device) -> u64 {
    let mut operations = whole_operations(situation.window);
    operations.retain(|ranks| ranks.iter().all(|one| one.wait_ns >= HAD_TO_WAIT_NS));
    let devices = if operations.is_empty() { BTreeMap::new() } else { devices(situation) };
    let is_own = |one: &Collective| {
        situation.process_id(one.thread).is_some_and(|process| devices.get(&process) == Some(&device))
    };
    let mut spans = Vec::new();
    for ranks in &operations {
        let shortest_ns = ranks.iter().map(|one| one.wait_ns).min().unwrap_or(0);
        spans.extend(ranks.iter().filter(|one| is_own(one)).filter_map(|one| {
            let to_ns = one.done_ns?;
            Some(Span { from_ns: to_ns.saturating_sub(one.wait_ns - shortest_ns), to_ns })
        }));
    }
    united(spans).iter().fold(0, |sum, span| sum.saturating_add(span.ns()))
}

/// The GPU that each process uses, the first one of several.
fn devices(situation: &Situation<'_>) -> BTreeMap<ProcessId, Device> {
    let mut devices = BTreeMap::new();
    for call in situation.window.calls.rows.iter().filter(|call| call.device.is_some()) {
        if let Some(process) = situation.process_id(call.thread) {
            devices.entry(process).or_insert_with(|| situation.device(call, process));
        }
    }
    devices
}
