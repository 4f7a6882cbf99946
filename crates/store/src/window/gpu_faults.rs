//! What of GPUs is broken, by their own word.

use std::collections::BTreeMap;

use gpuwhy_model::Sample;
use gpuwhy_window::{Device, GpuFaults, GpuLinkFault, GpuLost, LinkSlowed, Window};
use rusqlite::params_from_iter;

use super::source::{Source, signed};

/// What is looked at beside the errors of links between GPUs.
const NAMES: &[&str] = &[
    Sample::GPU_LOST,
    Sample::GPU_LINK_WIDTH,
    Sample::GPU_MOST_LINK_WIDTH,
    Sample::GPU_WORKING_LINK,
    Sample::GPU_MOST_LINK,
    Sample::GPU_NVLINK_DOWN,
    Sample::GPU_ROWS_PENDING,
    Sample::GPU_PAGES_PENDING,
    Sample::GPU_ROWS_FAILED,
];

/// One thing that was measured again and again in the window.
struct Series {
    session: i64,
    /// The number of the GPU, or `0/3` for a part of it.
    device: String,
    name: String,
    least: f64,
    most: f64,
    sum: f64,
    /// When it was first more than 0.
    first_ns: Option<u64>,
}

/// `hosts` says which host each session ran on.
pub(super) fn load(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    let all = all_series(source, window)?;
    for series in &all {
        let (number, part) = series.device.split_once('/').unwrap_or((&series.device, ""));
        let Ok(number) = number.parse() else { continue };
        let device = Device { host: hosts.get(&series.session).copied().unwrap_or(0), number };
        let slowed = match series.name.as_str() {
            Sample::GPU_WORKING_LINK => slowed(source, &all, series, Sample::GPU_MOST_LINK, window)?,
            Sample::GPU_LINK_WIDTH => slowed(source, &all, series, Sample::GPU_MOST_LINK_WIDTH, window)?,
            _ => None,
        };
        if slowed.is_some() || series.tells_of_fault() {
            note(window.gpu_faults.entry(device).or_default(), series, part, slowed);
        }
    }
    Ok(())
}

fn all_series(source: &Source<'_>, window: &Window) -> rusqlite::Result<Vec<Series>> {
    let names: Vec<&str> = NAMES.iter().chain(Sample::GPU_NVLINK_ERRORS).copied().collect();
    let (from_ns, to_ns) = (signed(window.from_ns), signed(window.to_ns));
    let sql = format!(
        "SELECT session_id, device, name, min(value), max(value), sum(value), min(at_ns) FILTER (WHERE value > 0)
        FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns > {from_ns} AND at_ns <= {to_ns} AND device IS NOT NULL AND name IN ({})
        GROUP BY series_id ORDER BY session_id, device, name",
        vec!["?"; names.len()].join(", ")
    );
    let mut all = Vec::new();
    source.each(&sql, params_from_iter(names), |row| {
        all.push(Series {
            session: row.get(0)?,
            device: row.get(1)?,
            name: row.get(2)?,
            least: row.get(3)?,
            most: row.get(4)?,
            sum: row.get(5)?,
            first_ns: row.get::<_, Option<i64>>(6)?.map(i64::unsigned_abs),
        });
        Ok(())
    })?;
    Ok(all)
}

impl Series {
    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }

    /// Of what says by being more than 0 that something is broken.
    fn tells_of_fault(&self) -> bool {
        const STATES: &[&str] = &[
            Sample::GPU_LOST,
            Sample::GPU_NVLINK_DOWN,
            Sample::GPU_ROWS_PENDING,
            Sample::GPU_PAGES_PENDING,
            Sample::GPU_ROWS_FAILED,
        ];
        self.first_ns.is_some() && (self.is(STATES) || self.is(Sample::GPU_NVLINK_ERRORS))
    }
}

fn note(faults: &mut GpuFaults, series: &Series, part: &str, slowed: Option<LinkSlowed>) {
    match series.name.as_str() {
        Sample::GPU_WORKING_LINK => faults.link_generation = slowed,
        Sample::GPU_LINK_WIDTH => faults.link_width = slowed,
        Sample::GPU_LOST => {
            let at_ns = series.first_ns.unwrap_or_default();
            faults.lost = Some(GpuLost { at_ns, had_answered: series.least < Sample::GPU_NEVER_THERE });
        }
        Sample::GPU_ROWS_PENDING | Sample::GPU_PAGES_PENDING => {
            faults.repair_pending = true;
            faults.repair_is_new |= series.least == 0.0;
        }
        Sample::GPU_ROWS_FAILED => faults.repair_failed = true,
        name => {
            let Ok(number) = part.parse() else { return };
            let link = link(&mut faults.links, number);
            let count = series.sum as u64;
            match Sample::GPU_NVLINK_ERRORS.iter().position(|kind| *kind == name) {
                Some(0) => link.replays = count,
                Some(1) => link.recoveries = count,
                Some(_) => link.damaged = count,
                None => link.is_down = true,
            }
        }
    }
}

/// The link with this number.
fn link(links: &mut Vec<GpuLinkFault>, number: u32) -> &mut GpuLinkFault {
    let at = links.partition_point(|link| link.number < number);
    if links.get(at).is_none_or(|link| link.number != number) {
        links.insert(at, GpuLinkFault { number, ..GpuLinkFault::default() });
    }
    &mut links[at]
}

/// Where something was less than the most that it can be.
fn slowed(
    source: &Source<'_>,
    all: &[Series],
    now: &Series,
    most: &str,
    window: &Window,
) -> rusqlite::Result<Option<LinkSlowed>> {
    let is_most = |one: &&Series| one.session == now.session && one.device == now.device && one.name == most;
    let Some(most) = all.iter().find(is_most).map(|one| one.most).filter(|most| now.least < *most) else {
        return Ok(None);
    };
    let own = "FROM samples JOIN sample_series ON sample_series.id = samples.series_id
        WHERE at_ns > ?1 AND at_ns <= ?2 AND session_id = ?3 AND device = ?4 AND name = ?5";
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE value < ?6),
            count(*) FILTER (WHERE at_ns > (SELECT coalesce(max(at_ns), 0) {own} AND value >= ?6)) {own}"
    );
    let (from_ns, to_ns) = (signed(window.from_ns), signed(window.to_ns));
    let mut found = None;
    source.each(&sql, (from_ns, to_ns, now.session, &now.device, &now.name, most), |row| {
        let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
        let (moments, slow, last_slow) = (count(0)?, count(1)?, count(2)?);
        found = Some(LinkSlowed { moments, slow, last_slow, least: now.least as u32, most: most as u32 });
        Ok(())
    })?;
    Ok(found)
}
