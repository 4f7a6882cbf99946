//! Chains of evidence as spans: the calls and waits that a finding cites, from the victim to the culprit, each linked to what it
//! waited for. A record becomes a span once, whichever findings cite it, and however often.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gpuwhy_model::{Evidence, Finding, RecordKind, Reference, Span};
use gpuwhy_outputs::{Attribute, SpanContext, SpanEntry, SpanLink};
use gpuwhy_questions::{Cited, CitedProcess, CitedRecord};

/// So many records of a finding become spans.
pub const MOST_RECORDS: usize = 30;

/// Labels of processes that have a name in OpenTelemetry's conventions.
const LABELS: &[(&str, &str)] = &[
    ("container", "container.id"),
    ("pod_uid", "k8s.pod.uid"),
    ("pod", "k8s.pod.name"),
    ("namespace", "k8s.namespace.name"),
    ("container_name", "k8s.container.name"),
];

pub type Attributes = Vec<(&'static str, Attribute)>;

/// What has been told, as long as a finding may cite it again.
pub struct Chains {
    told: BTreeMap<Reference, Told>,
    /// What started earlier is for those to tell who traced then.
    since_ns: u64,
}

struct Told {
    context: SpanContext,
    during: Span,
}

/// What one thread, or one disk, did or waited for.
struct Step<'c> {
    who: (bool, u32, u32),
    records: Vec<(Reference, &'c CitedRecord)>,
    /// The edge of the chain that cites it first.
    edge: usize,
}

impl Chains {
    pub fn new(since_ns: u64) -> Self {
        Self { told: BTreeMap::new(), since_ns }
    }

    /// What has ended by then is not cited any more.
    pub fn forget_before(&mut self, ns: u64) {
        self.told.retain(|_, told| told.during.to_ns >= ns);
    }

    /// The records of a finding that have not been told, as parts of the span that stands for it.
    pub fn spans(&mut self, finding: &Finding, cited: &Cited, parent: SpanContext) -> Vec<SpanEntry> {
        let steps = self.steps(finding, cited);
        let mut fresh: Vec<(Reference, &CitedRecord, usize)> = Vec::new();
        for (position, step) in steps.iter().enumerate() {
            for &(reference, record) in &step.records {
                if let Entry::Vacant(place) = self.told.entry(reference) {
                    let context = parent.child(&reference.to_string());
                    place.insert(Told { context, during: during(record) });
                    fresh.push((reference, record, position));
                }
            }
        }
        let entry = |(reference, record, position): (Reference, &CitedRecord, usize)| {
            let process = cited.processes.get(&record.pid);
            let next = steps.get(position + 1).map(|next| (next, weakest(finding, &steps[position], next)));
            SpanEntry {
                context: parent.child(&reference.to_string()),
                parent: Some(parent),
                name: record.name.clone(),
                from_ns: record.start_ns,
                to_ns: during(record).to_ns,
                attributes: attributes(reference, record, process, position),
                links: next.map_or(Vec::new(), |(next, evidence)| self.links(during(record), next, evidence)),
                failure: record.error.map(|code| format!("it returned {code}")),
            }
        };
        fresh.into_iter().map(entry).collect()
    }

    /// To what was told of a finding's records before, as part of other findings.
    pub fn links_elsewhere(&self, finding: &Finding, own: SpanContext) -> Vec<SpanLink> {
        let cited = finding.chain.edges().flat_map(|edge| &edge.refs).take(MOST_RECORDS);
        let told = cited.filter_map(|reference| self.told.get(reference)).map(|told| told.context);
        let mut elsewhere: Vec<SpanContext> = Vec::new();
        for context in told.filter(|context| !context.is_of_trace(own)) {
            if !elsewhere.contains(&context) {
                elsewhere.push(context);
            }
        }
        elsewhere.into_iter().map(|to| SpanLink { to, attributes: Vec::new() }).collect()
    }

    /// The records by whose they are, in the order of the chain: the victim, who woke it, who held that one up.
    fn steps<'c>(&self, finding: &Finding, cited: &'c Cited) -> Vec<Step<'c>> {
        let mut steps: Vec<Step<'c>> = Vec::new();
        for (edge, reference) in finding
            .chain
            .edges()
            .enumerate()
            .flat_map(|(at, edge)| edge.refs.iter().map(move |reference| (at, reference)))
        {
            let Some(record) = cited.records.get(reference).filter(|record| record.start_ns >= self.since_ns) else {
                continue;
            };
            let who = (reference.kind == RecordKind::Io, record.pid, record.tid);
            let at = steps.iter().position(|step| step.who == who).unwrap_or_else(|| {
                steps.push(Step { who, records: Vec::new(), edge });
                steps.len() - 1
            });
            if steps[at].records.iter().all(|(known, _)| known != reference) {
                steps[at].records.push((*reference, record));
            }
        }
        steps
    }

    /// To what the next one did in the same time; where that is not among the records, to what comes closest.
    fn links(&self, during: Span, next: &Step<'_>, evidence: Evidence) -> Vec<SpanLink> {
        let told = || next.records.iter().filter_map(|(reference, _)| self.told.get(reference));
        let meanwhile: Vec<&Told> = told().filter(|told| told.during.overlap_ns(&during) > 0).collect();
        let closest = || told().min_by_key(|told| told.during.from_ns.abs_diff(during.from_ns));
        let link = |told: &Told, evidence: Evidence| SpanLink {
            to: told.context,
            attributes: vec![("gpuwhy.evidence", text(evidence.as_str()))],
        };
        match &meanwhile[..] {
            [] => closest().map(|told| link(told, evidence.min(Evidence::Inferred))).into_iter().collect(),
            _ => meanwhile.into_iter().map(|told| link(told, evidence)).collect(),
        }
    }
}

/// How sure it is that one step led to the next one.
fn weakest(finding: &Finding, step: &Step<'_>, next: &Step<'_>) -> Evidence {
    let between = finding.chain.edges().take(next.edge + 1).skip(step.edge);
    between.map(|edge| edge.evidence).min().unwrap_or(Evidence::Missing)
}

fn during(record: &CitedRecord) -> Span {
    Span { from_ns: record.start_ns, to_ns: record.start_ns.saturating_add(record.duration_ns) }
}

/// From the first start to the last end.
pub fn around(spans: &[SpanEntry]) -> Option<Span> {
    let from_ns = spans.iter().map(|span| span.from_ns).min()?;
    Some(Span { from_ns, to_ns: spans.iter().map(|span| span.to_ns).max()? })
}

fn attributes(
    reference: Reference,
    record: &CitedRecord,
    process: Option<&CitedProcess>,
    position: usize,
) -> Attributes {
    let mut attributes = vec![
        ("gpuwhy.record", text(&reference.to_string())),
        ("gpuwhy.chain.position", whole(position as u64)),
        ("process.pid", whole(record.pid.into())),
        ("thread.id", whole(record.tid.into())),
        ("thread.name", text(&record.comm)),
    ];
    let numbers = [
        ("gpuwhy.running_ns", record.running_ns),
        ("gpuwhy.runqueue_ns", record.runqueue_ns),
        ("gpuwhy.blocked_ns", record.blocked_ns),
        ("gpuwhy.bytes", record.bytes),
        ("gpuwhy.woken_by.pid", record.woken_by_pid.map(u64::from)),
        ("gpuwhy.woken_by.tid", record.woken_by_tid.map(u64::from)),
        ("gpuwhy.taken_by.pid", record.taken_by_pid.map(u64::from)),
        ("gpuwhy.taken_by.tid", record.taken_by_tid.map(u64::from)),
    ];
    attributes.extend(numbers.into_iter().filter_map(|(key, number)| Some((key, whole(number?)))));
    let words = [
        ("process.executable.name", process.map(|process| &process.comm)),
        ("code.function.name", record.function.as_ref()),
        ("gpuwhy.device", record.device.as_ref()),
        ("gpuwhy.target", record.target.as_ref()),
        ("gpuwhy.woken_by.name", record.woken_by_comm.as_ref()),
        ("gpuwhy.taken_by.name", record.taken_by_comm.as_ref()),
    ];
    attributes.extend(words.into_iter().filter_map(|(key, word)| Some((key, text(word?)))));
    attributes.extend(process.map_or(Vec::new(), place));
    attributes
}

/// Where a process runs, as OpenTelemetry calls that.
pub fn place(process: &CitedProcess) -> Attributes {
    LABELS.iter().filter_map(|(label, key)| Some((*key, text(process.labels.get(*label)?)))).collect()
}

fn text(text: &str) -> Attribute {
    Attribute::Text(text.to_owned())
}

fn whole(number: u64) -> Attribute {
    Attribute::Whole(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
pub mod tests;
