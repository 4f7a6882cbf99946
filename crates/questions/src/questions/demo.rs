use clap::Args;
use gpuwhy_model::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked};

/// Makes a real stall on this host, traces it for a few seconds and explains it. No GPU is needed. Without the privilege
/// to trace, a recording is explained.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Demo {
    /// What goes wrong, as `gpuwhy demo --list` names it [default: slow-worker-io].
    #[arg(long)]
    #[serde(default)]
    pub scenario: Option<String>,
    /// Run the same program without the fault.
    #[arg(long)]
    #[serde(default)]
    pub healthy: bool,
}

impl Ask for Demo {
    const NAME: &'static str = "demo";
    const ALIASES: &'static [&'static str] = &["run_demo"];
    const ACTS: bool = true;

    type Answer = Explanation;

    fn ask(&self, asked: &Asked<'_>) -> Result<Explanation, AskError> {
        asked.host.demo(self.scenario.as_deref(), self.healthy, &asked.control)
    }
}
