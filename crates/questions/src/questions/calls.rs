use clap::{Args, ValueEnum};
use gpuwhy_model::Histogram;
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::kept::{self, Kept};
use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Paging, Part};

/// How often the GPU's libraries were called and how long that took: counts, sums, percentiles and histograms, by
/// function, process, thread or device. All calls count, also those that were not kept; what was sampled is scaled up,
/// with its error.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Calls {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
    /// What each row is about.
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub by: By,
    /// Only calls of this function, by the driver's name or the runtime's, with or without `_v2`.
    #[arg(long)]
    #[serde(default)]
    pub op: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A function of a library.
    #[default]
    Op,
    /// A process.
    Process,
    /// A thread.
    Thread,
    /// A GPU: known of calls that were kept one by one, and of those that name it.
    Device,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CallStatistics {
    #[serde(flatten)]
    pub basis: Basis,
    pub by: By,
    /// Those that took most time first.
    pub calls: Vec<CallRow>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
    /// Whether every call was counted. Then counts and sums are exact, and percentiles to within 6.25 %.
    pub is_exact: bool,
    /// How the numbers came about, in words.
    pub method: String,
    /// Calls that were kept one by one, and how many of all that is.
    pub kept: Kept,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct CallRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The runtime's function that ends up in this one of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_op: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The GPU's number; absent for calls that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Calls that were seen.
    pub count: u64,
    /// Calls that were made; the same number where all were seen.
    pub estimate: u64,
    /// Half of the 95 % interval around the estimate; 0 where all were seen.
    pub error: f64,
    /// Share of the calls that were seen.
    pub fraction: f64,
    /// Time in them, scaled up to all calls, like all sums here.
    pub sum_ns: u64,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
    pub running_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub bytes: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Durations: `[upper bound in ns, calls]`, the shortest first.
    #[serde(deserialize_with = "buckets")]
    pub histogram: Vec<(u64, u64)>,
}

impl CallRow {
    pub fn is_exact(&self) -> bool {
        self.estimate == self.count
    }
}

/// The file has lower bounds; what a chart wants is where a bar ends.
fn buckets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u64, u64)>, D::Error> {
    let text: Option<String> = Deserialize::deserialize(deserializer)?;
    let pairs: Vec<(u64, u64)> = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let upper = |lower_ns| match Histogram::upper_bound_ns(Histogram::index(lower_ns)) {
        u64::MAX => lower_ns.saturating_mul(2),
        upper_ns => upper_ns,
    };
    Ok(pairs.into_iter().map(|(lower_ns, calls)| (upper(lower_ns), calls)).collect())
}

impl Ask for Calls {
    const NAME: &'static str = "calls";

    type Answer = CallStatistics;

    fn ask(&self, asked: &Asked<'_>) -> Result<CallStatistics, AskError> {
        let reading = asked.read(&self.part)?;
        let mut calls = self.rows(&reading)?;
        let next = self.paging.cut(&mut calls)?;
        let kept = kept::calls(&reading)?;
        let is_exact = match self.by {
            By::Device => kept.kept == kept.made,
            _ => calls.iter().all(CallRow::is_exact),
        };
        let method = method(self.by, is_exact, &kept);
        Ok(CallStatistics { basis: Basis::read(&reading)?, by: self.by, calls, next, is_exact, method, kept })
    }
}

impl Calls {
    /// One row more than asked for, where there are more.
    fn rows(&self, reading: &Reading) -> Result<Vec<CallRow>, AskError> {
        let names = reading.names_of(self.op.as_deref())?;
        let bounds = if self.by == By::Device { reading.bounds() } else { reading.bucket_bounds() };
        let page = [self.paging.limit()? + 1, self.paging.offset()?].map(|number| Value::Integer(number as i64));
        let values = [&bounds[..], &[names.clone(), names.clone(), names], &page].concat();
        reading.select(&statement(self.by), &values)
    }
}

/// Every function of the part, whatever their number, with its statistics.
pub(crate) fn all_functions(reading: &Reading) -> Result<Vec<CallRow>, AskError> {
    let everything = [Value::Null, Value::Null, Value::Null, Value::Integer(-1), Value::Integer(0)];
    reading.select(&statement(By::Op), &[&reading.bucket_bounds()[..], &everything].concat())
}

fn method(by: By, is_exact: bool, kept: &Kept) -> String {
    match (by, is_exact) {
        (By::Device, false) => format!(
            "The GPU is only known of calls that were kept one by one: {} of {} calls ({:.1} %). Sums and percentiles \
             are those of the kept calls; slow ones are kept more often than others.",
            kept.kept,
            kept.made,
            kept.share * 100.0
        ),
        (_, true) => "Exact: every call was counted. Percentiles come from histograms with eight buckets per power of \
             two, so they are off by at most 6.25 %."
            .to_owned(),
        (_, false) => {
            "Estimated: some functions were seen part of the time only. Counts and sums are scaled up to all \
             calls, `error` is half of the 95 % interval of the count, and percentiles weigh each second by the calls \
             it stands for."
                .to_owned()
        }
    }
}

/// Sums per second of all calls, as much as they stand for.
const OF_ALL: &str = "
FROM call_counts
CROSS JOIN ops ON ops.id = call_counts.op_id
CROSS JOIN threads ON threads.id = call_counts.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?) AND count > 0
  AND (? IS NULL OR ops.name IN (SELECT value FROM json_each(?)) OR runtime_name IN (SELECT value FROM json_each(?)))";

const SUMS_OF_ALL: &str = "
  sum(count) AS count, sum(max(estimate, count)) AS estimate, 1.96 * sqrt(sum(variance)) AS error,
  CAST(sum(sum_ns * (1.0 * max(estimate, count) / count)) AS INTEGER) AS sum_ns, max(max_ns) AS max_ns,
  CAST(sum(runqueue_ns * (1.0 * max(estimate, count) / count)) AS INTEGER) AS runqueue_ns,
  CAST(sum(blocked_ns * (1.0 * max(estimate, count) / count)) AS INTEGER) AS blocked_ns,
  CAST(sum(bytes * (1.0 * max(estimate, count) / count)) AS INTEGER) AS bytes,
  CAST(sum(errors * (1.0 * max(estimate, count) / count)) AS INTEGER) AS errors,
  merge_histograms(histogram, fraction) AS histogram";

/// Single calls, for what sums do not know.
const OF_KEPT: &str = "
FROM calls
CROSS JOIN shapes ON shapes.id = calls.shape_id
CROSS JOIN ops ON ops.id = shapes.op_id
CROSS JOIN threads ON threads.id = shapes.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
WHERE start_ns >= ? AND start_ns < ? AND (? IS NULL OR pid = ?)
  AND (? IS NULL OR ops.name IN (SELECT value FROM json_each(?)) OR runtime_name IN (SELECT value FROM json_each(?)))";

const SUMS_OF_KEPT: &str = "
  count(*) AS count, count(*) AS estimate, 0.0 AS error, sum(duration_ns) AS sum_ns, max(duration_ns) AS max_ns,
  sum(runqueue_ns) AS runqueue_ns, sum(blocked_ns) AS blocked_ns, coalesce(sum(bytes), 0) AS bytes,
  sum(ret_code <> 0) AS errors, histogram_of(duration_ns) AS histogram";

fn statement(by: By) -> String {
    let (names, group) = match by {
        By::Op => ("ops.name AS op, layer, class, runtime_name AS runtime_op", "ops.name, layer"),
        By::Process => ("pid, processes.comm AS comm", "processes.id"),
        By::Thread => ("pid, tid, threads.comm AS comm", "threads.id"),
        By::Device => ("device", "device"),
    };
    let (sums, source) = if by == By::Device { (SUMS_OF_KEPT, OF_KEPT) } else { (SUMS_OF_ALL, OF_ALL) };
    format!(
        "SELECT *, 1.0 * count / estimate AS fraction, max(sum_ns - runqueue_ns - blocked_ns, 0) AS running_ns,
           percentile_ns(histogram, 0.5) AS p50_ns, percentile_ns(histogram, 0.9) AS p90_ns,
           percentile_ns(histogram, 0.99) AS p99_ns
         FROM (SELECT {names}, {sums} {source} GROUP BY {group})
         ORDER BY sum_ns DESC, 1, 2 LIMIT ? OFFSET ?"
    )
}
