//! Records of a log, as OpenTelemetry has them.

use super::messages::{ERROR, INFO, LogRecord, LogsRequest, ResourceLogs, ScopeLogs, Value, WARN, attributes};
use super::queue::{Batch, LOGS};
use super::source::Source;
use super::spans::SpanContext;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// What kind of thing it is: `gpuwhy.finding`.
    pub name: &'static str,
    pub at_ns: u64,
    pub level: Level,
    pub text: String,
    pub attributes: Vec<(&'static str, Value)>,
    /// The span that it belongs to.
    pub span: Option<SpanContext>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    Warn,
    Error,
}

pub fn batch(source: &Source, entries: Vec<LogEntry>, now_ns: u64) -> Batch {
    let count = entries.len() as u64;
    let log_records = entries.into_iter().map(|entry| record(entry, now_ns)).collect();
    let scope_logs = vec![ScopeLogs { scope: Some(source.scope()), log_records }];
    let resource_logs = vec![ResourceLogs { resource: Some(source.resource()), scope_logs }];
    Batch::new(LOGS, count, &LogsRequest { resource_logs })
}

pub fn record(entry: LogEntry, now_ns: u64) -> LogRecord {
    let (severity_number, severity_text) = match entry.level {
        Level::Info => (INFO, "INFO"),
        Level::Warn => (WARN, "WARN"),
        Level::Error => (ERROR, "ERROR"),
    };
    LogRecord {
        time_unix_nano: entry.at_ns,
        observed_time_unix_nano: now_ns,
        severity_number,
        severity_text: severity_text.to_owned(),
        body: Some(entry.text.as_str().into()),
        attributes: attributes(entry.attributes),
        trace_id: entry.span.map_or(Vec::new(), |span| span.trace_id()),
        span_id: entry.span.map_or(Vec::new(), |span| span.span_id()),
        event_name: entry.name.to_owned(),
    }
}
