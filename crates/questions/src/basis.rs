//! What an answer is based on.

use gpuwhy_model::{Coverage, Sampled, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AskError;
use crate::reading::Reading;

/// The span that an answer is about, and what was lost or not seen in it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Basis {
    /// The trace, by its file's name.
    pub trace: String,
    pub window: Span,
    pub coverage: Coverage,
}

impl Basis {
    /// Where analysis has found out what was seen.
    pub fn saying(reading: &Reading, coverage: Coverage) -> Self {
        let trace = reading.trace.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { trace, window: reading.span, coverage }
    }

    pub fn of(reading: &Reading) -> Result<Self, AskError> {
        let ops = if reading.trace.version() < ESTIMATES_SINCE { OPS_SEEN } else { OPS };
        let ops: Vec<OfOp> = reading.select(ops, &reading.bucket_bounds())?;
        let lost: Vec<Lost> = reading.select("SELECT reason, sum(count) AS count FROM losses GROUP BY reason", &[])?;
        let notes: Vec<Note> = reading.select("SELECT DISTINCT text FROM warnings ORDER BY at_ns LIMIT 50", &[])?;
        let sampled = |op: &OfOp| {
            let fraction = op.seen as f64 / op.calls.max(1) as f64;
            let rounded = (fraction * 10_000.0).round() / 10_000.0;
            (fraction < SEEN).then(|| Sampled { op: op.op.clone(), fraction: rounded })
        };
        let is_gap = |note: &Note| !gpuwhy_analysis::NO_GAPS.iter().any(|start| note.text.starts_with(start));
        let coverage = Coverage {
            events: ops.iter().map(|op| op.seen).sum(),
            lost: lost.into_iter().map(|lost| (lost.reason, lost.count)).collect(),
            sampled: ops.iter().filter_map(sampled).collect(),
            unattached: notes.into_iter().filter(is_gap).map(|note| note.text).collect(),
            stacks: Vec::new(),
        };
        Ok(Self::saying(reading, coverage))
    }

    /// The same, and how walks over stacks ended.
    pub fn with_stacks(reading: &Reading) -> Result<Self, AskError> {
        let mut basis = Self::of(reading)?;
        basis.coverage.stacks = reading.trace.walks_ended(&reading.scope)?;
        Ok(basis)
    }
}

const OPS: &str = "
SELECT op, sum(count) AS seen, sum(max(estimate, count)) AS calls FROM call_stats
WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?) GROUP BY op ORDER BY op";

/// Before, every call was seen.
const ESTIMATES_SINCE: u32 = 2;

const OPS_SEEN: &str = "
SELECT op, sum(count) AS seen, sum(count) AS calls FROM call_stats
WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?) GROUP BY op ORDER BY op";

/// A function that was seen this much of the time was seen.
const SEEN: f64 = 0.995;

#[derive(Deserialize)]
struct OfOp {
    op: String,
    seen: u64,
    calls: u64,
}

#[derive(Deserialize)]
struct Lost {
    reason: String,
    count: u64,
}

#[derive(Deserialize)]
struct Note {
    text: String,
}
