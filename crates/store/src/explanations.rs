//! Findings that are kept in the trace they are about. What they say is not known here: they are one text.

use std::path::Path;

use rusqlite::params;

use crate::StoreError;
use crate::lock::WriterLock;
use crate::writer::connect_again;

/// What was found in a trace, by whom and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptExplanation {
    pub at_ns: u64,
    /// The gpuwhy that found it.
    pub version: String,
    pub json: String,
}

impl KeptExplanation {
    /// A longer text could not be read again: no row may be too long for a guarded query.
    pub const MOST_BYTES: usize = 250_000;
}

/// Adds it to the last session of a trace that nobody writes any more. A file that would exceed its greatest size is left
/// as it is.
pub fn keep_explanation(path: &Path, kept: &KeptExplanation, max_size: Option<u64>) -> Result<(), StoreError> {
    let path = std::path::absolute(path).map_err(|error| StoreError::from_io(path, error))?;
    let size = path.metadata().map_err(|error| StoreError::from_io(&path, error))?.len();
    if max_size.is_some_and(|most| size.saturating_add(2 * kept.json.len() as u64) > most) {
        return Err(StoreError::CapReached { path });
    }
    let lock = WriterLock::take(&path)?;
    let connection = connect_again(&path, &lock)?;
    let sql = "INSERT OR REPLACE INTO explanations SELECT max(id), ?, ?, ? FROM sessions HAVING max(id) IS NOT NULL";
    let at_ns = i64::try_from(kept.at_ns).unwrap_or(i64::MAX);
    let written = connection.execute(sql, params![at_ns, kept.version, kept.json]);
    written.map(drop).map_err(|error| StoreError::from_sqlite(&path, error))
}
