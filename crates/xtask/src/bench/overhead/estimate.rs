//! What the tracer itself says it costs and keeps, read from its trace file.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use gpuwhy_store::{Limits, Trace, Value as Cell};
use serde_json::{Value, json};

use super::super::figure;

/// Buckets of about a second begin at any time: those count whose middle lies in the span.
const SQL: &str = "
WITH seconds AS (
  SELECT min(bucket_ns) AS from_ns, max(bucket_ns) AS last_ns, max(bucket_ns + wall_ns) AS to_ns,
    sum(cpu_ns) * 1.0 / sum(wall_ns) AS cpus
  FROM agent_usage WHERE bucket_ns + wall_ns / 2 BETWEEN ?2 AND ?3
), threads AS (
  SELECT sum(tracer_ns) * 1.0 / sum(wall_ns) AS share FROM thread_times, seconds
  WHERE pid = ?1 AND bucket_ns + wall_ns / 2 BETWEEN from_ns AND to_ns GROUP BY tid
), counted AS (
  SELECT sum(count) AS seen, sum(estimate) AS made FROM call_stats, seconds
  WHERE pid = ?1 AND bucket_ns BETWEEN from_ns AND last_ns
), kept AS (
  SELECT count(*) AS calls FROM cuda_events, seconds WHERE pid = ?1 AND timestamp_ns BETWEEN from_ns AND to_ns
)
SELECT (SELECT max(share) FROM threads), seconds.cpus / (SELECT max(cpus) FROM sessions),
  kept.calls * 1.0 / counted.seen, counted.seen * 1.0 / counted.made
FROM seconds, counted, kept";

/// Shares, all of them.
pub struct Estimate {
    /// Of the wall time of the thread it takes most from.
    thread: f64,
    /// Of all CPUs, for the tracer's own process.
    agent: f64,
    /// Calls with a row of their own, of those seen.
    kept: f64,
    /// Calls seen, of those made.
    seen: f64,
}

impl Estimate {
    /// What a trace says about a process in a span of Unix time.
    pub fn read(file: &Path, pid: u32, span_ns: Range<i64>) -> Result<Self> {
        let values = [i64::from(pid), span_ns.start, span_ns.end].map(Cell::Integer);
        let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
        let answer = Trace::open(file)?.query_with(SQL, &values, &limits).context("ask the trace what it cost")?;
        let row = answer.rows.first().context("the trace says nothing of its cost")?;
        let share = |column| figure(row, column);
        Ok(Self { thread: share(0), agent: share(1), kept: share(2), seen: share(3) })
    }

    /// The means of several; null when there are none. One second has a burst more than another, so that a median would
    /// leave out what the busier ones cost.
    pub fn middle(estimates: &[&Self]) -> Value {
        if estimates.is_empty() {
            return Value::Null;
        }
        let middle = |figure: fn(&Self) -> f64| {
            let known: Vec<f64> = estimates.iter().map(|one| figure(one)).filter(|share| share.is_finite()).collect();
            known.iter().sum::<f64>() / known.len() as f64
        };
        json!({
            "thread": middle(|estimate| estimate.thread),
            "agent": middle(|estimate| estimate.agent),
            "kept": middle(|estimate| estimate.kept),
            "seen": middle(|estimate| estimate.seen),
        })
    }
}

pub fn unix_ns() -> Result<i64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("read the clock")?;
    Ok(i64::try_from(since.as_nanos())?)
}
