//! What took time, as OpenTelemetry has it: with a name, a start, an end, and links to what it waited for.

use super::messages::{
    FAILED, INTERNAL, Link, ResourceSpans, ScopeSpans, Span, SpanStatus, TracesRequest, Value, attributes,
};
use super::queue::{Batch, TRACES};
use super::source::Source;

/// Names a span. The same words make the same name, whenever and wherever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    trace: u128,
    span: u64,
}

/// A call, a wait, or what holds several of them together.
#[derive(Clone, Debug)]
pub struct SpanEntry {
    pub context: SpanContext,
    /// In the same trace.
    pub parent: Option<SpanContext>,
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub attributes: Vec<(&'static str, Value)>,
    pub links: Vec<SpanLink>,
    /// How it went wrong, if it did.
    pub failure: Option<String>,
}

/// To another span, of this trace or of another one.
#[derive(Clone, Debug)]
pub struct SpanLink {
    pub to: SpanContext,
    pub attributes: Vec<(&'static str, Value)>,
}

impl SpanContext {
    /// The first span of the trace that these words name.
    pub fn of_trace(words: &str) -> Self {
        let trace = hash(words.as_bytes());
        Self { trace, span: span_hash(trace, "") }
    }

    /// Another span of the same trace.
    pub fn child(self, words: &str) -> Self {
        Self { span: span_hash(self.trace, words), ..self }
    }

    pub fn is_of_trace(self, other: Self) -> bool {
        self.trace == other.trace
    }

    pub(super) fn trace_id(self) -> Vec<u8> {
        self.trace.to_be_bytes().to_vec()
    }

    pub(super) fn span_id(self) -> Vec<u8> {
        self.span.to_be_bytes().to_vec()
    }
}

fn span_hash(trace: u128, words: &str) -> u64 {
    let hash = hash(&[&trace.to_be_bytes(), words.as_bytes()].concat());
    ((hash >> 64) as u64 ^ hash as u64).max(1)
}

/// FNV-1a, which is never zero: that would be no name.
fn hash(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    hash.max(1)
}

pub fn batch(source: &Source, entries: Vec<SpanEntry>) -> Batch {
    let count = entries.len() as u64;
    let spans = entries.into_iter().map(span).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(source.scope()), spans }];
    let resource_spans = vec![ResourceSpans { resource: Some(source.resource()), scope_spans }];
    Batch::new(TRACES, count, &TracesRequest { resource_spans })
}

fn span(entry: SpanEntry) -> Span {
    Span {
        trace_id: entry.context.trace_id(),
        span_id: entry.context.span_id(),
        parent_span_id: entry.parent.map_or(Vec::new(), SpanContext::span_id),
        name: entry.name,
        kind: INTERNAL,
        start_time_unix_nano: entry.from_ns,
        end_time_unix_nano: entry.to_ns,
        attributes: attributes(entry.attributes),
        links: entry.links.into_iter().map(link).collect(),
        status: entry.failure.map(|message| SpanStatus { message, code: FAILED }),
    }
}

fn link(link: SpanLink) -> Link {
    Link { trace_id: link.to.trace_id(), span_id: link.to.span_id(), attributes: attributes(link.attributes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_name_the_same_span_and_others_another_one() {
        let trace = SpanContext::of_trace("lock-wait 7 9");
        assert_eq!(trace, SpanContext::of_trace("lock-wait 7 9"));
        assert_eq!(trace.child("sched:5"), SpanContext::of_trace("lock-wait 7 9").child("sched:5"));
        let other = SpanContext::of_trace("lock-wait 7 10");
        assert!(!trace.is_of_trace(other) && trace.child("sched:5").is_of_trace(trace));
        let spans = [trace, trace.child("sched:5"), trace.child("sched:6"), other, other.child("sched:5")];
        let ids: std::collections::BTreeSet<Vec<u8>> = spans.iter().map(|span| span.span_id()).collect();
        assert_eq!(ids.len(), spans.len());
        assert!(ids.iter().all(|id| id.iter().any(|byte| *byte != 0)));
    }
}
