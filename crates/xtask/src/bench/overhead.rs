//! How much slower a program gets when it is traced, by how often it calls and by how it is traced, and whether the
//! tracer knows.
//!
//! For each rate one process runs all the time. Ways to watch it come and go, and each traced slice is set against the
//! untraced ones just before and after it, so that a slow minute of the machine hits both. Tracers are started for each
//! of their slices and ended after it: in an untraced one there is no hook of anybody. Being untraced is one of the ways:
//! what that "costs" is the noise.

mod estimate;
mod ways;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_testbed::{LaunchLoop, RunningLoop, Slice};
use serde_json::{Value, json};

use self::estimate::Estimate;
use self::ways::{MOST_TURNS, WAYS, Way};
use super::statistics::{median, summary};
use super::{Place, gpuwhy};

pub use self::ways::BUSY_RATE;

const RATES: &[u32] = &[100, 1_000, 10_000, 50_000, 100_000, 200_000];
const THREADS: &[u32] = &[1, 2];
/// Pairs of a traced and an untraced stretch where nothing else is asked for.
const PAIRS: usize = 3;

const UNTRACED_SLICE: Duration = Duration::from_secs(1);
/// As long as the untraced slices before and after it together.
const TRACED_SLICE: Duration = Duration::from_secs(2);
/// The kernel may still remove probes when a tracer is gone.
const AFTER_A_TRACER: Duration = Duration::from_millis(300);

/// What there is in untraced slices. Results from before it was written are of a tracer that was suspended.
pub const NO_TRACER: &str = "no tracer";

/// What is measured in one process.
#[derive(Clone, Copy)]
struct Cell {
    rate: u32,
    threads: u32,
}

/// One traced slice between two untraced ones, as shares of the untraced speed.
struct Pair {
    untraced_per_second: f64,
    traced_per_second: f64,
    slowdown: f64,
    cpu_slowdown: f64,
    estimate: Option<Estimate>,
}

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let mut rows = Vec::new();
    for cell in cells(place.quick) {
        let pairs = pairs(place);
        eprintln!("  {} calls/s, {} thread(s), {pairs} pairs", cell.rate, cell.threads);
        rows.extend(Run { place, binary: &binary, cell }.measure(pairs)?);
    }
    Ok(json!({
        "baseline": NO_TRACER,
        "untraced_slice_ms": UNTRACED_SLICE.as_millis() as u64,
        "traced_slice_ms": TRACED_SLICE.as_millis() as u64,
        "rows": rows,
    }))
}

fn cells(quick: bool) -> Vec<Cell> {
    let all = THREADS.iter().flat_map(|&threads| RATES.iter().map(move |&rate| Cell { rate, threads }));
    all.filter(|cell| !quick || cell.rate == BUSY_RATE || (cell.rate == 10_000 && cell.threads == 1)).collect()
}

fn pairs(place: &Place) -> usize {
    place.pairs.unwrap_or(if place.quick { 1 } else { PAIRS })
}

struct Run<'a> {
    place: &'a Place,
    binary: &'a Path,
    cell: Cell,
}

impl Run<'_> {
    /// Every way in turn, as often as there are to be pairs.
    fn measure(&self, pairs: usize) -> Result<Vec<Value>> {
        let Cell { rate, threads } = self.cell;
        let mut workload = LaunchLoop::new(&self.place.testbed).threads(threads).rate(rate.into()).start()?;
        workload.go()?;
        workload.slice(UNTRACED_SLICE).context("warm up")?;
        let ways: Vec<&Way> = WAYS.iter().filter(|way| way.is_for(rate, threads)).collect();
        let mut results: Vec<Vec<Pair>> = ways.iter().map(|_| Vec::new()).collect();
        let mut before = workload.slice(UNTRACED_SLICE)?;
        let is_busy = rate == BUSY_RATE && threads == 1;
        for turn in 0..pairs * MOST_TURNS {
            for (way, results) in ways.iter().zip(&mut results).filter(|(way, _)| turn < pairs * way.turns(is_busy)) {
                let traced = self.traced(way, &mut workload).with_context(|| format!("measure {}", way.name))?;
                std::thread::sleep(AFTER_A_TRACER);
                let after = workload.slice(UNTRACED_SLICE)?;
                results.push(pair(&before, traced, &after));
                before = after;
            }
        }
        workload.finish()?;
        Ok(ways.iter().zip(results).map(|(way, pairs)| self.row(way, &pairs)).collect())
    }

    fn traced(&self, way: &Way, workload: &mut RunningLoop) -> Result<(Slice, Option<Estimate>)> {
        let pid = workload.pid();
        let watching = way.start(self.place, self.binary, pid, &self.out())?;
        std::thread::sleep(way.settle());
        let from_ns = estimate::unix_ns()?;
        let slice = workload.slice(TRACED_SLICE)?;
        let span_ns = from_ns..estimate::unix_ns()?;
        if !watching.stop()? {
            return Ok((slice, None));
        }
        let estimate = Estimate::read(&self.out(), pid, span_ns)?;
        std::fs::remove_file(self.out())?;
        Ok((slice, Some(estimate)))
    }

    fn out(&self) -> PathBuf {
        self.place.dir.path().join("overhead.db")
    }

    fn row(&self, way: &Way, pairs: &[Pair]) -> Value {
        let all = |figure: fn(&Pair) -> f64| pairs.iter().map(figure).collect::<Vec<f64>>();
        let per_thread = |figure| median(all(figure)) / f64::from(self.cell.threads);
        let estimates: Vec<&Estimate> = pairs.iter().filter_map(|pair| pair.estimate.as_ref()).collect();
        json!({
            "rate": self.cell.rate,
            "threads": self.cell.threads,
            "way": way.name,
            "budget": way.budget,
            "rung": way.rung,
            "pairs": pairs.len(),
            "untraced_per_second": per_thread(|pair| pair.untraced_per_second),
            "traced_per_second": per_thread(|pair| pair.traced_per_second),
            "slowdown": summary(all(|pair| pair.slowdown)),
            "cpu_slowdown": summary(all(|pair| pair.cpu_slowdown)),
            "slowdowns": all(|pair| pair.slowdown),
            "estimate": Estimate::middle(&estimates),
        })
    }
}

fn pair(before: &Slice, (traced, estimate): (Slice, Option<Estimate>), after: &Slice) -> Pair {
    let untraced = |figure: fn(&Slice) -> f64| f64::midpoint(figure(before), figure(after));
    let slowdown = |figure: fn(&Slice) -> f64| 1.0 - figure(&traced) / untraced(figure);
    Pair {
        untraced_per_second: untraced(Slice::rounds_per_second),
        traced_per_second: traced.rounds_per_second(),
        slowdown: slowdown(Slice::rounds_per_second),
        cpu_slowdown: slowdown(Slice::rounds_per_cpu_second),
        estimate,
    }
}
