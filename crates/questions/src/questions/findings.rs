use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use gpuwhy_analysis::WorkSecond;
use gpuwhy_model::{Explanation, Phase, PhaseName, Sample};
use gpuwhy_store::Value;
use gpuwhy_window::{Scope, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Part};

/// Why the GPU waits: root cause first, each finding with its chain of evidence, its place in the code and what to
/// change; what is innocent and why; where the time of each thread that feeds the GPU went. Ask this first.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Findings {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    /// What was found when the trace ended, by the gpuwhy that traced it, rather than by this one. It is about the whole
    /// trace.
    #[arg(long, conflicts_with_all = ["since", "from", "to", "pid", "label"])]
    #[serde(default)]
    pub stored: bool,
    /// Which phase to look at, where no times are given: `steady`, what the program does once it has loaded and warmed up, or
    /// `all` [default: steady].
    #[arg(long)]
    #[serde(default)]
    pub phase: Option<WhichPhase>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhichPhase {
    #[default]
    Steady,
    All,
}

impl Ask for Findings {
    const NAME: &'static str = "findings";
    const ALIASES: &'static [&'static str] = &["get_causal_chains"];

    type Answer = Explanation;

    fn ask(&self, asked: &Asked<'_>) -> Result<Explanation, AskError> {
        if self.stored {
            return stored(&asked.read(&self.part)?);
        }
        let reading = asked.read(&self.part)?;
        asked.progress(0.1, "reading the trace");
        let seconds = seconds(&reading)?;
        let phases = gpuwhy_analysis::phases(&seconds, reading.span, has_ended(&reading, &seconds)?);
        let is_asked =
            |phase: &&Phase| phase.name == PhaseName::Steady && self.phase.unwrap_or_default() == WhichPhase::Steady;
        let steady = phases.iter().find(is_asked);
        let scope = match steady {
            Some(steady) => Scope { from_ns: Some(steady.from_ns), to_ns: Some(steady.to_ns), ..reading.scope },
            None => reading.scope,
        };
        let window = reading.window_of(&scope)?;
        asked.go_on()?;
        asked.progress(0.7, "looking for causes");
        let mut explanation = gpuwhy_analysis::explain(&window);
        for slump in gpuwhy_analysis::slumps(&seconds, steady.map_or(reading.span, Phase::span)) {
            asked.go_on()?;
            let scope = Scope { from_ns: Some(slump.from_ns), to_ns: Some(slump.to_ns), ..reading.scope };
            let incident = gpuwhy_analysis::explain(&reading.window_of(&scope)?);
            gpuwhy_analysis::add_incident(&mut explanation, incident);
        }
        if let Some(onset) = gpuwhy_analysis::onset(&window) {
            asked.go_on()?;
            let (from_ns, to_ns) = (Some(onset.during.from_ns), Some(onset.during.to_ns));
            let window = reading.window_of(&Scope { from_ns, to_ns, ..reading.scope })?;
            let incident = gpuwhy_analysis::explain(&Window { unusual: Some(onset.unusual), ..window });
            gpuwhy_analysis::add_incident(&mut explanation, incident);
        }
        if let (Some(steady), Some(end)) = (steady, phases.last())
            && ((!window.collectives.rows.is_empty() && gpuwhy_analysis::may_hang(end))
                || has_broken(&reading, steady.to_ns, end.to_ns)?)
        {
            asked.go_on()?;
            let scope = Scope { from_ns: Some(steady.from_ns), to_ns: Some(end.to_ns), ..reading.scope };
            gpuwhy_analysis::add_end(&mut explanation, gpuwhy_analysis::explain(&reading.window_of(&scope)?));
        }
        explanation.window = reading.span;
        if steady.is_some() {
            explanation.gpus.iter_mut().for_each(|gpu| gpu.phase = PhaseName::Steady.as_str().to_owned());
        }
        explanation.phases = phases;
        Ok(explanation)
    }
}

/// Whether a GPU or its driver said in this span that something is broken: a program does no work then.
fn has_broken(reading: &Reading, from_ns: u64, to_ns: u64) -> Result<bool, AskError> {
    let number = |ns: u64| Value::Integer(i64::try_from(ns).unwrap_or(i64::MAX));
    let name = |name: &str| Value::Text(name.to_owned());
    let parameters = [number(from_ns), number(to_ns), name(Sample::GPU_XID), name(Sample::GPU_LOST)];
    Ok(reading.number(BROKEN, &parameters)? > 0)
}

const BROKEN: &str =
    "SELECT count(*) AS number FROM sample_values WHERE at_ns > ? AND at_ns <= ? AND name IN (?, ?) AND value > 0";

/// What each second of the whole trace brought; nothing where a part of it was asked for.
fn seconds(reading: &Reading) -> Result<Vec<WorkSecond>, AskError> {
    #[derive(Deserialize)]
    struct Row {
        bucket_ns: u64,
        launches: u64,
        loading_ns: u64,
    }
    if reading.scope.from_ns.is_some() || reading.scope.to_ns.is_some() || reading.trace.version() < MEANINGS_SINCE {
        return Ok(Vec::new());
    }
    let pid = reading.scope.pid.map_or(Value::Null, |pid| Value::Integer(pid.into()));
    let rows = reading.select::<Row>(SECONDS, &[pid.clone(), pid])?;
    let second = |row: Row| {
        let Row { bucket_ns, launches, loading_ns } = row;
        WorkSecond { bucket_ns, launches, loading_ns, busy: None }
    };
    let mut seconds: Vec<WorkSecond> = rows.into_iter().map(second).collect();
    add_gpus_word(reading, &mut seconds)?;
    Ok(seconds)
}

/// How much the GPUs worked in each second. In a long trace, how it began does not matter.
fn add_gpus_word(reading: &Reading, seconds: &mut [WorkSecond]) -> Result<(), AskError> {
    #[derive(Deserialize)]
    struct Row {
        at_ns: u64,
        device: String,
        value: f64,
    }
    if reading.span.ns() > LONG_NS {
        return Ok(());
    }
    let mut words: BTreeMap<String, BTreeMap<usize, (f64, f64)>> = BTreeMap::new();
    let name = Value::Text(Sample::GPU_UTILIZATION.to_owned());
    for Row { at_ns, device, value } in reading.select::<Row>(UTILIZATION, &[name])? {
        if let Some(at) = seconds.partition_point(|second| second.bucket_ns < at_ns).checked_sub(1) {
            let (sum, count) = words.entry(device).or_default().entry(at).or_default();
            (*sum, *count) = (*sum + value, *count + 1.0);
        }
    }
    let has_worked = |of_device: &&BTreeMap<usize, (f64, f64)>| of_device.values().any(|(sum, _)| *sum > 0.0);
    for (&at, (sum, count)) in words.values().filter(has_worked).flatten() {
        let least = &mut seconds[at].busy;
        *least = Some(least.map_or(sum / count, |least| least.min(sum / count)));
    }
    Ok(())
}

const LONG_NS: u64 = 600_000_000_000;

const UTILIZATION: &str = "SELECT at_ns, device, value FROM sample_values WHERE name = ? AND device IS NOT NULL";

/// Whether all who gave a GPU work in the last second with any have ended.
fn has_ended(reading: &Reading, seconds: &[WorkSecond]) -> Result<bool, AskError> {
    #[derive(Deserialize)]
    struct Row {
        gone: u64,
        all_of_them: u64,
    }
    let Some(last) = seconds.iter().rfind(|second| second.launches > 0) else { return Ok(false) };
    let pid = reading.scope.pid.map_or(Value::Null, |pid| Value::Integer(pid.into()));
    let last_ns = i64::try_from(last.bucket_ns).unwrap_or(i64::MAX);
    let row = reading.select::<Row>(ENDED, &[Value::Integer(last_ns), pid.clone(), pid])?.into_iter().next();
    Ok(row.is_some_and(|row| row.gone == row.all_of_them))
}

const ENDED: &str = "
SELECT count(DISTINCT l.pid) AS gone, count(DISTINCT p.pid) AS all_of_them
FROM call_counts AS c JOIN ops AS o ON o.id = c.op_id JOIN threads AS t ON t.id = c.thread_id
  JOIN processes AS p ON p.id = t.process_id
  LEFT JOIN process_life AS l ON l.pid = p.pid AND l.kind = 'exit' AND l.at_ns >= c.bucket_ns
WHERE c.bucket_ns >= ? AND o.is_launch = 1 AND (? IS NULL OR p.pid = ?)";

/// The version from which on the trace says what functions mean.
const MEANINGS_SINCE: u32 = 5;

const SECONDS: &str = "
SELECT c.bucket_ns, sum(CASE WHEN o.is_launch = 1 THEN c.estimate ELSE 0 END) AS launches,
  sum(CASE WHEN o.class = 'module' THEN c.sum_ns ELSE 0 END) AS loading_ns
FROM call_counts AS c JOIN ops AS o ON o.id = c.op_id JOIN threads AS t ON t.id = c.thread_id
  JOIN processes AS p ON p.id = t.process_id
WHERE ? IS NULL OR p.pid = ? GROUP BY c.bucket_ns ORDER BY c.bucket_ns";

/// What the last session that was explained left in the trace.
pub(super) fn stored(reading: &Reading) -> Result<Explanation, AskError> {
    #[derive(Deserialize)]
    struct Row {
        version: String,
        explanation: String,
    }
    let Scope { from_ns, to_ns, pid } = reading.scope;
    if from_ns.is_some() || to_ns.is_some() || pid.is_some() {
        return Err(AskError::parameter("stored", "what is stored is about the whole trace"));
    }
    let row = reading.select::<Row>(STORED, &[])?.into_iter().next();
    let missing = || AskError::NotFound { message: "no findings are stored in the trace".to_owned() };
    let Row { version, explanation } = row.ok_or_else(missing)?;
    serde_json::from_str(&explanation).map_err(|error| AskError::Failed {
        message: format!("the findings that gpuwhy {version} stored cannot be read: {error}"),
    })
}

const STORED: &str = "SELECT version, explanation FROM explanations ORDER BY session_id DESC LIMIT 1";
