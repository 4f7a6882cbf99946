use clap::Args;
use gpuwhy_fleet::NodeState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// The nodes that tell digests: since when, whether they still do, how far their clocks are off, how many workers they have
/// and how many of these are late, and what their tracers lost.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Nodes {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    /// So many at most, by name.
    #[arg(long, default_value_t = MOST)]
    #[serde(default = "most")]
    pub limit: u64,
    /// Only those whose name comes after this one.
    #[arg(long, value_name = "NODE")]
    #[serde(default)]
    pub after: Option<String>,
}

const MOST: u64 = 1000;

fn most() -> u64 {
    MOST
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct NodeStates {
    #[serde(flatten)]
    pub heard: Heard,
    #[serde(rename = "states")]
    pub nodes: Vec<NodeState>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
}

impl Ask for Nodes {
    const NAME: &'static str = "nodes";

    type Answer = NodeStates;

    fn ask(&self, asked: &Asked<'_>) -> Result<NodeStates, AskError> {
        let (heard, mut nodes) = self.which.read(asked, |cluster, _| cluster.nodes())?;
        if let Some(after) = &self.after {
            nodes.retain(|node| node.node > *after);
        }
        let limit = usize::try_from(self.limit.clamp(1, 10 * MOST)).unwrap_or(usize::MAX);
        let has_more = nodes.len() > limit;
        nodes.truncate(limit);
        let next = nodes.last().filter(|_| has_more).map(|node| node.node.clone());
        Ok(NodeStates { heard, nodes, next })
    }
}
