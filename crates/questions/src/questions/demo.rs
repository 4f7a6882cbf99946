use std::time::Duration;

use clap::Args;
use gpuwhy_model::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Length};

/// Makes a real stall on this host, traces it for a few seconds and explains it. No GPU is needed. Without the privilege
/// to trace, a recording is explained.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Demo {
    /// What goes wrong, as `gpuwhy demo --list` names it [default: slow-worker-io].
    #[arg(long)]
    #[serde(default)]
    pub scenario: Option<String>,
    /// Run the same program without the fault.
    #[arg(long)]
    #[serde(default)]
    pub healthy: bool,
    /// How long it runs [default: 5s].
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub duration: Option<Length>,
}

/// Long enough for every scenario to show.
const DURATION: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

impl Ask for Demo {
    const NAME: &'static str = "demo";
    const ALIASES: &'static [&'static str] = &["run_demo"];
    const ACTS: bool = true;

    type Answer = Explanation;

    fn ask(&self, asked: &Asked<'_>) -> Result<Explanation, AskError> {
        let duration = self.duration.map_or(DURATION, |length| length.0);
        if duration > LONGEST {
            return Err(AskError::parameter("duration", "it is at most 5m"));
        }
        asked.host.demo(self, duration, &asked.control)
    }
}
