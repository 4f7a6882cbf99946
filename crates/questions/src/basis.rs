//! What an answer is based on.

use gpuwhy_analysis::seen_in_part;
use gpuwhy_model::{Coverage, NoteKind, Span};
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

    pub fn read(reading: &Reading) -> Result<Self, AskError> {
        let ops: Vec<OfOp> = reading.select(OPS, &reading.bucket_bounds())?;
        let lost: Vec<Lost> = reading.select("SELECT reason, sum(count) AS count FROM losses GROUP BY reason", &[])?;
        let notes: Vec<Note> =
            reading.select("SELECT DISTINCT kind, text FROM warnings ORDER BY at_ns LIMIT 50", &[])?;
        let others = reading.number(OTHERS, &reading.bounds()[..3])?;
        let is_gap = |note: &Note| NoteKind::from_word(&note.kind).tells_of_gap();
        let gaps = notes.into_iter().filter(is_gap).map(|note| note.text);
        let coverage = Coverage {
            events: ops.iter().map(|op| op.seen).sum::<u64>().saturating_add(others),
            lost: lost.into_iter().map(|lost| (lost.reason, lost.count)).collect(),
            sampled: ops.iter().filter_map(|op| seen_in_part(&op.op, op.seen, op.calls)).collect(),
            unattached: gaps.chain(reading.is_widened().then(|| WIDENED.to_owned())).collect(),
            stacks: Vec::new(),
        };
        Ok(Self::saying(reading, coverage))
    }

    /// The same, and how walks over stacks ended.
    pub fn with_stacks(reading: &Reading) -> Result<Self, AskError> {
        let mut basis = Self::read(reading)?;
        basis.coverage.stacks = reading.trace.walks_ended(&reading.scope)?;
        Ok(basis)
    }
}

const OPS: &str = "
SELECT op, sum(count) AS seen, sum(max(estimate, count)) AS calls FROM call_stats
WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?) GROUP BY op ORDER BY op";

/// Records of other kinds than calls, as analysis counts them.
const OTHERS: &str = "
WITH own AS MATERIALIZED (SELECT threads.id FROM threads CROSS JOIN processes ON processes.id = process_id WHERE pid = ?3)
SELECT (SELECT count(*) FROM stretches
    WHERE start_ns >= ?1 AND start_ns < ?2 AND (?3 IS NULL OR thread_id IN own))
  + (SELECT count(*) FROM kernel_work
    WHERE start_ns >= ?1 AND start_ns < ?2 AND (?3 IS NULL OR thread_id IN own))
  + (SELECT count(*) FROM io_requests
    WHERE start_ns >= ?1 AND start_ns < ?2 AND (?3 IS NULL OR waiter_thread_id IN own)) AS number";

const WIDENED: &str =
    "sums are kept for each second: where calls or clocks are added up, it is for the second around this part";

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
    kind: String,
    text: String,
}
