use clap::Args;
use gpuwhy_model::Explanation;
use gpuwhy_window::Scope;
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
    #[arg(long, conflicts_with_all = ["since", "from", "to", "pid"])]
    #[serde(default)]
    pub stored: bool,
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
        let window = reading.window()?;
        asked.go_on()?;
        asked.progress(0.7, "looking for causes");
        Ok(gpuwhy_analysis::explain(&window))
    }
}

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
