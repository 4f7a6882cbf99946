use std::collections::BTreeMap;

use clap::Args;
use gpuwhy_model::{Layer, UnixNs};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::calls::{CallRow, all_functions};
use crate::kept;
use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Part};

/// What a trace holds: when, where and how it was taken, which processes are in it, how many calls and waits, what was
/// lost, and the functions that took most time.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Summary {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TraceSummary {
    #[serde(flatten)]
    pub basis: Basis,
    pub totals: Totals,
    /// Runs of the tracer, the first one first.
    pub sessions: Vec<SessionSummary>,
    /// Those with most calls first, at most 50.
    pub processes: Vec<ProcessSummary>,
    /// Processes in the trace, also those that are only in it because somebody waited for them.
    pub processes_count: u64,
    /// The ten functions that took most time.
    pub functions: Vec<FunctionTime>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Totals {
    /// Calls that were made, estimated where not all were seen. A runtime's call and the driver's inside of it are two.
    pub calls: u64,
    /// Half of the 95 % interval around it; 0 where all were seen.
    pub calls_error: f64,
    /// Calls that were seen.
    pub seen_calls: u64,
    /// Calls with a record of their own.
    pub kept_calls: u64,
    /// Stretches off the CPU with a record of their own.
    pub waits: u64,
    /// Different stacks in the whole trace.
    pub stacks: u64,
    /// What was lost in the whole trace, for any reason.
    pub lost: u64,
    pub span_ns: u64,
    /// The file and its write-ahead log.
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SessionSummary {
    #[schemars(with = "UnixNs")]
    pub started_ns: u64,
    /// Absent while it runs, and when the tracer was killed.
    #[schemars(with = "Option<UnixNs>")]
    pub ended_ns: Option<u64>,
    /// When it last wrote.
    #[schemars(with = "UnixNs")]
    pub last_commit_ns: u64,
    /// How it ended: `finished`, `interrupted`, `disk full`; absent like `ended_ns`.
    pub end_reason: Option<String>,
    pub host: String,
    pub kernel: String,
    pub cpus: u64,
    #[serde(deserialize_with = "names")]
    pub gpus: Vec<String>,
    /// The GPU driver's version.
    pub driver: Option<String>,
    /// The tracer's own command line.
    pub command: String,
    /// The tracer's version.
    pub version: String,
    /// Share of the workload's time that tracing might take.
    pub budget: Option<f64>,
    /// How probes were attached: `session`, `multi` or `single`.
    pub attach_path: String,
}

/// The file has them as a JSON text.
fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(serde_json::from_str(&String::deserialize(deserializer)?).unwrap_or_default())
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ProcessSummary {
    pub pid: u32,
    pub comm: String,
    /// The command line, shortened.
    pub cmdline: String,
    pub container_id: Option<String>,
    pub calls: u64,
    /// Calls that start work on a GPU, of one layer.
    #[serde(deserialize_with = "of_lowest_layer")]
    pub launches: u64,
}

/// The statement gives launches by layer, as a JSON text: those of the layers above are the same launches.
fn of_lowest_layer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let layers: BTreeMap<String, u64> = serde_json::from_str(&String::deserialize(deserializer)?).unwrap_or_default();
    let launches = |layer: Layer| layers.get(layer.as_str()).copied().unwrap_or(0);
    Ok(Layer::lowest(Layer::ALL.iter().copied().filter(|layer| launches(*layer) > 0)).map_or(0, launches))
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FunctionTime {
    pub op: Option<String>,
    pub layer: Option<String>,
    pub calls: u64,
    pub sum_ns: u64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
    /// Share of the calls that were seen.
    pub fraction: f64,
}

const SESSIONS: &str = "
SELECT started_ns, ended_ns, last_commit_ns, end_reason, host, kernel, cpus, gpus, driver, command, version, budget,
  attach_path
FROM sessions WHERE started_ns < ? AND coalesce(ended_ns, last_commit_ns) >= ? ORDER BY id LIMIT 100";

const PROCESSES: &str = "
SELECT pid, comm, cmdline, container_id, coalesce(made, 0) AS calls, coalesce(launches, '{}') AS launches
FROM processes LEFT JOIN (
  SELECT process_id, sum(made) AS made, json_group_object(layer, launches) AS launches
  FROM (
    SELECT threads.process_id AS process_id, layer, sum(made) AS made,
      sum(CASE WHEN is_launch THEN made ELSE 0 END) AS launches
    FROM (
      SELECT thread_id, layer, is_launch, max(estimate, count) AS made
      FROM call_counts CROSS JOIN ops ON ops.id = op_id WHERE bucket_ns >= ? AND bucket_ns < ?)
    CROSS JOIN threads ON threads.id = thread_id GROUP BY threads.process_id, layer)
  GROUP BY process_id) ON process_id = processes.id
WHERE (? IS NULL OR pid = ?)
ORDER BY calls DESC, processes.id LIMIT 50";

const WAITS: &str = "
SELECT count(*) AS number FROM stretches WHERE start_ns >= ? AND start_ns < ? AND (? IS NULL OR thread_id IN (
  SELECT threads.id FROM threads CROSS JOIN processes ON processes.id = threads.process_id WHERE pid = ?))";

const MOST_FUNCTIONS: usize = 10;
const MOST_CMDLINE: usize = 160;

impl Ask for Summary {
    const NAME: &'static str = "summary";
    const ALIASES: &'static [&'static str] = &["get_trace_stats"];

    type Answer = TraceSummary;

    fn ask(&self, asked: &Asked<'_>) -> Result<TraceSummary, AskError> {
        let reading = asked.read(&self.part)?;
        let basis = Basis::read(&reading)?;
        let functions = all_functions(&reading)?;
        let [from, to, ..] = reading.bounds();
        let mut processes: Vec<ProcessSummary> = reading.select(PROCESSES, &reading.bucket_bounds())?;
        processes.iter_mut().for_each(|process| shorten(&mut process.cmdline));
        Ok(TraceSummary {
            totals: totals(&reading, &basis, &functions)?,
            basis,
            sessions: reading.select(SESSIONS, &[to, from])?,
            processes,
            processes_count: reading.number("SELECT count(*) AS number FROM processes", &[])?,
            functions: functions.iter().take(MOST_FUNCTIONS).map(function).collect(),
        })
    }
}

fn totals(reading: &Reading, basis: &Basis, functions: &[CallRow]) -> Result<Totals, AskError> {
    let kept = kept::calls(reading)?;
    let squares: f64 = functions.iter().map(|row| row.error * row.error).sum();
    Ok(Totals {
        calls: kept.made,
        calls_error: squares.sqrt(),
        seen_calls: functions.iter().map(|row| row.count).sum(),
        kept_calls: kept.kept,
        waits: reading.number(WAITS, &reading.bounds())?,
        stacks: reading.number("SELECT count(*) AS number FROM stacks", &[])?,
        lost: basis.coverage.lost.values().sum(),
        span_ns: reading.span.ns(),
        file_bytes: file_bytes(reading),
    })
}

fn function(row: &CallRow) -> FunctionTime {
    FunctionTime {
        op: row.op.clone(),
        layer: row.layer.clone(),
        calls: row.estimate,
        sum_ns: row.sum_ns,
        p50_ns: row.p50_ns,
        p99_ns: row.p99_ns,
        max_ns: row.max_ns,
        fraction: row.fraction,
    }
}

fn file_bytes(reading: &Reading) -> u64 {
    let size = |path: &std::path::Path| path.metadata().map_or(0, |found| found.len());
    let mut log = reading.trace.path().as_os_str().to_owned();
    log.push("-wal");
    size(reading.trace.path()) + size(log.as_ref())
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MOST_CMDLINE) {
        text.truncate(end);
        text.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_several_layers_show_counts_once() {
        let launches = |layers: &str| {
            let row = serde_json::json!({"pid": 1, "comm": "", "cmdline": "", "calls": 9, "launches": layers});
            serde_json::from_value::<ProcessSummary>(row).unwrap().launches
        };
        assert_eq!(launches(r#"{"runtime": 5, "driver": 4}"#), 4);
        assert_eq!(launches(r#"{"runtime": 5, "driver": 0}"#), 5);
        assert_eq!(launches("{}"), 0);
    }
}
