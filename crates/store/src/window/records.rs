//! Stretches off the CPU, kernel work and block I/O.

use gpuwhy_model::{Record, Span};
use gpuwhy_window::{Covered, Window};

use super::source::Source;
use crate::cells::read;

/// The most rows that are kept in memory, about 130 bytes each.
const MOST_STRETCHES: usize = 500_000;
const MOST_WORK: usize = 100_000;
const MOST_REQUESTS: usize = 50_000;

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("stretches", "start_ns") {
        window.gaps.push("the file is of an earlier version, without waits and who ended them".to_owned());
        return Ok(());
    }
    let span = Span { from_ns: window.from_ns, to_ns: window.to_ns };
    window.stretches = in_time(source, span, MOST_STRETCHES)?;
    window.kernel_work = in_time(source, span, MOST_WORK)?;
    window.io_requests = in_time(source, span, MOST_REQUESTS)?;
    Ok(())
}

fn in_time<R: Record>(source: &Source<'_>, span: Span, most: usize) -> rusqlite::Result<Covered<R>> {
    let select = source.select::<R>("");
    let sql = format!("{select} WHERE start_ns >= ? AND start_ns < ? ORDER BY start_ns LIMIT ?");
    source.covered(&sql, span, most, |row| Ok(read(row, 0)))
}
