//! What one can ask of clusters, of whoever gathers what their agents tell. A new question is a file and a line in
//! [`FLEET_QUESTIONS`].

pub mod events;
mod granted;
pub mod nodes;
pub mod stragglers;
pub mod workers;

use clap::Args;
use gpuwhy_fleet::Cluster;
use gpuwhy_model::UnixNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AskError, Asked, Question};

pub use granted::{Granted, GrantedClusters};

/// In the order in which somebody would ask them.
pub const FLEET_QUESTIONS: &[Question] = &[
    Question::new::<stragglers::Stragglers>(),
    Question::new::<nodes::Nodes>(),
    Question::new::<workers::Workers>(),
    Question::new::<events::Events>(),
];

/// Which cluster is asked about.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Which {
    /// The cluster, where there are several.
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub cluster: Option<String>,
}

/// What an answer is based on.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Heard {
    pub cluster: String,
    /// When ranks were compared last.
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    /// Nodes that tell digests now.
    pub nodes: usize,
    /// Nodes that did until a short while ago.
    pub nodes_gone: usize,
    /// What was told and not taken: there was too much of it, or somebody else told the same rank.
    pub refused: u64,
}

impl Which {
    /// Reads the cluster, and says what the answer is based on.
    fn read<T>(&self, asked: &Asked<'_>, read: impl FnOnce(&Cluster, u64) -> T) -> Result<(Heard, T), AskError> {
        let clusters = asked.clusters()?;
        let known = || clusters.names().collect::<Vec<_>>().join(", ");
        let missing = || match &self.cluster {
            _ if clusters.names().next().is_none() => {
                AskError::NotFound { message: "nobody has told this fleet anything yet".to_owned() }
            }
            Some(name) => {
                AskError::NotFound { message: format!("no cluster {name:?} tells this fleet; there is {}", known()) }
            }
            None => AskError::Parameters { message: format!("cluster: there are several: {}", known()) },
        };
        let (name, cluster) = clusters.find(self.cluster.as_deref()).ok_or_else(missing)?;
        let at_ns = clusters.judged_ns();
        let (here, gone): (Vec<_>, Vec<_>) = cluster.nodes().into_iter().partition(|node| !node.is_gone);
        let refused = cluster.refused();
        let heard = Heard { cluster: name.to_owned(), at_ns, nodes: here.len(), nodes_gone: gone.len(), refused };
        Ok((heard, read(cluster, at_ns)))
    }
}
