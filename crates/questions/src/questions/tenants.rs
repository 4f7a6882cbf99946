use std::collections::HashMap;

use clap::Args;
use gpuwhy_model::Severity;
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::questions::findings::Findings;
use crate::{Ask, AskError, Asked, Basis, Part};

/// Who shares the GPUs: users, containers, pods, jobs or whatever else processes are labelled with. Which GPUs each of them
/// used and for how long, what they launched and copied, and who made whom wait.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Tenants {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    /// What tells them apart: a key of the view `labels` [default: the first of job, pod, pod_uid, container and user that
    /// processes have].
    #[arg(long, value_name = "KEY")]
    #[serde(default)]
    pub by: Option<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Shared {
    #[serde(flatten)]
    pub basis: Basis,
    /// What tells them apart.
    pub by: String,
    /// Who launched most first.
    pub tenants: Vec<Tenant>,
    /// Findings whose victim is one and whose culprit is another, the longest waits first.
    pub waits: Vec<TenantWait>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Tenant {
    /// Its label; null for processes without one.
    pub tenant: Option<String>,
    /// Processes that called a GPU's library.
    pub processes: u64,
    pub calls: u64,
    pub launches: u64,
    /// What calls allocated, copied or gave to other ranks.
    pub bytes: u64,
    #[serde(default)]
    pub gpus: Vec<TenantGpu>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TenantGpu {
    pub device: i64,
    /// Seconds in which a call about this GPU was kept.
    pub active_s: u64,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TenantWait {
    /// Who waited.
    pub victim: Option<String>,
    /// Who is to blame.
    pub culprit: Option<String>,
    pub cause: String,
    pub lost_ns: u64,
    /// The finding, as `findings` numbers it.
    pub finding: String,
}

/// In the order in which they are tried.
const KEYS: &[&str] = &["job", "pod", "pod_uid", "container", "user"];

const HAS_KEY: &str = "SELECT count(*) AS number FROM process_labels WHERE key = ?1";

const CALLED: &str = "
SELECT value AS tenant, count(DISTINCT threads.process_id) AS processes, sum(estimate) AS calls,
  coalesce(sum(estimate) FILTER (WHERE is_launch), 0) AS launches, coalesce(sum(bytes), 0) AS bytes
FROM call_counts
JOIN ops ON ops.id = call_counts.op_id
JOIN threads ON threads.id = call_counts.thread_id
JOIN processes ON processes.id = threads.process_id
LEFT JOIN process_labels ON process_labels.process_id = threads.process_id AND key = ?5
WHERE bucket_ns >= ?1 AND bucket_ns < ?2 AND (?3 IS NULL OR pid = ?4)
GROUP BY value ORDER BY launches DESC, calls DESC, value LIMIT 1000";

const USED: &str = "
SELECT value AS tenant, device, count(DISTINCT start_ns / 1000000000) AS active_s
FROM calls
JOIN shapes ON shapes.id = calls.shape_id
JOIN threads ON threads.id = shapes.thread_id
JOIN processes ON processes.id = threads.process_id
LEFT JOIN process_labels ON process_labels.process_id = threads.process_id AND key = ?5
WHERE start_ns >= ?1 AND start_ns < ?2 AND (?3 IS NULL OR pid = ?4) AND device >= 0
GROUP BY value, device ORDER BY device LIMIT 10000";

const OWNERS: &str = "
SELECT pid, value AS tenant FROM process_labels JOIN processes ON processes.id = process_id WHERE key = ?1
ORDER BY processes.id";

#[derive(Deserialize)]
struct Used {
    tenant: Option<String>,
    #[serde(flatten)]
    gpu: TenantGpu,
}

#[derive(Deserialize)]
struct Owner {
    pid: u32,
    tenant: String,
}

impl Ask for Tenants {
    const NAME: &'static str = "tenants";

    type Answer = Shared;

    fn ask(&self, asked: &Asked<'_>) -> Result<Shared, AskError> {
        let reading = asked.read(&self.part)?;
        let key = |key: &str| Value::Text(key.to_owned());
        let has = |name: &&&str| reading.number(HAS_KEY, &[key(name)]).is_ok_and(|number| number > 0);
        let by = self.by.clone().or_else(|| KEYS.iter().find(has).map(|name| (*name).to_owned()));
        let by = by.unwrap_or_else(|| "user".to_owned());
        let values = [&reading.bucket_bounds()[..], &[key(&by)]].concat();
        let mut tenants: Vec<Tenant> = reading.select(CALLED, &values)?;
        let values = [&reading.bounds()[..], &[key(&by)]].concat();
        for used in reading.select::<Used>(USED, &values)? {
            if let Some(tenant) = tenants.iter_mut().find(|one| one.tenant == used.tenant) {
                tenant.gpus.push(used.gpu);
            }
        }
        let owners = reading.select::<Owner>(OWNERS, &[key(&by)])?;
        let owners: HashMap<u32, String> = owners.into_iter().map(|owner| (owner.pid, owner.tenant)).collect();
        let waits = waits(&owners, &Findings { part: self.part.clone(), ..Findings::default() }, asked)?;
        Ok(Shared { basis: Basis::read(&reading)?, by, tenants, waits })
    }
}

/// Who made whom wait.
fn waits(owners: &HashMap<u32, String>, question: &Findings, asked: &Asked<'_>) -> Result<Vec<TenantWait>, AskError> {
    let mut waits = Vec::new();
    for finding in question.ask(asked)?.findings {
        let Some(culprit) = &finding.culprit else { continue };
        let (victim, culprit) = (owners.get(&finding.victim.pid).cloned(), owners.get(&culprit.pid).cloned());
        if victim == culprit || finding.severity == Severity::Low {
            continue;
        }
        let (cause, lost_ns, finding) = (finding.cause.to_string(), finding.impact.lost_ns, finding.id);
        waits.push(TenantWait { victim, culprit, cause, lost_ns, finding });
    }
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.lost_ns));
    Ok(waits)
}
