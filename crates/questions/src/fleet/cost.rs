use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use gpuwhy_fleet::{Rates, Sums};
use gpuwhy_history::Key;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::over::{Over, Stretch, key, sum};
use super::{Heard, Which};
use crate::{Ask, AskError, Asked};

/// What idle GPUs and stragglers cost, by job, user, node, kind of GPU or hour: hours of GPUs, how many of them the GPU is
/// known to have been idle, and how many GPUs of others waited for workers that were late. In money where the fleet was told
/// what an hour costs (`fleet serve --rates`).
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Cost {
    #[command(flatten)]
    #[serde(flatten)]
    pub which: Which,
    #[command(flatten)]
    #[serde(flatten)]
    pub over: Over,
    /// Tell apart by this: node, gpu, hour, cluster, or a label such as job, user or team.
    #[arg(long, value_name = "KEY", default_value = JOB)]
    #[serde(default = "job")]
    pub by: String,
    /// So many at most, the dearest first.
    #[arg(long, default_value_t = MOST)]
    #[serde(default = "most")]
    pub limit: u64,
}

const JOB: &str = "job";
const MOST: u64 = 100;
const HOUR: Duration = Duration::from_secs(3600);

fn job() -> String {
    JOB.to_owned()
}

fn most() -> u64 {
    MOST
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhatItCosts {
    #[serde(flatten)]
    pub heard: Heard,
    pub over: Stretch,
    /// What money is counted in. Null where the fleet does not know what GPUs cost.
    pub currency: Option<String>,
    pub total: Spent,
    pub costs: Vec<CostOf>,
    /// How many there are in all.
    pub of: usize,
    /// Kinds of GPUs of which nobody has told the price; they are not in the money.
    pub without_rate: Vec<Option<String>>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CostOf {
    /// Null for workers of which it is not known.
    pub key: Option<String>,
    #[serde(flatten)]
    pub spent: Spent,
}

/// Hours of GPUs, and money.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Spent {
    pub gpu_hours: f64,
    /// The GPU is known to have had no work.
    pub idle_hours: f64,
    /// Others waited for these workers while they were late.
    pub held_up_hours: f64,
    pub money: Option<f64>,
    pub idle_money: Option<f64>,
    pub held_up_money: Option<f64>,
}

impl Ask for Cost {
    const NAME: &'static str = "cost";
    const ALIASES: &'static [&'static str] = &["fleet.cluster.get_cost"];

    type Answer = WhatItCosts;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhatItCosts, AskError> {
        let rates = asked.gathered()?.rates();
        let (heard, reading) = self.which.kept(asked)?;
        let (from_ns, to_ns) = self.over.bounds(heard.at_ns);
        let own = (self.by != "cluster").then(|| key(&self.by));
        let keys: Vec<Key> = [Key::Gpu].into_iter().chain(own).collect();
        let spans = reading.spans(from_ns, to_ns, &keys, &asked.limits)?;
        let over = Stretch { from_ns: spans.from_ns, to_ns: spans.to_ns };
        let (mut costs, mut without_rate) = (BTreeMap::<Option<String>, Spent>::new(), Vec::new());
        let mut total = Spent::default();
        for row in spans.rows.iter().filter(|row| row.workers > 0) {
            let mut keys = row.keys.iter().cloned();
            let gpu = keys.next().flatten();
            let key = if self.by == "cluster" { Some(heard.cluster.clone()) } else { keys.next().flatten() };
            let rate = rates.as_ref().and_then(|rates| rates.of(gpu.as_deref()));
            if rates.is_some() && rate.is_none() && !without_rate.contains(&gpu) {
                without_rate.push(gpu);
            }
            let spent = spent(&row.sums, rate);
            costs.entry(key).or_default().add(&spent);
            total.add(&spent);
        }
        let mut costs: Vec<CostOf> = costs.into_iter().map(|(key, spent)| CostOf { key, spent }).collect();
        if self.by != "hour" {
            let lost = |one: &CostOf| {
                let Spent { idle_hours, held_up_hours, .. } = one.spent;
                (one.spent.idle_money.unwrap_or(idle_hours), one.spent.held_up_money.unwrap_or(held_up_hours))
            };
            let sum = |one: &CostOf| lost(one).0 + lost(one).1;
            costs.sort_by(|one, other| sum(other).total_cmp(&sum(one)));
        }
        let of = costs.len();
        costs.truncate(usize::try_from(self.limit.clamp(1, 100 * MOST)).unwrap_or(usize::MAX));
        let currency = rates.map(|Rates { currency, .. }| currency);
        Ok(WhatItCosts { heard, over, currency, total, costs, of, without_rate })
    }
}

fn spent(sums: &Sums, rate: Option<f64>) -> Spent {
    let hours = |name| sum(sums, name) as f64 / HOUR.as_nanos() as f64;
    let (gpu_hours, idle_hours, held_up_hours) = (hours("told_ns"), hours("gpu_idle_ns"), hours("held_up_ns"));
    let money = |hours: f64| rate.map(|rate| hours * rate);
    let (money, idle_money, held_up_money) = (money(gpu_hours), money(idle_hours), money(held_up_hours));
    Spent { gpu_hours, idle_hours, held_up_hours, money, idle_money, held_up_money }
}

impl Spent {
    fn add(&mut self, other: &Self) {
        self.gpu_hours += other.gpu_hours;
        self.idle_hours += other.idle_hours;
        self.held_up_hours += other.held_up_hours;
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0.0) + more);
            }
        };
        add(&mut self.money, other.money);
        add(&mut self.idle_money, other.idle_money);
        add(&mut self.held_up_money, other.held_up_money);
    }
}
