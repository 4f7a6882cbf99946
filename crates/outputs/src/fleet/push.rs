//! Tells a fleet what workers did, and hears how they stand among others. What a fleet that is away has to be told waits, within
//! bounds, and it harms nobody.

use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use gpuwhy_fleet::{Came, Cluster, Digest};
use prost::Message;
use rustls_native_certs::load_native_certs;
use thiserror::Error;

use super::ingest::SENT;
use super::vocabulary::{PushAnswer, Standing, encode};
use crate::client;
use crate::clock::now_ns;
use crate::http::{NODE, Token};
use crate::otlp::messages::{LogsRequest, Resource, ResourceLogs, ScopeLogs, attribute};
use crate::otlp::{Batch, LOGS, LogEntry, METRICS, Queue, log_record};

/// How long a fleet is left alone after it failed: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For so long what a fleet said last is better than what is known here.
const REMEMBERED: Duration = Duration::from_secs(300);
/// What it said is news for so long.
const FRESH: Duration = Duration::from_secs(5);
const MOST_ANSWER: u64 = 1 << 20;
/// While a fleet is away, so many seconds become one message, or fewer of a node with many workers.
const TOGETHER: usize = 10;
const MOST_TOGETHER: usize = 512;
/// Messages of one turn: who comes back is not told all at once.
const AT_A_TIME: usize = 10;

/// Where a fleet is, and as whose it is told.
#[derive(Clone)]
pub struct FleetAddress {
    /// `https://fleet:9470`.
    pub url: String,
    pub cluster: String,
    pub node: String,
    pub token: Option<Token>,
}

/// By whose word ranks of this host are late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The fleet's.
    Fleet,
    /// What the fleet said before it was away.
    Cached,
    /// Ranks of this host are compared with each other.
    Local,
    /// There is nobody to be compared with.
    None,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Cached => "cached",
            Self::Local => "local",
            Self::None => "none",
        }
    }
}

#[derive(Debug, Error)]
pub enum PushError {
    /// It may be there later.
    #[error("{0}")]
    Away(String),
    /// It does not take anything from this node, until somebody changes that.
    #[error("{0}")]
    Refused(String),
    /// It will never take this message.
    #[error("{0}")]
    Unwanted(String),
}

/// What a node tells, as it is sent.
pub fn packed(node: &str, cluster: &str, digests: &[Digest]) -> Vec<u8> {
    batch(node, cluster, digests).body
}

fn batch(node: &str, cluster: &str, digests: &[Digest]) -> Batch {
    Batch::new(METRICS, digests.len() as u64, &encode(node, cluster, digests))
}

/// How ranks stand, by the answer to a push.
pub fn standings(answer: &[u8]) -> Vec<Standing> {
    PushAnswer::decode(answer).map_or_else(|_| Vec::new(), |answer| answer.standings)
}

pub struct Push {
    address: FleetAddress,
    client: ureq::Agent,
    /// What the fleet said last, and when.
    heard: Option<(Instant, Vec<Standing>)>,
    /// The ranks of this host among themselves.
    here: Cluster,
    /// Seconds that wait until they are a message, and what waits to be sent.
    seconds: Vec<Vec<Digest>>,
    queue: Queue,
    lost: u64,
    pause: Duration,
    not_before: Instant,
    /// Spreads agents that failed together.
    odd: u32,
}

impl Push {
    pub fn new(address: FleetAddress) -> Self {
        let client = client::keeping(&load_native_certs().certs, 1);
        let odd = address
            .node
            .bytes()
            .fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
        let (heard, here, seconds, queue, lost) = Default::default();
        let (pause, not_before) = (FIRST_PAUSE, Instant::now());
        Self { address, client, heard, here, seconds, queue, lost, pause, not_before, odd }
    }

    /// Tells a second, after all that has waited. The error is one that a person should know of once.
    pub fn tell(&mut self, digests: &[Digest]) -> Result<(), PushError> {
        let now_ns = now_ns();
        self.here.take(&self.address.node, digests.to_vec(), &Came { now_ns, ..Came::default() });
        self.here.judge(now_ns);
        if !digests.is_empty() {
            self.seconds.push(digests.to_vec());
        }
        let is_left_alone = Instant::now() < self.not_before;
        let waiting: usize = self.seconds.iter().map(Vec::len).sum();
        let is_enough = self.seconds.len() >= TOGETHER || waiting >= MOST_TOGETHER;
        if waiting > 0 && (!is_left_alone || is_enough) {
            let seconds: Vec<Digest> = self.seconds.drain(..).flatten().collect();
            self.wait(batch(&self.address.node, &self.address.cluster, &seconds));
        }
        if is_left_alone { Ok(()) } else { self.send_waiting() }
    }

    /// Digests and findings that nobody was told: there was no room for them, or nobody wanted them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Digests and findings that wait to be told.
    pub fn waiting(&self) -> u64 {
        let seconds: usize = self.seconds.iter().map(Vec::len).sum();
        self.queue.batches.iter().map(|batch| batch.items).sum::<u64>() + seconds as u64
    }

    /// Tells what was found, with the next second.
    pub fn tell_findings(&mut self, entries: Vec<LogEntry>) {
        if entries.is_empty() {
            return;
        }
        let (count, now_ns) = (entries.len() as u64, now_ns());
        let FleetAddress { node, cluster, .. } = &self.address;
        let attributes = vec![attribute("host.name", node.as_str()), attribute("gpuwhy.cluster", cluster.as_str())];
        let log_records = entries.into_iter().map(|entry| log_record(entry, now_ns)).collect();
        let scope_logs = vec![ScopeLogs { scope: None, log_records }];
        let resource_logs = vec![ResourceLogs { resource: Some(Resource { attributes }), scope_logs }];
        self.wait(Batch::new(LOGS, count, &LogsRequest { resource_logs }));
    }

    fn wait(&mut self, batch: Batch) {
        let gone = self.queue.push(batch);
        self.lost += gone.iter().map(|batch| batch.items).sum::<u64>();
    }

    fn send_waiting(&mut self) -> Result<(), PushError> {
        for _ in 0..AT_A_TIME {
            let Some(batch) = self.queue.pop() else { break };
            match self.post(&batch) {
                Ok(answer) if batch.signal.path == METRICS.path => {
                    self.heard = Some((Instant::now(), answer.standings));
                }
                Ok(_) => {}
                Err(error) => {
                    match error {
                        PushError::Unwanted(_) => self.lost += batch.items,
                        PushError::Away(_) | PushError::Refused(_) => self.queue.put_back(batch),
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ranks of this host that are late, and by whose word.
    pub fn late(&self) -> (Mode, Vec<Standing>) {
        let is_late = |standing: &&Standing| standing.since_ns > 0;
        let of_fleet = self.heard.as_ref().filter(|(at, _)| at.elapsed() < REMEMBERED);
        if let Some((at, standings)) = of_fleet {
            let mode = if at.elapsed() < FRESH { Mode::Fleet } else { Mode::Cached };
            return (mode, standings.iter().filter(is_late).cloned().collect());
        }
        let here: Vec<Standing> = self.here.told_to(&self.address.node).into_iter().map(Into::into).collect();
        let mode = if here.is_empty() { Mode::None } else { Mode::Local };
        (mode, here.iter().filter(is_late).cloned().collect())
    }

    fn post(&mut self, batch: &Batch) -> Result<PushAnswer, PushError> {
        let answer = self.send(batch);
        match &answer {
            Ok(_) => self.pause = FIRST_PAUSE,
            Err(_) => {
                self.odd = self.odd.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let part = f64::from(self.odd) / f64::from(u32::MAX);
                self.not_before = Instant::now() + self.pause.mul_f64(0.5 + part);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
        answer
    }

    fn send(&self, batch: &Batch) -> Result<PushAnswer, PushError> {
        let url = format!("{}{}", self.address.url, batch.signal.path);
        let request = self.client.post(url).config().http_status_as_error(false).max_redirects(0).build();
        let request = request.header(CONTENT_TYPE, "application/x-protobuf").header(CONTENT_ENCODING, "gzip");
        let request = request.header(SENT, now_ns());
        let request = match &self.address.token {
            Some(token) => request.header(AUTHORIZATION, token.as_header()),
            None => request,
        };
        let request = match HeaderValue::from_bytes(self.address.node.as_bytes()) {
            Ok(node) => request.header(NODE, node),
            // A name that no header can hold has no token of its own.
            Err(_) => request,
        };
        let answer = request.send(&batch.body[..]).map_err(|error| PushError::Away(error.to_string()))?;
        let status = answer.status();
        let body = answer.into_body().into_with_config().limit(MOST_ANSWER).read_to_vec();
        match status {
            status if status.is_success() => {
                let body = body.map_err(|error| PushError::Away(error.to_string()))?;
                PushAnswer::decode(&body[..]).map_err(|error| PushError::Unwanted(format!("its answer: {error}")))
            }
            status if status.is_server_error() || status.as_u16() == 429 => Err(PushError::Away(status.to_string())),
            status => {
                let said = String::from_utf8_lossy(&body.unwrap_or_default()).chars().take(300).collect::<String>();
                let why = format!("{status}: {said}");
                let is_for_good = matches!(status.as_u16(), 400 | 413 | 415);
                Err(if is_for_good { PushError::Unwanted(why) } else { PushError::Refused(why) })
            }
        }
    }
}
