//! Was an explanation right?

use std::collections::BTreeSet;

use gpuwhy_analysis::HIGH_CONFIDENCE;
use gpuwhy_model::{Evidence, Explanation, Finding, Place, Severity};
use gpuwhy_testbed::{Scenario, ScenarioTruth, Setup};
use serde_json::{Value, json};

use super::lines;

/// One run against its truth.
pub fn judge(scenario: &Scenario, setup: &Setup, truth: &ScenarioTruth, explanation: &Explanation) -> Value {
    let first = first(explanation, truth.cause);
    let grave: Vec<_> = explanation.findings.iter().filter(|finding| is_grave(finding)).collect();
    let others: BTreeSet<_> = grave
        .iter()
        .filter(|finding| truth.cause.is_none_or(|cause| finding.cause != cause))
        .map(|finding| finding.cause.as_str())
        .collect();
    let cause_right = match truth.cause {
        Some(cause) => first.is_some_and(|finding| finding.cause == cause),
        None => grave.is_empty(),
    };
    let (process_right, thread_right) = culprit(truth, first);
    let line = truth.cause.and_then(|_| lines::judge(&lines::expected(scenario), places(first)));
    json!({
        "scenario": scenario.name,
        "healthy": setup.healthy,
        "seed": setup.seed,
        "threads": setup.threads,
        "background": setup.background,
        "expected": truth.cause.unwrap_or("none"),
        "found": first.map_or("none", |finding| finding.cause.as_str()),
        "severity": first.map(|finding| finding.severity.as_str()),
        "confidence": first.map(|finding| finding.confidence),
        "summary": first.map(what_was_said),
        "cause_right": cause_right,
        "process_right": process_right,
        "thread_right": thread_right,
        "line_right": line.map(|line| line.is_first),
        "line_anywhere": line.map(|line| line.is_anywhere),
        "where": lines::words(places(first)),
        "others": others,
    })
}

/// Without the machine's own cgroups, which say nothing about gpuwhy.
fn what_was_said(finding: &Finding) -> String {
    match finding.victim.cgroup.as_deref() {
        Some(cgroup) if !cgroup.is_empty() => finding.summary.replace(cgroup, "/"),
        _ => finding.summary.clone(),
    }
}

fn places(finding: Option<&Finding>) -> &[Place] {
    finding.map(|finding| finding.r#where.as_slice()).unwrap_or_default()
}

/// What stands first: where nothing is expected, only what is grave counts as found.
fn first<'e>(explanation: &'e Explanation, expected: Option<&str>) -> Option<&'e Finding> {
    explanation.findings.first().filter(|finding| expected.is_some() || is_grave(finding))
}

fn is_grave(finding: &Finding) -> bool {
    finding.severity > Severity::Low
}

/// Whether the right process and the right thread are blamed, where there is one to blame.
fn culprit(truth: &ScenarioTruth, finding: Option<&Finding>) -> (Option<bool>, Option<bool>) {
    let Some(expected) = &truth.culprit else { return (None, None) };
    if truth.cause.is_none() {
        return (None, None);
    }
    let blamed = finding.and_then(|finding| finding.culprit.as_ref());
    let process = blamed.is_some_and(|blamed| expected.pids.contains(&blamed.pid));
    let thread = blamed.is_some_and(|blamed| expected.tids.contains(&blamed.tid));
    (Some(process), (!expected.tids.is_empty()).then_some(thread))
}

/// The same after records were dropped: what must never happen is to be sure of something wrong.
pub fn judge_dropped(share: f64, truth: &ScenarioTruth, explanation: &Explanation) -> Value {
    let is_wrong = |finding: &&Finding| is_grave(finding) && truth.cause.is_none_or(|cause| finding.cause != cause);
    let sure_and_wrong: Vec<_> = explanation
        .findings
        .iter()
        .take(1)
        .filter(is_wrong)
        .filter(|finding| finding.confidence >= HIGH_CONFIDENCE)
        .map(|finding| finding.cause.as_str())
        .collect();
    let first = first(explanation, truth.cause);
    json!({
        "share": share,
        "found": first.map_or("none", |finding| finding.cause.as_str()),
        "confidence": first.map(|finding| finding.confidence),
        "missing": first.is_some_and(|finding| finding.chain.weakest() == Evidence::Missing),
        "sure_and_wrong": sure_and_wrong,
    })
}

pub fn is_right(run: &Value) -> bool {
    let holds = |key: &str| run[key].as_bool().unwrap_or(true);
    holds("cause_right") && holds("process_right") && holds("thread_right") && holds("line_anywhere")
}

pub fn line(run: &Value) -> String {
    let text = |key: &str| run[key].as_str().unwrap_or("-").to_owned();
    let mark = |key: &str| match run[key].as_bool() {
        Some(true) => "ok",
        Some(false) => "WRONG",
        None => "-",
    };
    let twin = if run["healthy"] == json!(true) { " (healthy)" } else { "" };
    format!(
        "{:<32} {:>6} {} thr  {:<16} {:<16} {:<7} {:>4.2}  cause {} process {} thread {} line {}/{}  {}  {}",
        text("scenario") + twin,
        run["seed"],
        run["threads"],
        text("expected"),
        text("found"),
        text("severity"),
        run["confidence"].as_f64().unwrap_or(0.0),
        mark("cause_right"),
        mark("process_right"),
        mark("thread_right"),
        mark("line_right"),
        mark("line_anywhere"),
        run["others"],
        if is_right(run) { run["where"][0].to_string() } else { format!("{} {}", text("summary"), run["where"]) },
    )
}

/// A share of runs for which something holds, of those for which it is known.
pub fn share_right<'a>(runs: impl Iterator<Item = &'a Value>, key: &str) -> (usize, usize) {
    let known: Vec<bool> = runs.filter_map(|run| run[key].as_bool()).collect();
    (known.iter().filter(|&&right| right).count(), known.len())
}

pub fn summary(results: &Value) -> String {
    let runs = results["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let faulty = || runs.iter().filter(|run| run["expected"] != json!("none"));
    let quiet = || runs.iter().filter(|run| run["expected"] == json!("none"));
    let wrong = faulty().flat_map(|run| run["dropped"].as_array().into_iter().flatten());
    let wrong = wrong.filter(|one| one["sure_and_wrong"].as_array().is_some_and(|all| !all.is_empty())).count();
    let of = |(right, all): (usize, usize)| format!("{right} of {all}");
    format!(
        "cause {}, process {}, thread {}, line {} (anywhere {}); nothing found where nothing is wrong {}; sure and wrong after drops {wrong}",
        of(share_right(faulty(), "cause_right")),
        of(share_right(faulty(), "process_right")),
        of(share_right(faulty(), "thread_right")),
        of(share_right(faulty(), "line_right")),
        of(share_right(faulty(), "line_anywhere")),
        of(share_right(quiet(), "cause_right")),
    )
}
