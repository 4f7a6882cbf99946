//! Whether estimates made from bursts hold what they promise: the true number of calls lies within the stated interval,
//! and the 99th percentile of a distribution with two humps is the one that was planned.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_store::{Limits, Trace};
use gpuwhy_testbed::LaunchLoop;
use serde_json::{Value, json};

use super::gpuwhy::{self, Gpuwhy};
use super::statistics::median;
use super::{Place, figure};

const RUNS: usize = 100;
const RATE: f64 = 100_000.0;
const LENGTH: Duration = Duration::from_secs(3);
/// Every fiftieth launch takes this much longer than the others: the 99th percentile lies in the middle of those.
const SLOW_SHARE: f64 = 0.02;
const SLOW: Duration = Duration::from_micros(300);

const SQL: &str = "
SELECT sum(count), sum(estimate), 1.96 * sqrt(sum(variance)),
  percentile_ns(merge_histograms(histogram, fraction), 0.99)
FROM call_stats WHERE op = 'cuLaunchKernel'";

struct Run {
    made: f64,
    seen: f64,
    estimated: f64,
    /// Half of the interval that holds the true number with 95 % probability.
    error: f64,
    p99_ns: f64,
}

impl Run {
    /// How far off it is and how far it says it may be, as shares of the calls that were made.
    fn shares(&self) -> Value {
        json!({"off": self.estimated / self.made - 1.0, "half_interval": self.error / self.made})
    }
}

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let count = if place.quick { 5 } else { RUNS };
    let runs = (0..count).map(|_| once(place, &binary)).collect::<Result<Vec<Run>>>()?;
    let all = |figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
    let off = |run: &Run| (run.estimated - run.made).abs();
    let p99_off = |run: &Run| (run.p99_ns / SLOW.as_nanos() as f64 - 1.0).abs();
    Ok(json!({
        "runs": count,
        "seconds": LENGTH.as_secs_f64(),
        "rate": RATE,
        "seen_share": median(all(|run| run.seen / run.made)),
        "within_interval": runs.iter().filter(|run| off(run) <= run.error).count(),
        "half_interval": median(all(|run| run.error / run.made)),
        "off": median(runs.iter().map(|run| off(run) / run.made).collect()),
        "bias": median(all(|run| run.estimated / run.made - 1.0)),
        "planned_p99_ns": SLOW.as_nanos() as u64,
        "p99_ns": median(all(|run| run.p99_ns)),
        "p99_within_tenth": runs.iter().filter(|run| p99_off(run) <= 0.1).count(),
        "p99_worst_off": runs.iter().map(p99_off).fold(0.0, f64::max),
        "each": runs.iter().map(Run::shares).collect::<Vec<Value>>(),
    }))
}

fn once(place: &Place, binary: &Path) -> Result<Run> {
    let out = place.dir.path().join("estimates.db");
    let mut workload = LaunchLoop::new(&place.testbed).rate(RATE).bimodal(SLOW_SHARE, SLOW).start()?;
    let agent = Gpuwhy::trace(binary, &[workload.pid()], &out, &[])?;
    workload.go()?;
    workload.slice(LENGTH)?;
    let truth = workload.finish()?;
    agent.wait()?;
    let answer = Trace::open(&out)?.query(SQL, &Limits::default()).context("ask for the estimate")?;
    std::fs::remove_file(&out)?;
    let row = answer.rows.first().context("no launch was seen")?;
    let number = |column| figure(row, column);
    let made = truth.threads.iter().map(|thread| thread.calls).sum::<u64>() as f64;
    Ok(Run { made, seen: number(0), estimated: number(1), error: number(2), p99_ns: number(3) })
}
