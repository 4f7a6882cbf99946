use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use gpuwhy_fleet::Sums;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::over::{Over, Stretch, key, sum};
use super::{Heard, Which};
use crate::{Ask, AskError, Asked, Length};

/// What has changed: two stretches of time side by side, for each node, kind of GPU, job or other label. How long steps take,
/// how much of the time GPUs are idle, ranks wait and are waited for; what changed most comes first.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Compare {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    #[command(flatten)]
    #[serde(flatten)]
    pub over: Over,
    /// Compare with the same length of time so long before: 24h, 168h [default: right before].
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub before: Option<Length>,
    /// Tell apart by this: node, gpu, or a label such as job or user.
    #[arg(long, value_name = "KEY", default_value = NODE)]
    #[serde(default = "node")]
    pub by: String,
    /// So many at most.
    #[arg(long, default_value_t = MOST)]
    #[serde(default = "most")]
    pub limit: u64,
}

const NODE: &str = "node";
const MOST: u64 = 100;

fn node() -> String {
    NODE.to_owned()
}

fn most() -> u64 {
    MOST
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhatChanged {
    #[serde(flatten)]
    pub heard: Heard,
    pub now: Stretch,
    pub before: Stretch,
    pub changes: Vec<Changed>,
    /// How many there are in all.
    pub of: usize,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Changed {
    /// Null for workers of which it is not known.
    pub key: Option<String>,
    /// How many times as long as before a step takes.
    pub times: Option<f64>,
    pub now: Option<Did>,
    pub before: Option<Did>,
}

/// What workers did, all together. Shares are of the time that they told of.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Did {
    pub workers: u64,
    /// How long a step took, on average.
    pub step_ns: Option<u64>,
    pub gpu_idle: f64,
    pub gpu_busy: f64,
    pub running: f64,
    pub waiting_for_cpu: f64,
    pub blocked: f64,
    /// Waiting for other ranks.
    pub waited: f64,
    /// GPUs of others that waited for each of them, on average.
    pub held_up: f64,
}

impl Ask for Compare {
    const NAME: &'static str = "compare";

    type Answer = WhatChanged;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhatChanged, AskError> {
        if self.by == "hour" {
            return Err(AskError::parameter("by", "hours of two times are never the same"));
        }
        let (heard, reading) = self.which.kept(asked)?;
        let (from_ns, to_ns) = self.over.bounds(heard.at_ns);
        let back_ns = self.before.map_or(Duration::from_nanos(to_ns - from_ns), |before| before.0).as_nanos() as u64;
        let keys = [key(&self.by)];
        let now = reading.spans(from_ns, to_ns, &keys, &asked.limits)?;
        // Windows of both begin at the same place, so that nothing is in both.
        let (from_ns, to_ns) = (from_ns.saturating_sub(back_ns), to_ns.saturating_sub(back_ns).min(now.from_ns));
        let before = reading.spans(from_ns, to_ns, &keys, &asked.limits)?;
        let stretch = |spans: &gpuwhy_history::Spans| Stretch { from_ns: spans.from_ns, to_ns: spans.to_ns };
        let (now_at, before_at) = (stretch(&now), stretch(&before));
        let mut changes: BTreeMap<Option<String>, Changed> = BTreeMap::new();
        let named = |row: &gpuwhy_history::Row| row.keys.first().cloned().flatten();
        for row in now.rows.iter().filter(|row| row.workers > 0) {
            let changed =
                Changed { key: named(row), times: None, now: Some(did(row.workers, &row.sums)), before: None };
            changes.insert(named(row), changed);
        }
        for row in before.rows.iter().filter(|row| row.workers > 0) {
            let nothing = Changed { key: named(row), times: None, now: None, before: None };
            changes.entry(named(row)).or_insert(nothing).before = Some(did(row.workers, &row.sums));
        }
        let mut changes: Vec<Changed> = changes.into_values().collect();
        for changed in &mut changes {
            let step = |did: &Option<Did>| did.as_ref().and_then(|did| did.step_ns).filter(|ns| *ns > 0);
            changed.times =
                step(&changed.now).zip(step(&changed.before)).map(|(now, before)| now as f64 / before as f64);
        }
        changes.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        let of = changes.len();
        changes.truncate(usize::try_from(self.limit.clamp(1, 100 * MOST)).unwrap_or(usize::MAX));
        Ok(WhatChanged { heard, now: now_at, before: before_at, changes, of })
    }
}

/// How much has changed.
fn weight(changed: &Changed) -> f64 {
    let steps = changed.times.map_or(0.0, |times| times.ln().abs());
    let share = |share: fn(&Did) -> f64| {
        changed
            .now
            .as_ref()
            .zip(changed.before.as_ref())
            .map_or(0.0, |(now, before)| (share(now) - share(before)).abs())
    };
    steps + share(|did| did.gpu_idle) + share(|did| did.held_up)
}

fn did(workers: u64, sums: &Sums) -> Did {
    let told_ns = sum(sums, "told_ns").max(1) as f64;
    let share = |name| sum(sums, name) as f64 / told_ns;
    Did {
        workers,
        step_ns: sum(sums, "steps_ns").checked_div(sum(sums, "steps")),
        gpu_idle: share("gpu_idle_ns"),
        gpu_busy: share("gpu_busy_ns"),
        running: share("running_ns"),
        waiting_for_cpu: share("waiting_for_cpu_ns"),
        blocked: share("blocked_ns"),
        waited: share("waited_ns"),
        held_up: share("held_up_ns"),
    }
}
