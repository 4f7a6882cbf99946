use clap::Args;
use gpuwhy_store::{Answer, Limits, Truncation, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Part};

/// Any read-only SQL statement (SQLite) over the trace. The tables `schema_tables` and `schema_columns` describe all
/// others; `cuda_events`, `call_stats`, `sched_events` and `stack_lines` are the ones to begin with.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Sql {
    /// One statement that only reads.
    #[schemars(length(min = 1, max = 100_000))]
    pub sql: String,
    /// The most rows to return [default: 100].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default)]
    pub limit: Option<u32>,
    /// The trace, by its file's name, where there are several [default: the first].
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub trace: Option<String>,
}

const DEFAULT_ROWS: u32 = 100;

/// Rows in the order the statement gives them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Rows {
    pub columns: Vec<String>,
    /// One array for each row, with a value for each column. Blobs are hexadecimal digits.
    #[schemars(with = "Vec<Vec<Cell>>")]
    pub rows: Vec<Vec<serde_json::Value>>,
    /// Which limit cut the answer short, if one did.
    pub truncated: Option<Cut>,
}

/// What SQLite has, as JSON has it.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum Cell {
    Null,
    Number(f64),
    Text(String),
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    Rows,
    Bytes,
}

impl Ask for Sql {
    const NAME: &'static str = "sql";
    const ALIASES: &'static [&'static str] = &["run_sql"];

    type Answer = Rows;

    fn ask(&self, asked: &Asked<'_>) -> Result<Rows, AskError> {
        let limits = limits(self.limit, asked)?;
        let reading = asked.read(&Part { trace: self.trace.clone(), ..Part::default() })?;
        Ok(reading.trace.query(&self.sql, &limits)?.into())
    }
}

/// As many rows as were asked for, within what may be.
pub(crate) fn limits(rows: Option<u32>, asked: &Asked<'_>) -> Result<Limits, AskError> {
    let most = asked.bulk.statement;
    let rows = rows.unwrap_or(DEFAULT_ROWS) as usize;
    if !(1..=most.rows).contains(&rows) {
        return Err(AskError::parameter("limit", format_args!("it is from 1 to {}", most.rows)));
    }
    Ok(Limits { rows, time: asked.limits.time.min(most.time), bytes: asked.limits.bytes.min(most.bytes) })
}

impl From<Answer> for Rows {
    fn from(answer: Answer) -> Self {
        Self {
            columns: answer.columns,
            rows: answer.rows.iter().map(|row| row.iter().map(Value::to_json).collect()).collect(),
            truncated: answer.truncated.map(|cut| match cut {
                Truncation::Rows => Cut::Rows,
                Truncation::Bytes => Cut::Bytes,
            }),
        }
    }
}
