use clap::Args;
use gpuwhy_fleet::{Common, Straggler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// Which ranks hold others up now, the worst first: on which node, since when, how late they come to each operation, how many
/// GPUs are idle for that, and why, by what their own node found. Workers that wait for nobody are compared by how long their
/// steps take.
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
    /// What they have in common that the others have not: a switch, a job, a cause.
    pub common: Option<Common>,
}

impl Ask for Stragglers {
    const NAME: &'static str = "stragglers";
    const ALIASES: &'static [&'static str] = &["fleet.cluster.find_outlier_nodes"];

    type Answer = WhoHoldsOthersUp;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhoHoldsOthersUp, AskError> {
        let (heard, (stragglers, common)) = self.which.read(asked, |cluster, at_ns| {
            let stragglers = cluster.stragglers(at_ns);
            let common = cluster.common_of(&stragglers);
            (stragglers, common)
        })?;
        Ok(WhoHoldsOthersUp { heard, stragglers, common })
    }
}
