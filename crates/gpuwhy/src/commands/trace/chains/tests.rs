use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::commands::trace::found::{Found, News};
use gpuwhy_model::Explanation;

const SECOND: u64 = 1_000_000_000;

/// A loader that waits for a worker, which waits for a disk: `(what, pid, start, duration)`.
const RECORDS: &[(&str, u32, u64, u64)] = &[
    ("sched:100", 7, 100, 50),
    ("sched:300", 7, 300, 50),
    ("sched:110", 8, 110, 30),
    ("sched:900", 8, 900, 30),
    ("io:112", 8, 112, 20),
];

pub fn finding(cause: &str, severity: &str, edges: &[(&str, &[&str])]) -> serde_json::Value {
    let chain: Vec<_> = edges
        .iter()
        .map(|(evidence, refs)| json!({"what": "x", "evidence": evidence, "ns": 1, "refs": refs}))
        .collect();
    json!({
        "id": "f1", "cause": cause, "title": "", "is_problem": true, "severity": severity, "confidence": 0.5,
        "summary": "python (7) waited", "during": {"from_ns": 1, "to_ns": 9},
        "impact": {"lost_ns": 1, "share": 0.25, "calls_affected": 1, "calls_total": 1},
        "victim": {"pid": 7, "tid": 7, "comm": "python", "rank": null, "device": null, "cgroup": null,
                   "container": "77aa", "pod": null},
        "symptom": null, "culprit": {"pid": 8, "tid": 0, "comm": "writer", "detail": ""},
        "where": [{"kind": "python", "file": "train.py", "line": 31, "function": "step", "role": "victim"}],
        "chain": chain, "fix": [],
    })
}

pub fn explanation(from_ns: u64, findings: &[serde_json::Value]) -> Explanation {
    let window = json!({"from_ns": from_ns, "to_ns": from_ns + 60 * SECOND});
    let answer = json!({
        "schema": 1, "version": "", "window": window, "coverage": gpuwhy_model::Coverage::default(),
        "findings": findings, "ruled_out": [], "threads": [],
    });
    serde_json::from_value(answer).unwrap()
}

fn cited() -> Cited {
    let record = |&(reference, pid, start_ns, duration_ns): &(&str, u32, u64, u64)| {
        let record = CitedRecord {
            start_ns,
            duration_ns,
            running_ns: Some(0),
            runqueue_ns: Some(10),
            blocked_ns: Some(duration_ns - 10),
            pid,
            tid: pid,
            name: "stream wait".to_owned(),
            ..CitedRecord::default()
        };
        (reference.parse().unwrap(), record)
    };
    let labels = [("container", "77aa"), ("pod", "train-0"), ("namespace", "ml"), ("container_name", "trainer")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let process = |pid| (pid, CitedProcess { comm: "python".to_owned(), labels });
    Cited { records: RECORDS.iter().map(record).collect(), processes: [process(7)].into() }
}

pub const CHAIN: &[(&str, &[&str])] = &[
    ("observed", &["sched:100", "sched:300"]),
    ("inferred", &["sched:300"]),
    ("observed", &["sched:110", "sched:900"]),
    ("observed", &["io:112"]),
];

fn told(found: &mut Found, from_ns: u64, findings: &[serde_json::Value]) -> News {
    found.news(&explanation(from_ns, findings), |_| cited())
}

fn record(span: &SpanEntry) -> Option<&str> {
    span.attributes.iter().find_map(|(key, value)| match value {
        Attribute::Text(text) if *key == "gpuwhy.record" => Some(text.as_str()),
        _ => None,
    })
}

fn of<'n>(news: &'n News, reference: &str) -> &'n SpanEntry {
    news.spans.iter().find(|span| record(span) == Some(reference)).unwrap_or_else(|| panic!("{reference} {news:?}"))
}

#[test]
fn what_a_chain_cites_is_linked_from_the_victim_to_the_culprit() {
    let news = told(&mut Found::new(0), 0, &[finding("input-starved", "high", CHAIN)]);
    let (first, rest) = news.spans.split_first().unwrap();
    assert_eq!((&*first.name, first.parent, first.from_ns, first.to_ns), ("input-starved", None, 100, 930));
    assert_eq!(news.entries[0].span, Some(first.context));
    assert_eq!(rest.len(), RECORDS.len());
    assert!(rest.iter().all(|span| span.parent == Some(first.context) && span.context.is_of_trace(first.context)));
    let links = |reference: &str| -> Vec<(SpanContext, Attribute)> {
        of(&news, reference).links.iter().map(|link| (link.to, link.attributes[0].1.clone())).collect()
    };
    let evidence = |word: &str| Attribute::Text(word.to_owned());
    // What the worker did meanwhile; the second wait has nothing of that, and gets what comes closest.
    assert_eq!(links("sched:100"), [(of(&news, "sched:110").context, evidence("inferred"))]);
    assert_eq!(links("sched:300"), [(of(&news, "sched:110").context, evidence("inferred"))]);
    assert_eq!(links("sched:110"), [(of(&news, "io:112").context, evidence("observed"))]);
    assert_eq!(links("sched:900"), [(of(&news, "io:112").context, evidence("inferred"))]);
    assert_eq!(links("io:112"), []);
}

#[test]
fn a_span_says_whose_it_is_and_where_its_time_went() {
    let news = told(&mut Found::new(0), 0, &[finding("input-starved", "high", CHAIN)]);
    let span = of(&news, "sched:100");
    assert_eq!((&*span.name, span.from_ns, span.to_ns), ("stream wait", 100, 150));
    let text = |text: &str| Attribute::Text(text.to_owned());
    for expected in [
        ("process.pid", Attribute::Whole(7)),
        ("thread.id", Attribute::Whole(7)),
        ("gpuwhy.runqueue_ns", Attribute::Whole(10)),
        ("gpuwhy.blocked_ns", Attribute::Whole(40)),
        ("process.executable.name", text("python")),
        ("container.id", text("77aa")),
        ("k8s.pod.name", text("train-0")),
        ("k8s.namespace.name", text("ml")),
        ("k8s.container.name", text("trainer")),
    ] {
        assert!(span.attributes.contains(&expected), "{expected:?} {span:?}");
    }
    let logged: Vec<_> = news.entries[0].attributes.iter().map(|(key, _)| *key).collect();
    assert_eq!(logged.iter().collect::<BTreeSet<_>>().len(), logged.len(), "an attribute comes once: {logged:?}");
    assert!(logged.contains(&"k8s.pod.name") && logged.contains(&"container.id"), "{logged:?}");
}

#[test]
fn a_record_becomes_a_span_once() {
    let mut found = Found::new(0);
    let first = told(&mut found, 0, &[finding("input-starved", "medium", &CHAIN[..1])]);
    // It is still there; then it is worse, and cites more: that belongs to the same trace.
    assert!(told(&mut found, 0, &[finding("input-starved", "medium", CHAIN)]).spans.is_empty());
    let worse = told(&mut found, 0, &[finding("input-starved", "high", CHAIN)]);
    let records = |news: &News| news.spans.iter().filter_map(record).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((first.spans.len(), records(&first)), (3, vec!["sched:100".to_owned(), "sched:300".to_owned()]));
    assert_eq!(records(&worse), ["sched:110", "sched:900", "io:112"]);
    assert_eq!(worse.spans.len(), 3, "the first span is not sent again");
    assert_eq!(worse.entries[0].span, first.entries[0].span);
    // Another finding cites the same: it refers to what was sent.
    let other = told(&mut found, 0, &[finding("io-wait", "high", CHAIN)]);
    assert!(other.spans.is_empty());
    assert_eq!(other.entries[0].span, Some(of(&first, "sched:100").context));
}

#[test]
fn a_finding_that_comes_back_is_another_trace_and_what_is_long_over_is_forgotten() {
    let mut found = Found::new(0);
    let first = told(&mut found, 0, &[finding("input-starved", "high", CHAIN)]);
    assert!(told(&mut found, SECOND, &[]).entries.is_empty());
    let again = told(&mut found, 2 * SECOND, &[finding("input-starved", "high", CHAIN)]);
    assert!(!again.spans[0].context.is_of_trace(first.spans[0].context));
}

#[test]
fn two_findings_of_one_cause_are_one_trace_with_one_first_span() {
    let pair = [finding("lock-wait", "high", &CHAIN[..1]), finding("lock-wait", "high", &CHAIN[2..])];
    let news = told(&mut Found::new(0), 0, &pair);
    let names: BTreeSet<String> = news.spans.iter().map(|span| format!("{:?}", span.context)).collect();
    assert_eq!((names.len(), news.spans.len(), news.entries.len()), (6, 6, 2));
}

#[test]
fn what_began_before_the_tracer_did_is_not_told_by_it() {
    let news = told(&mut Found::new(200), 0, &[finding("input-starved", "high", CHAIN)]);
    let records: Vec<_> = news.spans.iter().filter_map(record).collect();
    assert_eq!(records, ["sched:300", "sched:900"]);
}
