//! A trace as it is at one moment, in a file of its own, while it goes on being written.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::reader::log_of;
use crate::{StoreError, Trace};

/// What is copied between two looks at whether anybody still waits.
const PAGES: i32 = 1_000;

impl Trace {
    /// What its file and what has yet to be folded into it have at most.
    pub fn size(&self) -> u64 {
        let bytes = |path: &Path| path.metadata().map_or(0, |found| found.len());
        bytes(self.path()).saturating_add(bytes(&log_of(self.path())))
    }

    /// Copies all of it into an empty file. What is there when it is cancelled is no trace.
    pub fn copy(&self, into: &Path, cancelled: &AtomicBool) -> Result<(), StoreError> {
        let failed = |error| StoreError::from_sqlite(into, error);
        let mut copy = Connection::open(into).map_err(failed)?;
        // Who has half a copy begins again.
        copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").map_err(failed)?;
        let is_whole = self.at_one_moment(|connection| {
            let backup = Backup::new(connection, &mut copy)?;
            while !cancelled.load(Ordering::Relaxed) {
                if backup.step(PAGES)? == StepResult::Done {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        match is_whole.map_err(failed)? {
            true => Ok(()),
            false => Err(StoreError::Cancelled { path: self.path().to_owned() }),
        }
    }
}
