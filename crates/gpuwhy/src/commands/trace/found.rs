//! What is found, as records of a log with spans for their chains: when it is there for the first time, and when it has become
//! worse.

use std::collections::BTreeMap;

use gpuwhy_model::{Explanation, Finding, Severity};
use gpuwhy_outputs::{Attribute, Level, LogEntry, SpanContext, SpanEntry};
use gpuwhy_questions::Cited;

use super::chains::{self, Attributes, Chains};

/// The name of such a record.
const NAME: &str = "gpuwhy.finding";

/// What was told and is still so.
pub struct Found {
    told: BTreeMap<Key, Told>,
    chains: Chains,
    since_ns: u64,
}

/// The cause, and whom it happens to.
type Key = (String, u32);

#[derive(Clone)]
struct Told {
    severity: Severity,
    /// The span that stands for it, from when it came until it is gone.
    context: SpanContext,
    /// Whether anything was cited, without which there is no such span.
    has_span: bool,
}

/// What is new.
#[derive(Debug, Default)]
pub struct News {
    pub entries: Vec<LogEntry>,
    pub spans: Vec<SpanEntry>,
}

impl Found {
    /// Told are records from this time on.
    pub fn new(since_ns: u64) -> Self {
        Self { told: BTreeMap::new(), chains: Chains::new(since_ns), since_ns }
    }

    /// What is new in an explanation; `look_up` has what a finding cites.
    pub fn news(&mut self, explanation: &Explanation, look_up: impl Fn(&Finding) -> Cited) -> News {
        self.chains.forget_before(explanation.window.from_ns);
        let is_grave = |finding: &&Finding| finding.is_problem && finding.severity > Severity::Low;
        let (mut news, mut told) = (News::default(), BTreeMap::new());
        for finding in explanation.findings.iter().filter(is_grave) {
            let key = (finding.cause.as_str().to_owned(), finding.victim.pid);
            let before = self.told.get(&key);
            let is_new = before.is_none_or(|before| finding.severity > before.severity);
            // There may be two of one cause, which are one then.
            let known = told.get(&key).or(before).cloned();
            let mut now = known.unwrap_or_else(|| self.first(&key, explanation.window.to_ns));
            now.severity = finding.severity;
            if is_new {
                self.tell(finding, &look_up(finding), explanation.window.to_ns, &mut now, &mut news);
            }
            told.insert(key, now);
        }
        self.told = told;
        news
    }

    /// No other tracer began at the same nanosecond, so that no other trace has this name.
    fn first(&self, (cause, pid): &Key, now_ns: u64) -> Told {
        let context = SpanContext::of_trace(&format!("{cause} {pid} {} {now_ns}", self.since_ns));
        Told { severity: Severity::Low, context, has_span: false }
    }

    fn tell(&mut self, finding: &Finding, cited: &Cited, now_ns: u64, told: &mut Told, news: &mut News) {
        let mut entry = entry(finding, now_ns);
        for (key, value) in cited.processes.get(&finding.victim.pid).map_or(Vec::new(), chains::place) {
            if entry.attributes.iter().all(|(known, _)| *known != key) {
                entry.attributes.push((key, value));
            }
        }
        let links = self.chains.links_elsewhere(finding, told.context);
        let elsewhere = links.first().map(|link| link.to);
        let spans = self.chains.spans(finding, cited, told.context);
        if let Some(during) = chains::around(&spans).filter(|_| !told.has_span) {
            told.has_span = true;
            news.spans.push(SpanEntry {
                context: told.context,
                parent: None,
                name: finding.cause.as_str().to_owned(),
                from_ns: during.from_ns,
                to_ns: during.to_ns,
                attributes: entry.attributes.clone(),
                links,
                failure: None,
            });
        }
        news.spans.extend(spans);
        entry.span = if told.has_span { Some(told.context) } else { elsewhere };
        news.entries.push(entry);
    }
}

/// A record of a log about it.
pub(super) fn entry(finding: &Finding, now_ns: u64) -> LogEntry {
    let text = |text: &str| Attribute::Text(text.to_owned());
    let victim = &finding.victim;
    let mut attributes: Attributes = vec![
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
        span: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::trace::chains::tests::{CHAIN, explanation, finding};

    #[test]
    fn a_finding_is_told_when_it_comes_when_it_becomes_worse_and_when_it_comes_back() {
        let mut found = Found::new(0);
        let mut told = |findings: &[(&str, &str)]| {
            let findings: Vec<_> = findings.iter().map(|(cause, severity)| finding(cause, severity, CHAIN)).collect();
            found.news(&explanation(0, &findings), |_| Cited::default()).entries.len()
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
        let explanation = explanation(0, &[finding("lock-wait", "high", CHAIN)]);
        let news = Found::new(0).news(&explanation, |_| Cited::default());
        let ([entry], []) = (&news.entries[..], &news.spans[..]) else { panic!("{news:?}") };
        assert_eq!((entry.level, entry.at_ns, entry.text.as_str()), (Level::Error, 9, "python (7) waited"));
        for expected in [
            ("gpuwhy.cause", Attribute::Text("lock-wait".to_owned())),
            ("process.pid", Attribute::Whole(7)),
            ("container.id", Attribute::Text("77aa".to_owned())),
            ("gpuwhy.culprit.pid", Attribute::Whole(8)),
            ("code.file.path", Attribute::Text("train.py".to_owned())),
            ("code.line.number", Attribute::Whole(31)),
        ] {
            assert!(entry.attributes.contains(&expected), "{expected:?} {entry:?}");
        }
    }
}
