//! Stacks with the time that passed in them.

use gpuwhy_questions::Reading;
use gpuwhy_questions::questions::stacks::Of;
use gpuwhy_store::{Filter, Limits, StackTime};

use crate::{Export, ExportError};

/// More differ from each other in what does not matter.
const MOST: usize = 100_000;

pub fn of_kind(reading: &Reading, of: Of) -> Result<Vec<StackTime>, ExportError> {
    if !reading.trace.has_stacks()? {
        return Ok(Vec::new());
    }
    let filter = Filter {
        since_ns: reading.scope.from_ns,
        until_ns: reading.scope.to_ns,
        pid: reading.scope.pid,
        ..Filter::default()
    };
    let limits = Limits { rows: MOST, bytes: usize::MAX, ..reading.limits() };
    Ok(reading.trace.stack_times(of.into(), &filter, &limits)?.rows)
}

/// Lines as flame graph tools read them.
pub fn folded(export: &Export<'_>) -> Result<Vec<String>, ExportError> {
    let of = export.stacks_of;
    let lines = gpuwhy_questions::folded(of.into(), &of_kind(&export.asked.read(export.part)?, of)?);
    if lines.is_empty() { Err(ExportError::NoStacks { of: named(of) }) } else { Ok(lines) }
}

pub fn named(of: Of) -> &'static str {
    match of {
        Of::Calls => "calls",
        Of::Waits => "waits",
        Of::Wakers => "wakers",
        Of::Running => "threads that ran",
    }
}
