//! From what each rule said about each thread to the list a person reads: the root cause first, nothing twice.

use std::collections::BTreeSet;

use gpuwhy_model::{Cause, Culprit, Edge, Evidence, Finding, RuledOut, Severity};

use crate::case::Verdict;
use crate::rules;

/// Of a thread's time.
const LITTLE: f64 = 0.05;

pub(crate) fn rank(verdicts: Vec<Verdict>) -> (Vec<Finding>, Vec<RuledOut>) {
    let mut alike: Vec<Alike> = Vec::new();
    let mut ruled_out = Vec::new();
    for verdict in verdicts {
        match verdict {
            Verdict::Found(finding) => merge(&mut alike, titled(*finding)),
            Verdict::RuledOut { cause, why, share, is_too_little } => {
                ruled_out.push((ruled_out_line(cause.into(), why, is_too_little.then_some(share)), share));
            }
        }
    }
    let mut findings: Vec<Finding> = alike.into_iter().map(Alike::told).collect();
    drop_explained(&mut findings);
    sort(&mut findings);
    let most_telling = most_telling(ruled_out, &findings);
    (findings, most_telling)
}

/// With the words of its rule.
fn titled(mut finding: Finding) -> Finding {
    if let Some(rule) = rules::find(&finding.cause) {
        (finding.title, finding.is_problem) = (rule.title.to_owned(), rule.is_problem);
    }
    finding
}

fn ruled_out_line(cause: Cause, why: String, share: Option<f64>) -> RuledOut {
    let title = rules::find(&cause).map_or_else(String::new, |rule| rule.title.to_owned());
    RuledOut { cause, title, why, share }
}

/// Findings that say the same.
struct Alike {
    /// Of the one that suffers most.
    finding: Finding,
    victims: BTreeSet<(Option<String>, u32)>,
}

impl Alike {
    fn told(self) -> Finding {
        let victims = u32::try_from(self.victims.len()).unwrap_or(u32::MAX);
        Finding { victims: victims.max(self.finding.victims), ..self.finding }
    }

    fn is_like(&self, other: &Finding) -> bool {
        let own = &self.finding;
        own.cause == other.cause
            && match self.victims.contains(&who(other)) {
                true => is_same_culprit(own, other),
                false => is_same_program(own, other),
            }
    }
}

/// The host and the process.
fn who(finding: &Finding) -> (Option<String>, u32) {
    (finding.victim.host.clone(), finding.victim.pid)
}

/// Threads and processes that suffer from the same are one finding, told of the one that suffers most.
fn merge(findings: &mut Vec<Alike>, next: Finding) {
    let victim = who(&next);
    let Some(known) = findings.iter_mut().find(|one| one.is_like(&next)) else {
        findings.push(Alike { finding: next, victims: BTreeSet::from([victim]) });
        return;
    };
    known.victims.insert(victim);
    let impact = &known.finding.impact;
    let affected = impact.calls_affected.saturating_add(next.impact.calls_affected);
    let total = impact.calls_total.saturating_add(next.impact.calls_total);
    if weight(&next) > weight(&known.finding) {
        known.finding = next;
    }
    let impact = &mut known.finding.impact;
    (impact.calls_affected, impact.calls_total) = (affected, total);
}

/// Processes that run the same program, each its own culprit or both with the same one, at the same place.
fn is_same_program(one: &Finding, other: &Finding) -> bool {
    let blames_itself =
        |finding: &Finding| finding.culprit.as_ref().map(|culprit| culprit.process() == finding.victim.process());
    let file = |finding: &Finding| finding.r#where.first().map(|place| place.file.clone());
    one.victim.comm == other.victim.comm
        && one.victim.device == other.victim.device
        && blames_itself(one) == blames_itself(other)
        && is_same_culprit(one, other)
        && file(one) == file(other)
}

/// The same process, or another one that runs the same program: one of many workers, one of many hogs.
fn is_same_culprit(one: &Finding, other: &Finding) -> bool {
    let is_of_job = rules::find(&one.cause).is_some_and(|rule| matches!(rule.check, rules::Check::Job(_)));
    let is_device = |culprit: &Culprit| culprit.pid == 0 && culprit.comm.is_empty();
    match (&one.culprit, &other.culprit) {
        // What is asked about once tells several devices apart itself.
        (Some(one), Some(other)) if is_device(one) && is_device(other) && is_of_job => {
            (&one.host, &one.detail) == (&other.host, &other.detail)
        }
        (Some(one), Some(other)) => {
            one.process() == other.process() || (!one.comm.is_empty() && one.comm == other.comm)
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn drop_explained(findings: &mut Vec<Finding>) {
    let is_needed = |finding: &Finding| !findings.iter().any(|other| explains_away(other, finding));
    let is_needed: Vec<bool> = findings.iter().map(is_needed).collect();
    let mut is_needed = is_needed.into_iter();
    findings.retain(|_| is_needed.next().unwrap_or(true));
    drop_parts(findings);
}

/// What is a later part of another finding's chain is told there.
fn drop_parts(findings: &mut Vec<Finding>) {
    let rests: Vec<(Severity, Vec<Edge>)> =
        findings.iter().map(|finding| (finding.severity, finding.chain.edges().skip(1).cloned().collect())).collect();
    findings.retain(|finding| {
        let first = finding.chain.edges().next();
        let is_part = |(severity, rest): &(Severity, Vec<Edge>)| {
            *severity >= finding.severity && rest.iter().any(|edge| Some(edge) == first)
        };
        !rests.iter().any(is_part)
    });
}

fn explains_away(finding: &Finding, other: &Finding) -> bool {
    let Some(rule) = rules::find(&finding.cause) else { return false };
    let is_said = |causes: &[&str]| causes.contains(&other.cause.as_str());
    let is_same_line = || own_line(finding) == own_line(other);
    let explains_line = is_said(rule.explains_its_line) && is_same_line();
    let is_most_of_it = || explains_line && finding.impact.lost_ns > other.impact.lost_ns / 2;
    (is_said(rule.explains_away) || explains_line)
        && finding.victim.process() == other.victim.process()
        && (finding.severity >= other.severity || other.severity == Severity::Low || is_most_of_it())
}

/// The first line that a finding names.
fn own_line(finding: &Finding) -> Option<(&str, u32)> {
    finding.r#where.iter().find_map(|place| Some((place.file.as_str(), place.line?)))
}

/// What was lost, as far as it is sure; a cause that costs no time is weighed by its severity alone.
fn weight(finding: &Finding) -> f64 {
    finding.impact.lost_ns as f64 * finding.confidence
}

fn sort(findings: &mut [Finding]) {
    let is_said = |finding: &Finding| finding.chain.weakest() == Evidence::Explicit;
    findings.sort_by(|one, other| {
        (place(one), is_said(other))
            .cmp(&(place(other), is_said(one)))
            .then(weight(other).total_cmp(&weight(one)))
            .then(rules::position(&one.cause).cmp(&rules::position(&other.cause)))
    });
    for (at, finding) in findings.iter_mut().enumerate() {
        finding.id = format!("f{}", at + 1);
    }
}

/// The grave ones first. What is no problem, like a busy GPU, says more than something that hardly takes any time.
fn place(finding: &Finding) -> u8 {
    let is = |of: fn(&rules::Rule) -> bool| rules::find(&finding.cause).is_some_and(of);
    let is_little = finding.impact.share < LITTLE || is(|rule| rule.is_usual_when_low);
    match finding.severity {
        Severity::High if is(|rule| rule.is_the_end) => 0,
        Severity::High => 1,
        Severity::Medium => 2,
        Severity::Low if !finding.is_problem => 4,
        Severity::Low if is_little => 5,
        Severity::Low => 3,
    }
}

/// One line for each cause that was not found: that of the thread that came closest.
fn most_telling(mut ruled_out: Vec<(RuledOut, f64)>, findings: &[Finding]) -> Vec<RuledOut> {
    ruled_out.retain(|(line, _)| findings.iter().all(|finding| finding.cause != line.cause));
    ruled_out.sort_by(|(one, one_share), (other, other_share)| {
        let by_rule = rules::position(&one.cause).cmp(&rules::position(&other.cause));
        by_rule.then(other_share.total_cmp(one_share))
    });
    ruled_out.dedup_by(|(one, _), (other, _)| one.cause == other.cause);
    ruled_out.into_iter().map(|(line, _)| line).collect()
}
