use clap::Args;
use gpuwhy_fleet::Straggler;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// Which ranks hold others up now, the worst first: on which node, since when, how late they come to each operation, how many
/// GPUs are idle for that, and why, by what their own node found.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Stragglers {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhoHoldsOthersUp {
    #[serde(flatten)]
    pub heard: Heard,
    pub stragglers: Vec<Straggler>,
}

impl Ask for Stragglers {
    const NAME: &'static str = "stragglers";
    const ALIASES: &'static [&'static str] = &["fleet.cluster.find_outlier_nodes"];

    type Answer = WhoHoldsOthersUp;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhoHoldsOthersUp, AskError> {
        let (heard, stragglers) = self.which.read(asked, |cluster, at_ns| cluster.stragglers(at_ns))?;
        Ok(WhoHoldsOthersUp { heard, stragglers })
    }
}
