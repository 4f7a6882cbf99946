use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked};

/// What can be traced on this host: kernel, privilege, probes, stacks, GPU, and every process that uses CUDA, with the
/// remedy for each line that fails.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Check {}

/// As `gpuwhy check --json` prints it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Checked {
    #[serde(flatten)]
    pub report: serde_json::Map<String, serde_json::Value>,
}

impl Ask for Check {
    const NAME: &'static str = "check";
    const ALIASES: &'static [&'static str] = &["get_check"];

    type Answer = Checked;

    fn ask(&self, asked: &Asked<'_>) -> Result<Checked, AskError> {
        match asked.host.check()? {
            serde_json::Value::Object(report) => Ok(Checked { report }),
            _ => Err(AskError::Failed { message: "the report is no object".to_owned() }),
        }
    }
}
