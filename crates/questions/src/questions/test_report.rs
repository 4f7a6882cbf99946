use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked};

/// How often this build of gpuwhy is right and how much it slows programs down: for each promise what was last measured,
/// what the aim is, on which machine, and the command that measures it again.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct TestReport {}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Report {
    pub promises: Vec<Promise>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Promise {
    /// accuracy or overhead.
    pub part: String,
    pub what: String,
    /// What was measured.
    pub value: String,
    /// Null where none was set.
    pub aim: Option<String>,
    /// Null where no aim was set, or where noise hides whether it was reached.
    pub is_kept: Option<bool>,
    pub machine: String,
    pub command: String,
}

/// Generated from kept results; a check fails when it is stale.
const REPORT: &str = include_str!("../../../../docs/results/report.json");

impl Ask for TestReport {
    const NAME: &'static str = "test_report";
    const ALIASES: &'static [&'static str] = &["get_test_report"];

    type Answer = Report;

    fn ask(&self, _: &Asked<'_>) -> Result<Report, AskError> {
        serde_json::from_str(REPORT).map_err(|error| AskError::Failed { message: format!("read the report: {error}") })
    }
}
