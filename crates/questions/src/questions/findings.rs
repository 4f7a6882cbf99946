use clap::Args;
use gpuwhy_model::Explanation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Part};

/// Why the GPU waits: root cause first, each finding with its chain of evidence, its place in the code and what to
/// change; what is innocent and why; where the time of each thread that feeds the GPU went. Ask this first.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Findings {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
}

impl Ask for Findings {
    const NAME: &'static str = "findings";
    const ALIASES: &'static [&'static str] = &["get_causal_chains"];

    type Answer = Explanation;

    fn ask(&self, asked: &Asked<'_>) -> Result<Explanation, AskError> {
        let reading = asked.read(&self.part)?;
        asked.progress(0.1, "reading the trace");
        let window = reading.window()?;
        asked.go_on()?;
        asked.progress(0.7, "looking for causes");
        Ok(gpuwhy_analysis::explain(&window))
    }
}
