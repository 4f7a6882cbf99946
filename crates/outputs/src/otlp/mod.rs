//! Numbers and records of a log for an OpenTelemetry receiver, by its protocol over HTTP.
//!
//! What is to be sent waits in a bounded queue, in the order of time. A receiver that is down is asked again, later and
//! later, and gets what it missed; of what there is no room for, the oldest goes, and is counted.

mod logs;
mod messages;
mod metrics;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use gpuwhy_metrics::{Shared, families};
use prost::Message;
use ureq::http::StatusCode;
use ureq::http::header::RETRY_AFTER;

use crate::client;
pub use logs::{Level, LogEntry};
pub use messages::Value as Attribute;
use messages::{KeyValue, Resource, Response, Scope, attribute};

/// How often numbers are sent.
const EVERY: Duration = Duration::from_secs(10);
/// So much waits for a receiver, packed: hours of a usual host.
const MOST_BYTES: usize = 8 << 20;
/// How long a receiver is left alone after it failed: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A longer answer is not read to its end.
const MOST_ANSWER: u64 = 64 << 10;

/// Where it is sent, and as whose.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// Without the part that says what is sent.
    endpoint: String,
    headers: Vec<(String, String)>,
    attributes: Vec<(String, String)>,
}

impl OtlpSettings {
    /// `headers` and `attributes` are as in OpenTelemetry's environment variables: `key=value,key=value`.
    pub fn new(endpoint: &str, headers: &str, attributes: &str) -> Result<Self, String> {
        let is_address = endpoint.split_once("://").is_some_and(|(scheme, rest)| {
            matches!(scheme, "http" | "https") && !rest.trim_start_matches('/').is_empty()
        });
        if !is_address {
            return Err(format!("{endpoint} is no address of a receiver, such as http://127.0.0.1:4318"));
        }
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { endpoint, headers: pairs(headers)?, attributes: pairs(attributes)? })
    }
}

fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |part: &str| match part.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        // Values may be secrets: they are not repeated.
        _ => Err("what is set for OpenTelemetry is not of the form key=value,key=value".to_owned()),
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

/// Who tells.
struct Source {
    attributes: Vec<KeyValue>,
    /// When the trace began.
    since_ns: u64,
}

impl Source {
    fn new(settings: &OtlpSettings) -> Self {
        let read = |file: &str| std::fs::read_to_string(file).map_or(String::new(), |text| text.trim().to_owned());
        let known = [
            ("service.name", "gpuwhy".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("host.name", read("/proc/sys/kernel/hostname")),
            ("host.id", read("/etc/machine-id")),
            ("os.type", "linux".to_owned()),
        ];
        let is_given = |key: &str| settings.attributes.iter().any(|(given, _)| given == key);
        let own = known.iter().filter(|(key, value)| !value.is_empty() && !is_given(key));
        let own = own.map(|(key, value)| attribute(key, value.as_str()));
        let given = settings.attributes.iter().map(|(key, value)| attribute(key, value.as_str()));
        Self { attributes: own.chain(given).collect(), since_ns: now_ns() }
    }

    fn resource(&self) -> Resource {
        Resource { attributes: self.attributes.clone() }
    }

    fn scope(&self) -> Scope {
        Scope { name: "gpuwhy".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

fn now_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0)
}

/// What is sent in one piece.
struct Batch {
    /// As its path says it.
    signal: &'static str,
    /// Packed.
    body: Vec<u8>,
    /// How many numbers or records these are.
    items: u64,
}

impl Batch {
    fn new(signal: &'static str, items: u64, request: &impl Message) -> Self {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory cannot fail.
        let _ = packed.write_all(&request.encode_to_vec());
        Self { signal, body: packed.finish().unwrap_or_default(), items }
    }
}

/// What waits to be sent, never more than there is room for.
#[derive(Default)]
struct Queue {
    batches: VecDeque<Batch>,
    bytes: usize,
}

impl Queue {
    /// Returns what has to go for it.
    fn push(&mut self, batch: Batch) -> Vec<Batch> {
        self.bytes += batch.body.len();
        self.batches.push_back(batch);
        let mut gone = Vec::new();
        while self.bytes > MOST_BYTES {
            gone.extend(self.pop());
        }
        gone
    }

    fn pop(&mut self) -> Option<Batch> {
        let first = self.batches.pop_front()?;
        self.bytes -= first.body.len();
        Some(first)
    }

    /// It could not be sent, and is the next one again.
    fn put_back(&mut self, batch: Batch) {
        self.bytes += batch.body.len();
        self.batches.push_front(batch);
    }
}

/// What sending has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Numbers and records that were taken.
    pub sent: u64,
    /// Those that nobody took.
    pub lost: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// Sends until it is dropped.
pub struct Otlp {
    shared: Arc<Sending>,
    thread: Option<JoinHandle<()>>,
}

impl Otlp {
    /// Sends what `registry` has, again and again.
    pub fn start(settings: OtlpSettings, registry: Shared) -> std::io::Result<Self> {
        Self::start_every(settings, registry, EVERY)
    }

    fn start_every(settings: OtlpSettings, registry: Shared, every: Duration) -> std::io::Result<Self> {
        let source = Source::new(&settings);
        registry.lock().add(&families::OTLP_FAILED, &[], 0.0);
        let (queue, counts, is_over) = Default::default();
        let shared = Arc::new(Sending { settings, source, registry, every, queue, counts, is_over });
        let sending = Arc::clone(&shared);
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || sending.work())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sends records of a log, if there are any.
    pub fn log(&self, entries: Vec<LogEntry>) {
        if !entries.is_empty() {
            self.shared.push(logs::batch(&self.shared.source, entries, now_ns()));
            self.thread.iter().for_each(|thread| thread.thread().unpark());
        }
    }

    /// Sends the last numbers, if somebody takes them at once, and tells what all of it came to.
    pub fn finish(mut self) -> Sent {
        self.end();
        let Counts { sent, lost, failed } = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Sent { sent: read(sent), lost: read(lost), failed: read(failed) }
    }

    fn end(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

struct Sending {
    settings: OtlpSettings,
    source: Source,
    registry: Shared,
    every: Duration,
    queue: Mutex<Queue>,
    counts: Counts,
    is_over: AtomicBool,
}

/// Why something was not taken.
enum Failure {
    /// It may be taken later, not before this time if one is told.
    Later(String, Option<Duration>),
    /// It is taken by nobody, however often it is sent.
    Never(String),
}

impl Sending {
    fn work(&self) {
        let client = client::trusting(&rustls_native_certs::load_native_certs().certs);
        let (mut next, mut not_before, mut pause) = (Instant::now() + self.every, Instant::now(), FIRST_PAUSE);
        while !self.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= next {
                self.push_numbers();
                next = now + self.every;
            }
            if now >= not_before {
                match self.send_all(&client) {
                    None => pause = FIRST_PAUSE,
                    Some(told) => {
                        not_before = Instant::now() + told.unwrap_or(pause).min(LONGEST_PAUSE);
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
            let until = if self.queue().batches.is_empty() { next } else { next.min(not_before) };
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        self.push_numbers();
        self.send_all(&client);
        while let Some(batch) = { self.queue().pop() } {
            self.lose(&batch, batch.items);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_numbers(&self) {
        let batch = metrics::batch(&self.source, &mut self.registry.lock(), now_ns());
        self.push(batch);
    }

    fn push(&self, batch: Batch) {
        let gone = self.queue().push(batch);
        gone.iter().for_each(|batch| self.lose(batch, batch.items));
    }

    fn lose(&self, batch: &Batch, items: u64) {
        self.counts.lost.fetch_add(items, Ordering::Relaxed);
        self.registry.lock().add(&families::OTLP_LOST, &[batch.signal], items as f64);
    }

    /// Sends what waits until nothing is left, or the receiver fails: then it tells how long it wants to be left alone.
    fn send_all(&self, client: &ureq::Agent) -> Option<Option<Duration>> {
        while let Some(batch) = { self.queue().pop() } {
            match self.send(client, &batch) {
                Ok(rejected) => {
                    let rejected = rejected.min(batch.items);
                    self.counts.sent.fetch_add(batch.items - rejected, Ordering::Relaxed);
                    if rejected > 0 {
                        self.lose(&batch, rejected);
                    }
                }
                Err(Failure::Never(why)) => {
                    self.fail(&why);
                    self.lose(&batch, batch.items);
                }
                Err(Failure::Later(why, told)) => {
                    self.fail(&why);
                    self.queue().put_back(batch);
                    return Some(told);
                }
            }
        }
        None
    }

    fn fail(&self, why: &str) {
        tracing::warn!("OpenTelemetry: {}: {why}", self.settings.endpoint);
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        self.registry.lock().add(&families::OTLP_FAILED, &[], 1.0);
    }

    /// How many of its items the receiver did not want.
    fn send(&self, client: &ureq::Agent, batch: &Batch) -> Result<u64, Failure> {
        let later = |error: ureq::Error| Failure::Later(error.to_string(), None);
        let address = format!("{}/v1/{}", self.settings.endpoint, batch.signal);
        let mut request = client.post(address).config().http_status_as_error(false).build();
        for (key, value) in &self.settings.headers {
            request = request.header(key, value);
        }
        let request = request.header("Content-Type", "application/x-protobuf").header("Content-Encoding", "gzip");
        let mut answer = request.send(&batch.body[..]).map_err(later)?;
        match answer.status() {
            status if status.is_success() => {
                let body = answer.body_mut().with_config().limit(MOST_ANSWER).read_to_vec().unwrap_or_default();
                let told = Response::decode(&body[..]).unwrap_or_default().partial_success.unwrap_or_default();
                if told.rejected > 0 {
                    tracing::warn!("OpenTelemetry: {} were not wanted: {}", told.rejected, told.error_message);
                }
                Ok(told.rejected.max(0) as u64)
            }
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => {
                let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                Err(Failure::Later(status.to_string(), seconds.map(Duration::from_secs)))
            }
            status => Err(Failure::Never(status.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
