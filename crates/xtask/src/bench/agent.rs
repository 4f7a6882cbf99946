//! What the agent itself needs while a program makes 10,000 calls a second.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuwhy_store::{Limits, Trace};
use gpuwhy_testbed::Workload;
use serde_json::{Value, json};

use super::gpuwhy::{self, Gpuwhy};
use super::{Place, figure};

const RATE: f64 = 10_000.0;

/// By then the names of kernel functions and the tables of the program's libraries are read, which is done once.
const STARTED_UP: Duration = Duration::from_secs(3);

/// With default settings, and without a budget, when every call gets a row.
pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    Ok(json!({
        "default": measure(place, &binary, &[])?,
        "without_budget": measure(place, &binary, &["--budget", "0"])?,
    }))
}

fn measure(place: &Place, binary: &Path, options: &[&str]) -> Result<Value> {
    let seconds = if place.quick { 6 } else { 20 };
    let mut workload = Workload::new(&place.testbed)
        .mix("launch")
        .threads(1)
        .rate(RATE)
        .duration(Duration::from_secs(seconds))
        .start()?;
    workload.wait_ready()?;
    let out = place.dir.path().join("agent.db");
    let agent = Gpuwhy::trace(binary, &[workload.pid()], &out, options)?;
    let started = (Instant::now(), cpu_seconds(agent.pid())?);
    workload.go()?;
    std::thread::sleep(STARTED_UP);
    let steady = (Instant::now(), cpu_seconds(agent.pid())?);
    let calls: u64 = workload.wait_done()?.calls.iter().map(|calls| calls.calls).sum();
    let now = cpu_seconds(agent.pid())?;
    let wall = started.0.elapsed().as_secs_f64();
    let peak_kib = status_number(agent.pid(), "VmHWM:")?;
    workload.finish()?;
    agent.wait()?;
    let kept = Trace::open(&out)?.query("SELECT count(*) FROM calls", &Limits::default())?;
    std::fs::remove_file(&out)?;
    Ok(json!({
        "calls_per_second": calls as f64 / wall,
        "rows_per_second": kept.rows.first().map_or(f64::NAN, |row| figure(row, 0)) / wall,
        "agent_cpu_percent": (now - started.1) / wall * 100.0,
        "agent_steady_cpu_percent": (now - steady.1) / steady.0.elapsed().as_secs_f64() * 100.0,
        "agent_peak_mb": peak_kib as f64 * 1024.0 / 1e6,
    }))
}

/// User and system time of a process.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').context("no name")?.1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // SAFETY: sysconf has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(ticks as f64 / per_second as f64)
}

/// In KiB.
pub(super) fn status_number(pid: u32, key: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).context("no such line")?;
    Ok(line.split_ascii_whitespace().next().context("no number")?.parse()?)
}
