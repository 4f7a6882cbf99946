//! Which findings came, went or stayed.

use std::cmp::Ordering;

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
    /// Whether it is graver, less grave, or as grave as before.
    pub severity: SeverityChange,
    /// The second share less the first.
    pub change_share: f64,
}

#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SeverityChange {
    Graver,
    Lighter,
    Same,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ShortFinding {
    /// As `findings` of that part names it.
    pub id: String,
    pub cause: Cause,
    /// The cause in words for somebody who sees it for the first time.
    pub title: String,
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
            Some(at) => compared.in_both.push(in_both(one, left.remove(at))),
            None => compared.only_in_first.push(short(one)),
        }
    }
    compared.only_in_second = left.into_iter().map(short).collect();
    compared
}

fn in_both(first: &Finding, second: &Finding) -> InBoth {
    InBoth {
        severity: match second.severity.cmp(&first.severity) {
            Ordering::Greater => SeverityChange::Graver,
            Ordering::Less => SeverityChange::Lighter,
            Ordering::Equal => SeverityChange::Same,
        },
        change_share: second.impact.share - first.impact.share,
        first: short(first),
        second: short(second),
    }
}

/// Numbers of processes and threads differ between runs; names do not.
fn is_same(one: &Finding, other: &Finding) -> bool {
    one.cause == other.cause && one.victim.comm == other.victim.comm
}

fn short(finding: &Finding) -> ShortFinding {
    ShortFinding {
        id: finding.id.clone(),
        cause: finding.cause.clone(),
        title: finding.title.clone(),
        severity: finding.severity,
        confidence: finding.confidence,
        summary: finding.summary.clone(),
        share: finding.impact.share,
        lost_ns: finding.impact.lost_ns,
    }
}
