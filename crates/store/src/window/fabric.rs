//! What ports of the fabric between hosts counted, and what processes were told of it.

use std::collections::BTreeMap;

use gpuwhy_model::Sample;
use gpuwhy_window::{FabricErrors, Window};
use rusqlite::params_from_iter;

use super::source::{Source, signed};

/// Counters are read so often, so that what happened in a window is known by then.
const READ_EVERY_NS: u64 = 5_000_000_000;

/// `hosts` says which host each session ran on.
pub(super) fn load(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    counters(source, hosts, window)?;
    events(source, hosts, window)
}

/// What processes were told.
fn events(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("rdma_events", "event") {
        return Ok(());
    }
    let sql = "SELECT processes.session_id, processes.comm, processes.pid, rdma_events.event, count(*)
        FROM rdma_events JOIN processes ON processes.id = rdma_events.process_id
        WHERE timestamp_ns >= ? AND timestamp_ns < ? AND is_fabric_error
        GROUP BY processes.id, rdma_events.event ORDER BY 1, 3, 4";
    source.each(sql, [signed(window.from_ns), signed(window.to_ns)], |row| {
        let (comm, pid): (String, u32) = (row.get(1)?, row.get(2)?);
        window.fabric_errors.push(FabricErrors {
            host: hosts.get(&row.get(0)?).copied().unwrap_or(0),
            port: format!("a device of {comm} ({pid})"),
            counter: row.get(3)?,
            count: row.get::<_, i64>(4)?.unsigned_abs(),
        });
        Ok(())
    })
}

fn counters(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("samples", "at_ns") {
        return Ok(());
    }
    let names = vec!["?"; Sample::FABRIC_ERRORS.len()].join(", ");
    let (from_ns, to_ns) = (window.from_ns.saturating_sub(READ_EVERY_NS), window.to_ns.saturating_add(READ_EVERY_NS));
    let (from_ns, to_ns) = (signed(from_ns), signed(to_ns));
    let sql = format!(
        "SELECT session_id, device, name, CAST(max(value) - min(value) AS INTEGER)
        FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns >= {from_ns} AND at_ns <= {to_ns} AND device IS NOT NULL AND name IN ({names})
        GROUP BY series_id HAVING max(value) > min(value) ORDER BY 1, 2, 3"
    );
    source.each(&sql, params_from_iter(Sample::FABRIC_ERRORS), |row| {
        let name: String = row.get(2)?;
        window.fabric_errors.push(FabricErrors {
            host: hosts.get(&row.get(0)?).copied().unwrap_or(0),
            port: row.get(1)?,
            counter: name.strip_prefix("rdma.").unwrap_or(&name).to_owned(),
            count: row.get::<_, i64>(3)?.unsigned_abs(),
        });
        Ok(())
    })
}
