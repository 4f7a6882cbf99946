//! Stretches off the CPU, kernel work, block I/O, and when frequent calls were watched.

use gpuwhy_model::{Record, Sample, Span, Standstill, TcpEvent};
use gpuwhy_window::{Covered, Window};

use super::source::{Source, signed, unsigned};
use crate::cells::read;

/// The most rows that are kept in memory, about 130 bytes each.
const MOST_STRETCHES: usize = 500_000;
const MOST_WORK: usize = 100_000;
const MOST_REQUESTS: usize = 50_000;
const MOST_TCP_EVENTS: usize = 50_000;
const MOST_STANDSTILLS: usize = 20_000;

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    window.watched = watched(source, window)?;
    if !source.has("stretches", "start_ns") {
        window.gaps.push("the file is of an earlier version, without waits and who ended them".to_owned());
        return Ok(());
    }
    let span = Span { from_ns: window.from_ns, to_ns: window.to_ns };
    window.stretches = in_time(source, span, MOST_STRETCHES)?;
    window.kernel_work = in_time(source, span, MOST_WORK)?;
    window.io_requests = in_time(source, span, MOST_REQUESTS)?;
    tcp_events(source, window)?;
    standstills(source, window)
}

/// The last ones that were seen in the window.
fn standstills(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("standstills", "start_ns") {
        return Ok(());
    }
    let select = source.select::<Standstill>("");
    let sql = format!("{select} WHERE seen_ns >= ? AND start_ns < ? ORDER BY seen_ns DESC LIMIT ?");
    let most = MOST_STANDSTILLS as i64;
    source.each(&sql, (signed(window.from_ns), signed(window.to_ns), most), |row| {
        window.standstills.extend(read::<Standstill>(row, 0));
        Ok(())
    })
}

fn tcp_events(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let select = source.select::<TcpEvent>("");
    let sql = format!("{select} WHERE timestamp_ns >= ? AND timestamp_ns < ? ORDER BY timestamp_ns LIMIT ?");
    let most = MOST_TCP_EVENTS as i64;
    source.each(&sql, (signed(window.from_ns), signed(window.to_ns), most), |row| {
        window.tcp_events.extend(read::<TcpEvent>(row, 0));
        Ok(())
    })
}

fn in_time<R: Record>(source: &Source<'_>, span: Span, most: usize) -> rusqlite::Result<Covered<R>> {
    source.covered(&source.select_in_time::<R>(), span, most, |row| Ok(read(row, 0)))
}

fn watched(source: &Source<'_>, window: &Window) -> rusqlite::Result<Vec<Span>> {
    let mut watched = Vec::new();
    if !source.has("samples", "at_ns") {
        return Ok(watched);
    }
    let sql = "SELECT at_ns, CAST(value AS INTEGER) FROM samples
        WHERE series_id IN (SELECT id FROM sample_series WHERE name = ?) AND at_ns > ? ORDER BY at_ns";
    source.each(sql, (Sample::WATCHED, window.from_ns as i64), |row| {
        let to_ns = unsigned(row, 0)?;
        let span = Span { from_ns: to_ns.saturating_sub(unsigned(row, 1)?), to_ns };
        let within = Span { from_ns: span.from_ns.max(window.from_ns), to_ns: span.to_ns.min(window.to_ns) };
        watched.extend((within.from_ns < within.to_ns).then_some(within));
        Ok(())
    })?;
    Ok(watched)
}
