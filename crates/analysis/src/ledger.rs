//! GPU memory that is allocated, by address: which call allocated what is live, and what a free gives back.

use std::collections::BTreeMap;

use gpuwhy_model::{Call, CallClass, Layer, ProcessId};
use gpuwhy_window::{CallSum, Op, Window};

/// Calls in the order of time go in; what is live at any time comes out.
#[derive(Debug, Default)]
pub struct Ledger<'w> {
    live: BTreeMap<u64, &'w Call>,
    bytes: u64,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry<'w> {
    Allocated {
        bytes: u64,
        /// What was there before, whose free was not seen.
        replaced: Option<&'w Call>,
    },
    /// What it freed was allocated by this call.
    Freed(&'w Call),
    /// What it freed was not known to be allocated.
    Orphan,
    /// Neither, in a way that can be followed; or the address, or how much it is, is not known.
    Nothing,
}

impl<'w> Ledger<'w> {
    pub fn take(&mut self, op: Option<&Op>, call: &'w Call) -> Entry<'w> {
        let (Some(op), Some(address)) = (op, call.address) else { return Entry::Nothing };
        match call.bytes {
            Some(bytes) if op.meaning.is_followed_alloc() => {
                let replaced = self.release(address);
                self.bytes = self.bytes.saturating_add(bytes);
                self.live.insert(address, call);
                Entry::Allocated { bytes, replaced }
            }
            _ if op.meaning.is_followed_free() => self.release(address).map_or(Entry::Orphan, Entry::Freed),
            _ => Entry::Nothing,
        }
    }

    /// Live bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The calls that allocated what is live, in the order of addresses.
    pub fn live(&self) -> impl Iterator<Item = &'w Call> + '_ {
        self.live.values().copied()
    }

    fn release(&mut self, address: u64) -> Option<&'w Call> {
        let gone = self.live.remove(&address)?;
        self.bytes = self.bytes.saturating_sub(gone.bytes.unwrap_or(0));
        Some(gone)
    }
}

/// The layer whose memory calls of a process count: those of the layers above ask for the same memory. `None` where
/// there are none.
pub fn layer(window: &Window, process: ProcessId) -> Option<Layer> {
    let is_own = |sum: &&CallSum| window.process_id(sum.thread) == Some(process);
    let is_memory = |op: &&Op| matches!(op.meaning.class, CallClass::Alloc | CallClass::Free);
    let counted = || window.call_sums.iter().filter(is_own).filter_map(|sum| window.ops.get(&sum.op)).filter(is_memory);
    let kept = rows(window, process).filter_map(|call| window.ops.get(&call.op));
    Layer::lowest(kept.map(|op| op.layer)).or_else(|| Layer::lowest(counted().map(|op| op.layer)))
}

/// The calls of a process that moved memory and did not fail, in the order of time.
pub fn memory_calls(window: &Window, process: ProcessId) -> impl Iterator<Item = &Call> {
    let layer = layer(window, process);
    let is_of_layer = move |call: &Call| window.ops.get(&call.op).is_some_and(|op| Some(op.layer) == layer);
    rows(window, process).filter(move |call| call.ret_code == 0 && is_of_layer(call))
}

fn rows(window: &Window, process: ProcessId) -> impl Iterator<Item = &Call> {
    let is_own = move |call: &&Call| window.process_id(call.thread) == Some(process);
    window.memory_calls.rows.iter().filter(is_own)
}
