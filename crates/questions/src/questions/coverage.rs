use clap::Args;
use gpuwhy_model::{LossReason, UnixNs};
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Paging, Part};

/// What was seen, sampled and lost, and what the tracer itself took: losses by reason, how closely each function was
/// watched and why, warnings, how walks over stacks ended, the tracer's CPU time, and its share of each thread's time
/// against its budget.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Coverage {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SeenAndLost {
    #[serde(flatten)]
    pub basis: Basis,
    /// Runs of the tracer, the last 20.
    pub sessions: Vec<TracerSession>,
    /// What was not kept, over all of the trace, the most first.
    pub losses: Vec<Loss>,
    /// Functions of which not every call was seen.
    pub sampled: Vec<SeenInPart>,
    /// When the tracer began to watch a function more or less closely, in order.
    pub rungs: Vec<RungChange>,
    /// What the tracer said, the last 100.
    pub warnings: Vec<Warning>,
    /// How walks over stacks ended, and how long they took.
    pub stacks: Vec<WalkTime>,
    /// What one thing costs on this machine, as measured when the tracer began.
    pub calibrations: Vec<Cost>,
    /// What the tracer itself took over time, at most 200 points.
    pub agent: Vec<AgentPoint>,
    /// Share of each thread's time that tracing took, the worst first. At most 100.
    pub threads: Vec<TracedThread>,
    /// What to say as `after` for the next rung changes, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TracerSession {
    pub id: i64,
    #[schemars(with = "UnixNs")]
    pub started_ns: u64,
    /// Null while it runs, and when the tracer was killed.
    #[schemars(with = "Option<UnixNs>")]
    pub ended_ns: Option<u64>,
    pub end_reason: Option<String>,
    pub version: String,
    pub host: String,
    pub kernel: String,
    /// How probes are attached.
    pub attach_path: String,
    /// What a traced call costs more than an untraced one, as measured.
    pub probe_cost_ns: Option<u64>,
    /// Finished calls that the kernel counted; known at the end. `seen = stored + lost calls`.
    pub seen: Option<u64>,
    pub stored: u64,
    /// CPU time of the tracer's process; known at the end.
    pub agent_cpu_ns: Option<u64>,
    /// Share of each thread's time that tracing may take; null where it was not limited.
    pub budget: Option<f64>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Loss {
    pub reason: String,
    pub count: u64,
    /// What one unit of it is.
    pub meaning: &'static str,
    /// Whether each unit is a finished call that is counted and has no record of its own.
    pub is_call: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SeenInPart {
    pub op: String,
    pub seen: u64,
    /// How many there were, estimated.
    pub estimate: u64,
    /// Share of the calls that were seen.
    pub fraction: f64,
    /// The true number lies within so many of the estimate with 95 % confidence.
    pub error_95: f64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RungChange {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub pid: u32,
    pub comm: String,
    pub op: String,
    /// everything, slow-only, bursts or counters.
    pub rung: String,
    /// Share of the time in which it is watched from then on.
    pub fraction: f64,
    pub reason: String,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Warning {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub text: String,
    /// What it is about: attached, not-attached, suspended, clock, stacks or other.
    pub kind: String,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WalkTime {
    pub moment: String,
    pub end: String,
    pub python_end: String,
    pub count: u64,
    /// All of them together.
    pub walking_ns: u64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Cost {
    pub session_id: i64,
    pub what: String,
    pub ns: f64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AgentPoint {
    #[schemars(with = "UnixNs")]
    pub from_ns: u64,
    pub wall_ns: u64,
    /// CPU time of the tracer's own process.
    pub cpu_ns: u64,
    /// Run time of its scheduler and process hooks in the kernel, on all CPUs.
    pub hooks_ns: u64,
    /// How long a program at the entry or return of a call runs, as last measured.
    pub call_program_ns: u64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TracedThread {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub wall_ns: u64,
    /// Estimated from exact counts and what each costs.
    pub tracer_ns: u64,
    pub share: f64,
    /// Its worst second, and the share in that.
    #[schemars(with = "UnixNs")]
    pub worst_ns: u64,
    pub worst_share: f64,
}

/// Versions in which these came to be.
const COSTS_SINCE: u32 = 2;
const STACKS_SINCE: u32 = 4;

/// The most points of the agent's series.
const POINTS: u64 = 200;

impl Ask for Coverage {
    const NAME: &'static str = "coverage";

    type Answer = SeenAndLost;

    fn ask(&self, asked: &Asked<'_>) -> Result<SeenAndLost, AskError> {
        let reading = asked.read(&self.part)?;
        let buckets = reading.bucket_bounds();
        let since = |version: u32| reading.trace.version() >= version;
        let costs = since(COSTS_SINCE);
        let mut rungs = if costs { reading.select(RUNGS, &self.rung_values(&reading)?)? } else { Vec::new() };
        let next = self.paging.cut(&mut rungs)?;
        Ok(SeenAndLost {
            basis: Basis::with_stacks(&reading)?,
            sessions: reading.select(&sessions_sql(costs), &[])?,
            losses: losses(&reading)?,
            sampled: if costs { reading.select(SAMPLED, &buckets)? } else { Vec::new() },
            rungs,
            warnings: reading.select(WARNINGS, &[])?,
            stacks: if since(STACKS_SINCE) { reading.select(WALKS, &buckets[..2])? } else { Vec::new() },
            calibrations: if costs { reading.select(CALIBRATIONS, &[])? } else { Vec::new() },
            agent: if costs { reading.select(AGENT, &agent_values(&reading))? } else { Vec::new() },
            threads: if costs { reading.select(THREADS, &buckets)? } else { Vec::new() },
            next,
        })
    }
}

impl Coverage {
    fn rung_values(&self, reading: &Reading) -> Result<Vec<Value>, AskError> {
        let page = [self.paging.limit()? + 1, self.paging.offset()?].map(|number| Value::Integer(number as i64));
        Ok([&reading.bounds()[..], &page].concat())
    }
}

/// A file of another version may have reasons that are not known here.
fn losses(reading: &Reading) -> Result<Vec<Loss>, AskError> {
    #[derive(Deserialize)]
    struct Row {
        reason: String,
        count: u64,
    }
    let rows: Vec<Row> = reading.select(
        "SELECT reason, sum(count) AS count FROM losses GROUP BY reason HAVING sum(count) > 0 ORDER BY 2 DESC, 1",
        &[],
    )?;
    let loss = |Row { reason, count }| {
        let known = LossReason::ALL.iter().find(|known| known.as_str() == reason);
        let meaning = known.map_or("a reason that this version does not know", |known| known.meaning());
        Loss { reason, count, meaning, is_call: known.is_some_and(|known| known.is_call()) }
    };
    Ok(rows.into_iter().map(loss).collect())
}

fn sessions_sql(has_budget: bool) -> String {
    let budget = if has_budget { "budget" } else { "NULL AS budget" };
    format!(
        "SELECT * FROM (SELECT id, started_ns, ended_ns, end_reason, version, host, kernel, attach_path, probe_cost_ns,
           seen, stored, agent_cpu_ns, {budget} FROM sessions ORDER BY id DESC LIMIT 20) ORDER BY id"
    )
}

/// Points of equal length from the beginning of the window on.
fn agent_values(reading: &Reading) -> Vec<Value> {
    let ns = |ns: u64| Value::Integer(i64::try_from(ns).unwrap_or(i64::MAX));
    let length_ns = reading.span.ns().div_ceil(POINTS).max(1);
    let from = ns(reading.span.from_ns);
    let [lower, upper, ..] = reading.bucket_bounds();
    vec![from, ns(length_ns), lower, upper]
}

const SAMPLED: &str = "
SELECT op, sum(count) AS seen, sum(max(estimate, count)) AS estimate,
  1.0 * sum(count) / sum(max(estimate, count)) AS fraction, 1.96 * sqrt(sum(variance)) AS error_95
FROM call_stats WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?)
GROUP BY op HAVING sum(max(estimate, count)) > sum(count) ORDER BY 4, 1 LIMIT 200";

const RUNGS: &str = "
SELECT at_ns, pid, comm, op, rung, fraction, reason FROM rungs
WHERE at_ns >= ? AND at_ns < ? AND (? IS NULL OR pid = ?) ORDER BY at_ns, pid, op LIMIT ? OFFSET ?";

const WARNINGS: &str = "
SELECT at_ns, text, kind FROM (SELECT at_ns, text, kind FROM warnings ORDER BY at_ns DESC LIMIT 100) ORDER BY at_ns";

const WALKS: &str = "
SELECT moment, end, python_end, sum(count) AS count, sum(walking_ns) AS walking_ns FROM stack_stats
WHERE bucket_ns >= ? AND bucket_ns < ? GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3";

const CALIBRATIONS: &str = "SELECT session_id, what, ns FROM calibrations ORDER BY session_id DESC, rowid LIMIT 100";

const AGENT: &str = "
WITH points AS (SELECT ? AS from_ns, ? AS length_ns)
SELECT points.from_ns + (max(bucket_ns - points.from_ns, 0) / points.length_ns) * points.length_ns AS from_ns,
  sum(wall_ns) AS wall_ns, sum(cpu_ns) AS cpu_ns, sum(hooks_ns) AS hooks_ns, max(call_program_ns) AS call_program_ns
FROM agent_usage CROSS JOIN points WHERE bucket_ns >= ? AND bucket_ns < ? GROUP BY 1 ORDER BY 1";

/// The worst second is one that is long enough to tell.
const THREADS: &str = "
SELECT pid, tid, comm, sum(wall_ns) AS wall_ns, sum(tracer_ns) AS tracer_ns,
  CASE WHEN sum(wall_ns) > 0 THEN 1.0 * sum(tracer_ns) / sum(wall_ns) ELSE 0.0 END AS share,
  bucket_ns AS worst_ns, max(1.0 * tracer_ns / max(wall_ns, 100000000)) AS worst_share
FROM thread_times WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?)
GROUP BY pid, tid, comm ORDER BY share DESC, pid, tid LIMIT 100";
