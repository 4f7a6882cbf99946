//! What one can ask of clusters, of whoever gathers what their agents tell. A new question is a file and a line in
//! [`FLEET_QUESTIONS`].

pub mod compare;
pub mod cost;
pub mod events;
pub mod findings;
mod granted;
pub mod nodes;
mod over;
pub mod ranks;
pub mod sql;
pub mod stragglers;
pub mod summary;
pub mod workers;

use std::sync::Arc;

use clap::Args;
use gpuwhy_fleet::{Cluster, Event};
use gpuwhy_history::{HistoryError, Reading};
use gpuwhy_model::UnixNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AskError, Asked, Question};

pub use granted::{Granted, GrantedFleet};

/// In the order in which somebody would ask them.
pub const FLEET_QUESTIONS: &[Question] = &[
    Question::new::<summary::Summary>(),
    Question::new::<stragglers::Stragglers>(),
    Question::new::<nodes::Nodes>(),
    Question::new::<workers::Workers>(),
    Question::new::<ranks::Ranks>(),
    Question::new::<events::Events>(),
    Question::new::<findings::Findings>(),
    Question::new::<compare::Compare>(),
    Question::new::<cost::Cost>(),
    Question::new::<sql::FleetSql>(),
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
    /// Messages that were told and could not be kept: history lacks them.
    pub not_kept: u64,
}

impl Which {
    /// Reads the cluster, and says what the answer is based on.
    fn read<T>(&self, asked: &Asked<'_>, read: impl FnOnce(&Cluster, u64) -> T) -> Result<(Heard, T), AskError> {
        let gathered = asked.gathered()?;
        let (name, cluster) = self.find(&gathered)?;
        let heard = heard(&gathered, name, cluster);
        let at_ns = heard.at_ns;
        Ok((heard, read(cluster, at_ns)))
    }

    /// The same for what is kept of the cluster. Reading takes longer, and nobody waits for it.
    fn kept(&self, asked: &Asked<'_>) -> Result<(Heard, Reading), AskError> {
        let gathered = asked.gathered()?;
        let (name, cluster) = self.find(&gathered)?;
        let heard = heard(&gathered, name, cluster);
        let reading = gathered.read(name).map_err(unread)?;
        drop(gathered);
        reading.stop_when(Arc::clone(&asked.control.cancelled));
        Ok((heard, reading))
    }

    /// What happened in a stretch of time, the newest first: what is known without reading, and before that what is kept.
    fn events(&self, asked: &Asked<'_>, wanted: &Wanted<'_>) -> Result<(Heard, Vec<Event>), AskError> {
        let (heard, (mut events, known_ns)) = self.read(asked, |cluster, at_ns| {
            let since_ns = wanted.since_ns(at_ns);
            let is_wanted = |event: &&Event| event.at_ns >= since_ns && wanted.takes(event);
            let events: Vec<Event> = cluster.events().rev().filter(is_wanted).take(wanted.most).cloned().collect();
            (events, cluster.events().next().map_or(at_ns, |first| first.at_ns))
        })?;
        let (since_ns, room) = (wanted.since_ns(heard.at_ns), wanted.most.saturating_sub(events.len()));
        if since_ns >= known_ns || room == 0 {
            return Ok((heard, events));
        }
        match self.kept(asked) {
            Ok((_, reading)) => {
                let most = room as u64;
                events.extend(reading.events(since_ns, known_ns, wanted.node, wanted.kind, most, &asked.limits)?);
                Ok((heard, events))
            }
            // Nothing is kept yet, or nothing at all.
            Err(AskError::NotFound { .. } | AskError::NotHere { .. }) => Ok((heard, events)),
            Err(error) => Err(error),
        }
    }

    fn find<'g>(&self, gathered: &'g GrantedFleet<'_>) -> Result<(&'g str, &'g Cluster), AskError> {
        let known = || gathered.names().collect::<Vec<_>>().join(", ");
        let missing = || match &self.cluster {
            _ if gathered.names().next().is_none() => {
                AskError::NotFound { message: "nobody has told this fleet anything yet".to_owned() }
            }
            Some(name) => {
                AskError::NotFound { message: format!("no cluster {name:?} tells this fleet; there is {}", known()) }
            }
            None => AskError::Parameters { message: format!("cluster: there are several: {}", known()) },
        };
        gathered.find(self.cluster.as_deref()).ok_or_else(missing)
    }
}

/// Which events are asked for.
struct Wanted<'a> {
    /// How far back. All of them where nothing is said.
    back_ns: Option<u64>,
    node: Option<&'a str>,
    kind: Option<&'a str>,
    most: usize,
}

impl Wanted<'_> {
    fn since_ns(&self, at_ns: u64) -> u64 {
        self.back_ns.map_or(0, |back_ns| at_ns.saturating_sub(back_ns))
    }

    fn takes(&self, event: &Event) -> bool {
        self.node.is_none_or(|node| event.node == node) && self.kind.is_none_or(|kind| event.kind.name() == kind)
    }
}

fn heard(gathered: &GrantedFleet<'_>, name: &str, cluster: &Cluster) -> Heard {
    let (nodes, nodes_gone) = cluster.count_nodes();
    let (at_ns, refused, not_kept) = (gathered.judged_ns(), cluster.refused(), gathered.not_kept());
    Heard { cluster: name.to_owned(), at_ns, nodes, nodes_gone, refused, not_kept }
}

fn unread(error: HistoryError) -> AskError {
    match error {
        HistoryError::NotFound { cluster } => AskError::NotFound {
            message: format!("nothing of the cluster {cluster:?} is kept yet: ask again in a while"),
        },
        HistoryError::NotKept => AskError::NotHere { message: error.to_string() },
        other => AskError::Failed { message: other.to_string() },
    }
}
