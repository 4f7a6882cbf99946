//! Numbers, records of a log and spans for an OpenTelemetry receiver, by its protocol over HTTP or gRPC.
//!
//! What is to be sent waits in a bounded queue, in the order of time. A receiver that is down is asked again, later and
//! later, and gets what it missed; of what there is no room for, the oldest goes, and is counted.

mod grpc;
mod http;
mod logs;
pub(crate) mod messages;
mod metrics;
mod queue;
mod settings;
mod source;
mod spans;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpuwhy_metrics::{Shared, families};
use prost::Message;

pub(crate) use logs::record as log_record;
pub use logs::{Level, LogEntry};
use messages::Response;
pub use messages::Value as Attribute;
pub(crate) use queue::{Batch, LOGS, METRICS, Queue};
pub use settings::OtlpSettings;
use settings::Protocol;
use source::Source;
pub use spans::{SpanContext, SpanEntry, SpanLink};

/// How often numbers are sent.
const EVERY: Duration = Duration::from_secs(10);
/// How long a receiver is left alone after it failed: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A receiver that wants to be left alone for longer is asked all the same.
const LONGEST_WISH: Duration = Duration::from_secs(600);
/// A longer answer is not read to its end.
const MOST_ANSWER: usize = 64 << 10;

fn now_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0)
}

/// What sending has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Numbers, records and spans that were taken.
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
    pub fn start(settings: OtlpSettings, registry: Shared) -> io::Result<Self> {
        Self::start_every(settings, registry, EVERY)
    }

    fn start_every(settings: OtlpSettings, registry: Shared, every: Duration) -> io::Result<Self> {
        let (source, transport) = (Source::new(&settings), settings.transport()?);
        registry.lock().add(&families::OTLP_FAILED, &[], 0.0);
        let (queue, counts, is_over) = Default::default();
        let shared = Arc::new(Sending { settings, source, registry, every, queue, counts, is_over });
        let sending = Arc::clone(&shared);
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || sending.work(&*transport))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sends records of a log, and the spans that they belong to, if there are any.
    pub fn tell(&self, entries: Vec<LogEntry>, spans: Vec<SpanEntry>) {
        if !spans.is_empty() {
            self.shared.push(spans::batch(&self.shared.source, spans));
        }
        if !entries.is_empty() {
            self.shared.push(logs::batch(&self.shared.source, entries, now_ns()));
        }
        self.thread.iter().for_each(|thread| thread.thread().unpark());
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

/// The way to a receiver.
trait Transport: Send {
    /// How many of its items the receiver did not want.
    fn send(&self, batch: &Batch) -> Result<u64, Failure>;
}

impl OtlpSettings {
    fn transport(&self) -> io::Result<Box<dyn Transport>> {
        Ok(match self.protocol {
            Protocol::Http => Box::new(http::Http::new(self.clone())),
            Protocol::Grpc => Box::new(grpc::Grpc::new(self.clone()).map_err(io::Error::other)?),
        })
    }
}

/// How many items a receiver did not want of those that it was sent, by its answer.
fn rejected(answer: &[u8]) -> u64 {
    let told = Response::decode(answer).unwrap_or_default().partial_success.unwrap_or_default();
    if told.rejected > 0 {
        tracing::warn!("OpenTelemetry: {} were not wanted: {}", told.rejected, told.error_message);
    }
    told.rejected.max(0) as u64
}

/// Why something was not taken.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// It may be taken later, not before this time if one is told.
    Later(String, Option<Duration>),
    /// It is taken by nobody, however often it is sent.
    Never(String),
}

impl Sending {
    fn work(&self, transport: &dyn Transport) {
        let (mut next, mut not_before, mut pause) = (Instant::now() + self.every, Instant::now(), FIRST_PAUSE);
        while !self.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= next {
                self.push_numbers();
                next = now + self.every;
            }
            if now >= not_before {
                match self.send_all(transport) {
                    None => pause = FIRST_PAUSE,
                    Some(told) => {
                        not_before = Instant::now() + told.map_or(pause, |told| told.min(LONGEST_WISH));
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
            let until = if self.queue().batches.is_empty() { next } else { next.min(not_before) };
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        self.push_numbers();
        self.send_all(transport);
        while let Some(batch) = { self.queue().pop() } {
            self.lose(&batch, batch.items);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_numbers(&self) {
        // Losses are counted in the same registry.
        let batches = metrics::batches(&self.source, &mut self.registry.lock(), now_ns());
        batches.into_iter().for_each(|batch| self.push(batch));
    }

    fn push(&self, batch: Batch) {
        let gone = self.queue().push(batch);
        gone.iter().for_each(|batch| self.lose(batch, batch.items));
    }

    fn lose(&self, batch: &Batch, items: u64) {
        self.counts.lost.fetch_add(items, Ordering::Relaxed);
        self.registry.lock().add(&families::OTLP_LOST, &[batch.signal.name], items as f64);
    }

    /// Sends what waits until nothing is left, or the receiver fails: then it tells how long it wants to be left alone.
    fn send_all(&self, transport: &dyn Transport) -> Option<Option<Duration>> {
        while let Some(batch) = { self.queue().pop() } {
            match transport.send(&batch) {
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
}

#[cfg(test)]
mod tests;
