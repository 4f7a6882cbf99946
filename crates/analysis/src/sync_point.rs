//! Which calls wait for the GPU, whatever they are there for.

use gpuwhy_model::{Call, CallClass, Meaning};
use gpuwhy_window::CallSum;

use crate::situation::Situation;

/// A copy that holds its caller this long, for so few bytes, waits for the GPU and not for the bytes.
const WAITING_COPY_NS: u64 = 50_000;
const WAITING_COPY_BYTES_PER_NS: f64 = 0.2;

/// Whether the calls wait for the GPU: synchronizations, and copies that take far longer than their bytes would.
pub(crate) fn is_sync_point(situation: &Situation<'_>, sum: &CallSum) -> bool {
    match situation.class_of(sum.op) {
        _ if situation.is_wait(sum.op) => true,
        Some(CallClass::Copy) => {
            let busy_ns = sum.sum_ns.saturating_sub(sum.runqueue_ns);
            busy_ns / sum.calls.max(1) >= WAITING_COPY_NS && is_long_for(busy_ns, sum.bytes)
        }
        _ => false,
    }
}

/// Whether a single call had to wait for the GPU.
pub(crate) fn has_waited(call: &Call, meaning: &Meaning) -> bool {
    let busy_ns = call.duration_ns.saturating_sub(call.runqueue_ns);
    let is_copy = meaning.class == CallClass::Copy && is_long_for(busy_ns, call.bytes.unwrap_or(0));
    busy_ns >= WAITING_COPY_NS && (meaning.is_wait || is_copy)
}

fn is_long_for(busy_ns: u64, bytes: u64) -> bool {
    (bytes as f64) < busy_ns as f64 * WAITING_COPY_BYTES_PER_NS
}
