//! A port of the fabric between hosts counted errors while the job communicated.
//!
//! # How it is detected
//! The driver of an InfiniBand or RoCE port counts what goes wrong on it: packets that arrive damaged, out of order or not at
//! all, links that go down. The counters are read every five seconds, and those that grew in the time that is looked at
//! are told with their port. With `--rdma-verbs`, so is what libibverbs tells programs of links and devices that failed.
//!
//! # When it is not reported
//! Counters of traffic, of congestion that is signalled as it should be, and errors from before do not count. In a job whose
//! ranks ask for no collective operations the errors are told, but they are nothing to be alarmed by.
//!
//! # How to fix it
//! Look at the cable, the transceiver and the port at the other end (`ibdiagnet`, `mlxlink`, the switch's own counters). RoCE
//! that drops packets needs flow control on every switch of the way. A link that goes down again and again is to be taken
//! out of service.

use std::collections::BTreeMap;

use gpuwhy_model::{CallClass, Chain, Culprit, Evidence, Finding, Impact, Severity};
use gpuwhy_window::FabricErrors;

use super::{Check, Rule, advice, sufferers};
use crate::case::{JobCase, Verdict, edge, found, victim};
use crate::confidence::{self, Backing};

pub const RULE: Rule = Rule {
    needs: &[CallClass::Collective],
    ..Rule::new("fabric-error", "The fabric counts errors", include_str!("fabric_error.rs"), Check::Job(check))
};

const FIX: &[&str] = &[
    "Look at the cable, the transceiver and the other end of that port (ibdiagnet, mlxlink, the switch's counters).",
    "RoCE that drops packets needs flow control on every switch of the way.",
];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let mut hosts: BTreeMap<u16, Vec<&FabricErrors>> = BTreeMap::new();
    for errors in &case.situation.window.fabric_errors {
        hosts.entry(errors.host).or_default().push(errors);
    }
    let told = hosts.iter().filter_map(|(&host, errors)| finding(case, host, errors));
    let mut verdicts: Vec<Verdict> = told.map(|finding| Verdict::Found(Box::new(finding))).collect();
    if verdicts.is_empty() {
        verdicts.push(Verdict::ruled_out(RULE.cause, "no port of a fabric counted errors".to_owned()));
    }
    verdicts
}

fn finding(case: &JobCase<'_, '_>, host: u16, errors: &[&FabricErrors]) -> Option<Finding> {
    let (situation, window) = (case.situation, case.situation.window);
    let thread = sufferers::longest(case, host, None, None)?;
    let most = errors.iter().max_by_key(|errors| errors.count)?;
    let counted: Vec<String> =
        errors.iter().map(|errors| format!("{} {} on {}", errors.count, errors.counter, errors.port)).collect();
    let counted = counted.join(", ");
    let name = window.hosts.get(usize::from(host)).map(|host| host.name.clone());
    let on = name.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    let what = format!("the fabric{on} counted {counted}");
    let chain = Chain::starting(edge(what, Evidence::Explicit, 0, Vec::new()));
    let summary = format!("The fabric{on} counted errors meanwhile: {counted}.");
    let is_used = !window.collectives.rows.is_empty();
    let all = errors.iter().fold(0u64, |sum, errors| sum.saturating_add(errors.count));
    Some(Finding {
        impact: Impact { lost_ns: 0, share: 0.0, calls_affected: 0, calls_total: all },
        victim: victim(situation, thread.id),
        culprit: Some(Culprit { host: name, detail: format!("errors on {}", most.port), ..Culprit::default() }),
        fix: advice(FIX),
        ..found(
            RULE.cause,
            if is_used { Severity::Medium } else { Severity::Low },
            confidence::weigh(&chain, Backing::SUMS, window),
            summary,
            chain,
        )
    })
}
