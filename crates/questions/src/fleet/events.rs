use clap::Args;
use gpuwhy_fleet::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Wanted, Which};
use crate::{Ask, AskError, Asked, Length};

/// What happened in the cluster, the newest first: ranks that became late or are late no more, nodes that came or went, and
/// what nodes found.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Events {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    /// Only of this node.
    #[arg(long)]
    #[serde(default)]
    pub node: Option<String>,
    /// Only of this kind: rank-became-late, node-gone, found.
    #[arg(long)]
    #[serde(default)]
    pub kind: Option<String>,
    /// Only of the last part: 30s, 5m, 2h.
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub since: Option<Length>,
    /// So many at most.
    #[arg(long, default_value_t = MOST)]
    #[serde(default = "most")]
    pub limit: u64,
}

const MOST: u64 = 200;

fn most() -> u64 {
    MOST
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhatHappened {
    #[serde(flatten)]
    pub heard: Heard,
    pub events: Vec<Event>,
}

impl Ask for Events {
    const NAME: &'static str = "events";
    const ALIASES: &'static [&'static str] = &["fleet.cluster.event_history"];

    type Answer = WhatHappened;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhatHappened, AskError> {
        let wanted = Wanted {
            back_ns: self.since.map(|since| since.0.as_nanos() as u64),
            node: self.node.as_deref(),
            kind: self.kind.as_deref(),
            most: usize::try_from(self.limit.clamp(1, 50 * MOST)).unwrap_or(usize::MAX),
        };
        let (heard, events) = self.which.events(asked, &wanted)?;
        Ok(WhatHappened { heard, events })
    }
}
