use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::questions::sql::{Rows, limits};
use crate::{Ask, AskError, Asked};

/// Any read-only SQL statement (SQLite) over what is kept of the cluster. The tables `schema_tables` and `schema_columns`
/// describe all others; `workers`, `labels`, `events` and `spans_1m` are the ones to begin with.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct FleetSql {
    /// One statement that only reads.
    #[schemars(length(min = 1, max = 100_000))]
    pub sql: String,
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    /// The most rows to return [default: 100].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default)]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RowsOfCluster {
    #[serde(flatten)]
    pub heard: Heard,
    #[serde(flatten)]
    pub answer: Rows,
}

impl Ask for FleetSql {
    const NAME: &'static str = "sql";
    const ALIASES: &'static [&'static str] = &["fleet.cluster.run_analysis"];

    type Answer = RowsOfCluster;

    fn ask(&self, asked: &Asked<'_>) -> Result<RowsOfCluster, AskError> {
        let limits = limits(self.limit, asked)?;
        let (heard, reading) = self.which.kept(asked)?;
        Ok(RowsOfCluster { heard, answer: reading.sql(&self.sql, &limits)?.into() })
    }
}
