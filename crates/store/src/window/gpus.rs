//! What GPUs say of themselves.

use gpuwhy_model::Sample;
use gpuwhy_window::{GpuWord, Window};

use super::source::{Source, signed};

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("samples", "at_ns") {
        return Ok(());
    }
    let sql = "SELECT CAST(device AS INTEGER), avg(value) FILTER (WHERE name = ?1), count(*) FILTER (WHERE name = ?1),
            max(value) FILTER (WHERE name = ?2)
        FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns > ?3 AND at_ns <= ?4 AND name IN (?1, ?2) AND device IS NOT NULL GROUP BY device";
    let span = (signed(window.from_ns), signed(window.to_ns));
    source.each(sql, (Sample::GPU_UTILIZATION, Sample::GPU_PROCESSES, span.0, span.1), |row| {
        let busy: Option<f64> = row.get(1)?;
        let processes: Option<f64> = row.get(3)?;
        if let (Ok(device), Some(busy)) = (u16::try_from(row.get::<_, i64>(0)?), busy) {
            let moments = row.get::<_, i64>(2)?.unsigned_abs();
            let word = GpuWord { busy: busy.clamp(0.0, 1.0), moments, processes: processes.map(|count| count as u64) };
            window.gpu_words.insert(device, word);
        }
        Ok(())
    })
}
