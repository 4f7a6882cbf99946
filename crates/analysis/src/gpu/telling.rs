//! A GPU's ledger as an explanation carries it: with the findings that explain its idle time.

use std::collections::BTreeMap;

use gpuwhy_model::{Finding, GpuTime, IdleBecause};

use super::communicating::communicating_ns;
use super::{Did, Gpu};
use crate::case::victim;
use crate::dispatcher::Dispatcher;
use crate::rules;
use crate::situation::Situation;
use crate::words::{rounded, share};

/// What took less of the idle time is not told.
const LEAST_TOLD: f64 = 0.01;

pub(crate) fn told(
    situation: &Situation<'_>,
    dispatchers: &[Dispatcher<'_>],
    gpu: &Gpu,
    findings: &[Finding],
) -> GpuTime {
    GpuTime {
        device: gpu.device.number.into(),
        host: situation.window.hosts.get(usize::from(gpu.device.host)).map(|host| host.name.clone()),
        uuid: None,
        phase: "all".to_owned(),
        busy_ns: gpu.busy_ns,
        idle_ns: gpu.idle_ns,
        unknown_ns: gpu.unknown_ns,
        communicating_ns: communicating_ns(situation, gpu.device).min(gpu.busy_ns),
        known_by: gpu.known_by(),
        idle_share: rounded(gpu.idle_share()),
        interval: gpu.interval().map(rounded),
        idle_because: idle_because(situation, dispatchers, gpu, findings),
        contradiction: gpu.contradiction.clone(),
    }
}

fn idle_because(
    situation: &Situation<'_>,
    dispatchers: &[Dispatcher<'_>],
    gpu: &Gpu,
    findings: &[Finding],
) -> Vec<IdleBecause> {
    let all_ns = gpu.idle_times_ns();
    let mut sums: BTreeMap<(Option<String>, &'static str), u64> = BTreeMap::new();
    for thread in dispatchers.iter().filter(|thread| gpu.idle.iter().any(|idle| idle.ended_by == thread.id)) {
        for (&did, &ns) in &thread.idle.by_activity {
            let finding = explaining(situation, thread, did, findings).map(|finding| finding.id.clone());
            let sum = sums.entry((finding, did.why())).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
    let told = sums.into_iter().filter(|(_, ns)| share(*ns, all_ns) >= LEAST_TOLD);
    let mut told: Vec<IdleBecause> = told
        .map(|((finding, why), ns)| IdleBecause {
            finding,
            why: why.to_owned(),
            ns,
            share_of_idle: rounded(share(ns, all_ns)),
        })
        .collect();
    told.sort_by_key(|because| std::cmp::Reverse(because.ns));
    told
}

/// The first finding about a thread whose cause is what it did.
fn explaining<'f>(
    situation: &Situation<'_>,
    thread: &Dispatcher<'_>,
    did: Did,
    findings: &'f [Finding],
) -> Option<&'f Finding> {
    let own = victim(situation, thread.id);
    let is_about = |finding: &&Finding| {
        let rule = rules::find(&finding.cause);
        finding.victim.process() == own.process() && rule.is_some_and(|rule| rule.meanwhile.contains(&did))
    };
    findings.iter().find(is_about)
}
