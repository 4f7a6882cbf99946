//! Which findings came, went or stayed.

use gpuwhy_model::{Cause, Finding, Severity};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ComparedFindings {
    pub only_in_first: Vec<ShortFinding>,
    pub only_in_second: Vec<ShortFinding>,
    /// The same cause for threads of the same name.
    pub in_both: Vec<InBoth>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct InBoth {
    pub first: ShortFinding,
    pub second: ShortFinding,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ShortFinding {
    /// As `findings` of that part names it.
    pub id: String,
    pub cause: Cause,
    pub severity: Severity,
    pub confidence: f64,
    pub summary: String,
    /// Of the victim's time.
    pub share: f64,
    pub lost_ns: u64,
}

pub fn compare(first: &[Finding], second: &[Finding]) -> ComparedFindings {
    let mut compared = ComparedFindings::default();
    let mut left: Vec<&Finding> = second.iter().collect();
    for one in first {
        match left.iter().position(|other| is_same(one, other)) {
            Some(at) => compared.in_both.push(InBoth { first: short(one), second: short(left.remove(at)) }),
            None => compared.only_in_first.push(short(one)),
        }
    }
    compared.only_in_second = left.into_iter().map(short).collect();
    compared
}

/// Numbers of processes and threads differ between runs; names do not.
fn is_same(one: &Finding, other: &Finding) -> bool {
    one.cause == other.cause && one.victim.comm == other.victim.comm
}

fn short(finding: &Finding) -> ShortFinding {
    ShortFinding {
        id: finding.id.clone(),
        cause: finding.cause,
        severity: finding.severity,
        confidence: finding.confidence,
        summary: finding.summary.clone(),
        share: finding.impact.share,
        lost_ns: finding.impact.lost_ns,
    }
}
