use clap::Args;
use gpuwhy_store::Filter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sql::{self, Rows};
use crate::{Ask, AskError, Asked, Length, Part};

/// Calls that match, as rows of `cuda_events` with all its columns, the first ones in time. `audit` has fewer columns and
/// comes in pages.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Events {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    /// Only calls of this function, by the driver's name or the runtime's, with or without `_v2`.
    #[arg(long)]
    #[serde(default)]
    pub op: Option<String>,
    /// Only this thread.
    #[arg(long)]
    #[serde(default)]
    pub tid: Option<u32>,
    /// Only calls at least this long: 500us, 10ms.
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub min_duration: Option<Length>,
    /// The most rows to return [default: 100].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default)]
    pub limit: Option<u32>,
}

impl Ask for Events {
    const NAME: &'static str = "events";

    type Answer = Rows;

    fn ask(&self, asked: &Asked<'_>) -> Result<Rows, AskError> {
        let limits = sql::limits(self.limit, asked)?;
        let reading = asked.read(&self.part)?;
        let filter = Filter {
            since_ns: reading.scope.from_ns,
            until_ns: reading.scope.to_ns,
            op: self.op.clone(),
            pid: reading.scope.pid,
            tid: self.tid,
            min_duration_ns: self.min_duration.map(|length| length.ns()),
        };
        Ok(reading.trace.calls(&filter, &limits)?.into())
    }
}
