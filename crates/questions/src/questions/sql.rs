use std::time::Duration;

use clap::Args;
use gpuwhy_store::{Limits, Truncation, Value};
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
const MOST_ROWS: u32 = 10_000;
const MOST_TIME: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 1 << 20;

/// Rows in the order the statement gives them.
#[derive(Clone, Debug, JsonSchema, Serialize)]
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
enum Cell {
    Null,
    Number(f64),
    Text(String),
}

#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
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
        let rows = match self.limit.unwrap_or(DEFAULT_ROWS) {
            rows @ 1..=MOST_ROWS => rows as usize,
            _ => return Err(AskError::parameter("limit", format_args!("it is from 1 to {MOST_ROWS}"))),
        };
        let reading = asked.read(&Part { trace: self.trace.clone(), ..Part::default() })?;
        let limits = Limits { rows, time: asked.limits.time.min(MOST_TIME), bytes: asked.limits.bytes.min(MOST_BYTES) };
        let answer = reading.trace.query(&self.sql, &limits)?;
        Ok(Rows {
            columns: answer.columns,
            rows: answer.rows.iter().map(|row| row.iter().map(Value::to_json).collect()).collect(),
            truncated: answer.truncated.map(|cut| match cut {
                Truncation::Rows => Cut::Rows,
                Truncation::Bytes => Cut::Bytes,
            }),
        })
    }
}
