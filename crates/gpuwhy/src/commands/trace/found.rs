//! What is found, as records of a log: when it is there for the first time, and when it has become worse.

use std::collections::BTreeMap;

use gpuwhy_model::{Explanation, Finding, Severity};
use gpuwhy_outputs::{Attribute, Level, LogEntry};

/// The name of such a record.
const NAME: &str = "gpuwhy.finding";

/// What was told and is still so, with how grave it was.
#[derive(Default)]
pub struct Found(BTreeMap<(String, u32), Severity>);

impl Found {
    /// What is new in an explanation.
    pub fn news(&mut self, explanation: &Explanation) -> Vec<LogEntry> {
        let is_grave = |finding: &&Finding| finding.is_problem && finding.severity > Severity::Low;
        let now: Vec<&Finding> = explanation.findings.iter().filter(is_grave).collect();
        let key = |finding: &Finding| (finding.cause.as_str().to_owned(), finding.victim.pid);
        let is_new = |finding: &&&Finding| self.0.get(&key(finding)).is_none_or(|told| finding.severity > *told);
        let news = now.iter().filter(is_new).map(|finding| entry(finding, explanation.window.to_ns)).collect();
        self.0 = now.iter().map(|finding| (key(finding), finding.severity)).collect();
        news
    }
}

fn entry(finding: &Finding, now_ns: u64) -> LogEntry {
    let text = |text: &str| Attribute::Text(text.to_owned());
    let victim = &finding.victim;
    let mut attributes = vec![
        ("gpuwhy.cause", text(finding.cause.as_str())),
        ("gpuwhy.severity", text(finding.severity.as_str())),
        ("gpuwhy.confidence", Attribute::Number(finding.confidence)),
        ("gpuwhy.share", Attribute::Number(finding.impact.share)),
        ("process.pid", Attribute::Whole(victim.pid.into())),
        ("process.executable.name", text(&victim.comm)),
    ];
    let known =
        [("container.id", &victim.container), ("k8s.pod.uid", &victim.pod), ("process.linux.cgroup", &victim.cgroup)];
    attributes.extend(known.iter().filter_map(|(key, value)| Some((*key, text(value.as_deref()?)))));
    if let Some(culprit) = &finding.culprit {
        attributes.push(("gpuwhy.culprit.pid", Attribute::Whole(culprit.pid.into())));
        attributes.push(("gpuwhy.culprit.name", text(&culprit.comm)));
    }
    if let Some(place) = finding.r#where.first() {
        attributes.push(("code.file.path", text(&place.file)));
        attributes.extend(place.line.map(|line| ("code.line.number", Attribute::Whole(line.into()))));
        attributes.extend(place.function.as_deref().map(|function| ("code.function.name", text(function))));
    }
    LogEntry {
        name: NAME,
        at_ns: finding.during.map_or(now_ns, |during| during.to_ns),
        level: match finding.severity {
            Severity::High => Level::Error,
            Severity::Medium => Level::Warn,
            Severity::Low => Level::Info,
        },
        text: finding.summary.clone(),
        attributes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn finding(cause: &str, severity: &str) -> serde_json::Value {
        json!({
            "id": "f1", "cause": cause, "title": "", "is_problem": true, "severity": severity, "confidence": 0.5,
            "summary": "python (7) waited", "during": {"from_ns": 1, "to_ns": 9},
            "impact": {"lost_ns": 1, "share": 0.25, "calls_affected": 1, "calls_total": 1},
            "victim": {"pid": 7, "tid": 7, "comm": "python", "rank": null, "device": null, "cgroup": null,
                       "container": null, "pod": "a1"},
            "symptom": null, "culprit": {"pid": 8, "tid": 0, "comm": "writer", "detail": ""},
            "where": [{"kind": "python", "file": "train.py", "line": 31, "function": "step", "role": "victim"}],
            "chain": [{"what": "x", "evidence": "observed", "ns": 1, "refs": []}], "fix": [],
        })
    }

    fn explanation(findings: &[serde_json::Value]) -> Explanation {
        let nothing = json!({
            "schema": 1, "version": "", "window": {"from_ns": 0, "to_ns": 1}, "coverage": gpuwhy_model::Coverage::default(),
            "findings": findings, "ruled_out": [], "threads": [],
        });
        serde_json::from_value(nothing).unwrap()
    }

    #[test]
    fn a_finding_is_told_when_it_comes_when_it_becomes_worse_and_when_it_comes_back() {
        let mut found = Found::default();
        let mut told = |findings: &[(&str, &str)]| {
            let findings: Vec<_> = findings.iter().map(|(cause, severity)| finding(cause, severity)).collect();
            found.news(&explanation(&findings)).len()
        };
        assert_eq!(told(&[("lock-wait", "low")]), 0);
        assert_eq!(told(&[("lock-wait", "medium"), ("io-wait", "high")]), 2);
        assert_eq!(told(&[("lock-wait", "medium"), ("io-wait", "medium")]), 0);
        assert_eq!(told(&[("lock-wait", "high")]), 1);
        assert_eq!(told(&[]), 0);
        assert_eq!(told(&[("lock-wait", "high")]), 1);
    }

    #[test]
    fn it_is_told_with_who_suffers_who_is_to_blame_and_the_line() {
        let news = Found::default().news(&explanation(&[finding("lock-wait", "high")]));
        let [entry] = &news[..] else { panic!("{news:?}") };
        assert_eq!((entry.level, entry.at_ns, entry.text.as_str()), (Level::Error, 9, "python (7) waited"));
        for expected in [
            ("gpuwhy.cause", Attribute::Text("lock-wait".to_owned())),
            ("process.pid", Attribute::Whole(7)),
            ("k8s.pod.uid", Attribute::Text("a1".to_owned())),
            ("gpuwhy.culprit.pid", Attribute::Whole(8)),
            ("code.file.path", Attribute::Text("train.py".to_owned())),
            ("code.line.number", Attribute::Whole(31)),
        ] {
            assert!(entry.attributes.contains(&expected), "{expected:?} {entry:?}");
        }
    }
}
