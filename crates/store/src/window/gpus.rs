//! What GPUs say of themselves.

use std::collections::BTreeMap;

use gpuwhy_model::Sample;
use gpuwhy_window::{Device, GpuWord, Window};

use super::source::{Source, signed};

/// `hosts` says which host each session ran on.
pub(super) fn load(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("samples", "at_ns") {
        return Ok(());
    }
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
