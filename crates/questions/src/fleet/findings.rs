use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use gpuwhy_fleet::{EventKind, Why};
use gpuwhy_model::{Severity, UnixNs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Heard, Wanted, Which};
use crate::{Ask, AskError, Asked, Length};

/// What nodes found about workers that were late, over all nodes: the causes that most nodes have first, with where they are
/// and the newest finding of each.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Findings {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    /// Only of this cause.
    #[arg(long)]
    #[serde(default)]
    pub cause: Option<String>,
    /// Only of the last part: 30s, 5m, 2h [default: 24h].
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub since: Option<Length>,
}

const USUAL: Duration = Duration::from_secs(24 * 3600);
const MOST_EVENTS: usize = 10_000;
const MOST_NODES: usize = 20;

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhatNodesFound {
    #[serde(flatten)]
    pub heard: Heard,
    pub findings: Vec<Found>,
}

/// A cause, and the line of the user's own code where there is one.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Found {
    pub cause: String,
    pub place: Option<String>,
    /// The gravest.
    pub severity: Severity,
    /// How often it was found, and on how many nodes.
    pub times: usize,
    pub nodes: usize,
    /// Some of them.
    pub on: BTreeSet<String>,
    #[schemars(with = "UnixNs")]
    pub first_ns: u64,
    #[schemars(with = "UnixNs")]
    pub last_ns: u64,
    /// In words, as it was found last.
    pub summary: String,
    pub culprit: Option<String>,
}

impl Ask for Findings {
    const NAME: &'static str = "findings";

    type Answer = WhatNodesFound;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhatNodesFound, AskError> {
        let back = self.since.map_or(USUAL, |since| since.0);
        let wanted =
            Wanted { back_ns: Some(back.as_nanos() as u64), node: None, kind: Some("found"), most: MOST_EVENTS };
        let (heard, events) = self.which.events(asked, &wanted)?;
        let mut findings: BTreeMap<(String, Option<String>), Found> = BTreeMap::new();
        for event in events {
            let EventKind::Found { why, .. } = event.kind else { continue };
            if self.cause.as_ref().is_some_and(|cause| why.cause != *cause) {
                continue;
            }
            let found = findings.entry((why.cause.clone(), why.place.clone()));
            found.or_insert_with(|| Found::new(why.clone(), event.at_ns)).add(event.node, &why, event.at_ns);
        }
        let mut findings: Vec<Found> = findings.into_values().collect();
        for found in &mut findings {
            found.nodes = found.on.len();
            while found.on.len() > MOST_NODES {
                found.on.pop_last();
            }
        }
        findings.sort_by_key(|found| std::cmp::Reverse((found.nodes, found.times)));
        Ok(WhatNodesFound { heard, findings })
    }
}

impl Found {
    /// Events come the newest first.
    fn new(why: Why, at_ns: u64) -> Self {
        let Why { cause, severity, summary, culprit, place, .. } = why;
        let (times, nodes, on) = Default::default();
        Self { cause, place, severity, times, nodes, on, first_ns: at_ns, last_ns: at_ns, summary, culprit }
    }

    fn add(&mut self, node: String, why: &Why, at_ns: u64) {
        (self.times, self.severity) = (self.times + 1, self.severity.max(why.severity));
        (self.first_ns, self.last_ns) = (self.first_ns.min(at_ns), self.last_ns.max(at_ns));
        self.on.insert(node);
    }
}
