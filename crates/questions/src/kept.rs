//! How many calls were kept one by one, of all that were made.

use schemars::JsonSchema;
use serde::Serialize;

use crate::AskError;
use crate::reading::Reading;

#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Kept {
    /// Calls with a record of their own.
    pub kept: u64,
    /// Calls that were made, estimated where not all were seen.
    pub made: u64,
    pub share: f64,
}

const KEPT: &str = "
SELECT count(*) AS number FROM calls WHERE start_ns >= ? AND start_ns < ? AND (? IS NULL OR shape_id IN (
  SELECT shapes.id FROM shapes CROSS JOIN threads ON threads.id = shapes.thread_id
  CROSS JOIN processes ON processes.id = threads.process_id WHERE pid = ?))";

const MADE: &str = "
SELECT coalesce(sum(max(estimate, count)), 0) AS number FROM call_stats
WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?)";

pub fn calls(reading: &Reading) -> Result<Kept, AskError> {
    let kept = reading.number(KEPT, &reading.summed_bounds())?;
    let counted = reading.number(MADE, &reading.bucket_bounds())?;
    // The sums of the second that is being traced are not there yet.
    let made = counted.max(kept);
    Ok(Kept { kept, made, share: if made == 0 { 1.0 } else { kept as f64 / made as f64 } })
}
