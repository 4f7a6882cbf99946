//! A part of a trace that is being read for an answer.

use std::time::{Duration, Instant};

use gpuwhy_model::Span;
use gpuwhy_store::{Limits, QueryError, Trace, Value};
use gpuwhy_window::{Scope, Window};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::AskError;

const BUCKET_NS: u64 = 1_000_000_000;

const EDGES: &str = "
SELECT EXISTS (SELECT 1 FROM call_counts WHERE bucket_ns < ?) AS has_earlier,
  (SELECT min(bucket_ns) FROM call_counts WHERE bucket_ns >= ?) AS first_ns,
  (SELECT min(bucket_ns) FROM call_counts WHERE bucket_ns >= ?) AS after_ns";

pub struct Reading {
    pub trace: Trace,
    pub scope: Scope,
    /// What the scope comes to.
    pub span: Span,
    /// The part that sums are read of, a second or more: the span, or the second around its middle.
    pub summed: Span,
    limits: Limits,
    deadline: Option<Instant>,
}

impl Reading {
    pub(crate) fn new(trace: Trace, scope: Scope, limits: Limits) -> Result<Self, AskError> {
        let span = trace.span(&scope)?;
        let summed = if scope.from_ns.is_some() || scope.to_ns.is_some() { at_least_a_bucket(span) } else { span };
        Ok(Self { trace, scope, span, summed, limits, deadline: Instant::now().checked_add(limits.time) })
    }

    /// What is left of the time that all statements of a question have together.
    pub fn limits(&self) -> Limits {
        let time = self.deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        Limits { time, ..self.limits }
    }

    /// The rows of a statement of our own: columns have the names of the fields. Values are for its `?`, in order.
    ///
    /// An answer is whole or not at all: a statement that has more rows than may be read says so.
    pub fn select<T: DeserializeOwned>(&self, sql: &str, values: &[Value]) -> Result<Vec<T>, AskError> {
        let answer = self.trace.query_with(sql, values, &self.limits()).map_err(|error| self.explain(error))?;
        if answer.truncated.is_some() {
            return Err(QueryError::TooBig.into());
        }
        let row = |row: Vec<Value>| {
            let object = answer.columns.iter().cloned().zip(row.iter().map(Value::to_json)).collect();
            serde_json::from_value(serde_json::Value::Object(object))
        };
        let rows: Result<Vec<T>, _> = answer.rows.into_iter().map(row).collect();
        rows.map_err(|error| AskError::Failed { message: format!("the trace holds what it should not: {error}") })
    }

    /// The only row of a statement that has one.
    pub fn select_one<T: DeserializeOwned>(&self, sql: &str, values: &[Value]) -> Result<T, AskError> {
        let missing = || AskError::Failed { message: "the trace does not say".to_owned() };
        self.select(sql, values)?.into_iter().next().ok_or_else(missing)
    }

    /// The only column of the only row of a statement, which it calls `number`.
    pub fn number(&self, sql: &str, values: &[Value]) -> Result<u64, AskError> {
        #[derive(Deserialize)]
        struct Row {
            number: u64,
        }
        Ok(self.select_one::<Row>(sql, values)?.number)
    }

    /// All names in the trace of a function that was asked for, as a JSON text; null where none was. For
    /// `? IS NULL OR op IN (SELECT value FROM json_each(?))`.
    pub fn names_of(&self, op: Option<&str>) -> Result<Value, AskError> {
        let Some(op) = op else { return Ok(Value::Null) };
        let names = self.trace.names_of(op, &self.limits())?;
        Ok(Value::Text(serde_json::Value::from(names).to_string()))
    }

    /// All of the part in memory, for analysis.
    pub fn window(&self) -> Result<Window, AskError> {
        self.window_of(&self.scope)
    }

    /// Another part of the trace in memory.
    pub fn window_of(&self, scope: &Scope) -> Result<Window, AskError> {
        Ok(self.trace.window(scope)?)
    }

    /// The span and the process as values: from, to, and twice the process or null, for
    /// `x >= ? AND x < ? AND (? IS NULL OR pid = ?)`.
    pub fn bounds(&self) -> [Value; 4] {
        self.values(self.span)
    }

    /// The same, of the part that sums are read of.
    pub fn summed_bounds(&self) -> [Value; 4] {
        self.values(self.summed)
    }

    /// Sums are kept for about a second from their bucket on: one that lies mostly in the part belongs to it.
    pub fn bucket_bounds(&self) -> [Value; 4] {
        let Span { from_ns, to_ns } = self.summed;
        let earlier = |ns: u64| ns.saturating_sub(BUCKET_NS / 2);
        let has_end = self.scope.to_ns.is_some() || self.is_widened();
        self.values(Span { from_ns: earlier(from_ns), to_ns: if has_end { earlier(to_ns) } else { to_ns } })
    }

    /// Whether sums are those of a longer part than asked for.
    pub fn is_widened(&self) -> bool {
        self.summed != self.span
    }

    fn values(&self, span: Span) -> [Value; 4] {
        let ns = |ns: u64| Value::Integer(i64::try_from(ns).unwrap_or(i64::MAX));
        let pid = self.scope.pid.map_or(Value::Null, |pid| Value::Integer(pid.into()));
        [ns(span.from_ns), ns(span.to_ns), pid.clone(), pid]
    }

    /// How long the time is whose sums belong to the span: it begins and ends with a second that was summed up.
    pub fn summed_ns(&self) -> Result<u64, AskError> {
        #[derive(Deserialize)]
        struct Edges {
            has_earlier: u64,
            first_ns: Option<u64>,
            after_ns: Option<u64>,
        }
        let [from, to, ..] = self.bucket_bounds();
        let edges: Edges = self.select_one(EDGES, &[from.clone(), from, to])?;
        let near = |found: Option<u64>, ns: u64| {
            let (least, most) = (ns.saturating_sub(BUCKET_NS / 2), ns.saturating_add(BUCKET_NS / 2));
            found.map_or(ns, |found| found.clamp(least, most))
        };
        let from_ns = near(edges.first_ns.filter(|_| edges.has_earlier > 0), self.summed.from_ns);
        Ok(near(edges.after_ns, self.summed.to_ns).saturating_sub(from_ns))
    }

    /// What a file of an earlier version lacks is no mistake in the statement.
    fn explain(&self, error: QueryError) -> AskError {
        match error {
            QueryError::Syntax { message } if self.trace.version() < gpuwhy_store::SCHEMA_VERSION => {
                let version = self.trace.version();
                AskError::NotHere { message: format!("a trace of version {version} does not have it: {message}") }
            }
            other => other.into(),
        }
    }
}

fn at_least_a_bucket(span: Span) -> Span {
    let missing_ns = BUCKET_NS.saturating_sub(span.ns());
    let from_ns = span.from_ns.saturating_sub(missing_ns / 2);
    Span { from_ns, to_ns: span.to_ns.max(from_ns.saturating_add(BUCKET_NS)) }
}
