//! What GPUs say of themselves.

use std::collections::BTreeMap;

use gpuwhy_model::Sample;
use gpuwhy_window::{Device, GpuHealth, GpuWord, Window, Xid};

use super::gpu_faults;
use super::source::{Source, signed};

/// `hosts` says which host each session ran on.
pub(super) fn load(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("samples", "at_ns") {
        return Ok(());
    }
    load_health(source, hosts, window)?;
    gpu_faults::load(source, hosts, window)?;
    load_xids(source, hosts, window)?;
    let sql = "SELECT CAST(device AS INTEGER), avg(value) FILTER (WHERE name = ?1), count(*) FILTER (WHERE name = ?1),
            max(value) FILTER (WHERE name = ?2), session_id
        FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns > ?3 AND at_ns <= ?4 AND name IN (?1, ?2) AND device IS NOT NULL GROUP BY session_id, device";
    let span = (signed(window.from_ns), signed(window.to_ns));
    source.each(sql, (Sample::GPU_UTILIZATION, Sample::GPU_PROCESSES, span.0, span.1), |row| {
        let busy: Option<f64> = row.get(1)?;
        let processes: Option<f64> = row.get(3)?;
        if let (Ok(number), Some(busy)) = (u16::try_from(row.get::<_, i64>(0)?), busy) {
            let moments = row.get::<_, i64>(2)?.unsigned_abs();
            let word = GpuWord { busy: busy.clamp(0.0, 1.0), moments, processes: processes.map(|count| count as u64) };
            let device = Device { host: hosts.get(&row.get(4)?).copied().unwrap_or(0), number };
            let known = window.gpu_words.entry(device).or_insert(word);
            // Of several sessions, the one that heard more.
            if known.moments < word.moments {
                *known = word;
            }
        }
        Ok(())
    })
}

/// Reasons that are no choice of anybody's: the hardware, heat, and the brake of a power supply.
const HELD_DOWN: i64 = 0x08 | 0x20 | 0x40 | 0x80;

fn load_health(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    let sql = "SELECT session_id, CAST(device AS INTEGER), name, count(*), avg(value), min(value), max(value),
            count(*) FILTER (WHERE CAST(value AS INTEGER) & ?1 <> 0), max(CAST(value AS INTEGER) & ?1)
        FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns > ?2 AND at_ns <= ?3 AND name IN (?4, ?5, ?6, ?7) AND device IS NOT NULL
        GROUP BY session_id, device, name";
    let (from_ns, to_ns) = (signed(window.from_ns), signed(window.to_ns));
    let names = (Sample::GPU_THROTTLE, Sample::GPU_CLOCK, Sample::GPU_MOST_CLOCK, Sample::GPU_MEMORY_ERRORS);
    let mut clocks: BTreeMap<Device, (f64, f64)> = BTreeMap::new();
    source.each(sql, (HELD_DOWN, from_ns, to_ns, names.0, names.1, names.2, names.3), |row| {
        let Ok(number) = u16::try_from(row.get::<_, i64>(1)?) else { return Ok(()) };
        let device = Device { host: hosts.get(&row.get(0)?).copied().unwrap_or(0), number };
        let (count, average, least, most) =
            (row.get::<_, i64>(3)?, row.get::<_, f64>(4)?, row.get::<_, f64>(5)?, row.get::<_, f64>(6)?);
        let health = window.gpu_health.entry(device).or_default();
        match row.get::<_, String>(2)?.as_str() {
            Sample::GPU_THROTTLE => {
                let [held_down, reasons] = [row.get::<_, i64>(7)?, row.get(8)?].map(i64::unsigned_abs);
                *health = GpuHealth { moments: count.unsigned_abs(), held_down, reasons, ..*health };
            }
            Sample::GPU_MEMORY_ERRORS => health.memory_errors = (most - least) as u64,
            Sample::GPU_CLOCK => clocks.entry(device).or_default().0 = average,
            _ => clocks.entry(device).or_default().1 = most,
        }
        Ok(())
    })?;
    for (device, (clock, most)) in clocks.into_iter().filter(|(_, (clock, most))| *clock > 0.0 && *most > 0.0) {
        window.gpu_health.entry(device).or_default().speed = Some((clock / most).min(1.0));
    }
    Ok(())
}

fn load_xids(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    let sql =
        "SELECT session_id, device, at_ns, max(value) FILTER (WHERE name = ?1), max(value) FILTER (WHERE name = ?2)
        FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns > ?3 AND at_ns <= ?4 AND name IN (?1, ?2) AND device IS NOT NULL
        GROUP BY session_id, device, at_ns ORDER BY at_ns";
    let (from_ns, to_ns) = (signed(window.from_ns), signed(window.to_ns));
    source.each(sql, (Sample::GPU_XID, Sample::GPU_XID_PID, from_ns, to_ns), |row| {
        let (code, pid): (Option<f64>, Option<f64>) = (row.get(3)?, row.get(4)?);
        let host = hosts.get(&row.get(0)?).copied().unwrap_or(0);
        let at_ns = row.get::<_, i64>(2)?.unsigned_abs();
        if let Some(code) = code {
            let (device, pid) = (row.get(1)?, pid.map(|pid| pid as u32));
            window.xids.push(Xid { at_ns, host, device, code: code as u32, pid });
        }
        Ok(())
    })
}
