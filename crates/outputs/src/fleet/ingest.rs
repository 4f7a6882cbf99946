//! Takes what agents and anybody else push: metrics and records of a log, as OpenTelemetry's protocol has them, over HTTP and
//! over gRPC. A message goes into the journal before it is answered.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use flate2::bufread::GzDecoder;
use gpuwhy_fleet::{Came, Digest, Rates, Why};
use gpuwhy_history::{Entry, Gathered, HistoryError, Keeping, Kind};
use gpuwhy_model::Severity;
use prost::Message;

use super::vocabulary::{PushAnswer, decode, text, whole};
use crate::Refusal;
use crate::clock::now_ns;
use crate::http::{Doors, Grant, Remark, body};
use crate::otlp::messages::{LogRecord, LogsRequest, MetricsRequest, PartialSuccess, ResourceLogs, Value};

const PROTOBUF: &str = "application/x-protobuf";
/// The header in which a node says when it sends a message, in nanoseconds since the epoch by its own clock.
pub const SENT: &str = "gpuwhy-sent-ns";
/// A message, unpacked.
const MOST_BYTES: u64 = 16 << 20;
/// How many times as long a message usually is when it is unpacked.
const USUAL_GROWTH: usize = 16;
/// Ranks that are told how they stand, in one answer.
const MOST_STANDINGS: usize = 256;
/// How often ranks are compared.
const JUDGED_NS: u64 = 250_000_000;

/// The clusters of a fleet, for all who ask and tell. By default nothing is kept.
#[derive(Clone, Default)]
pub struct Fleet(Arc<Mutex<Gathered>>);

impl Fleet {
    /// One that keeps what it is told in a folder, and goes on with what is there.
    pub fn open(folder: &Path, max_size: u64, rates: Option<Rates>) -> Result<(Self, Keeping), HistoryError> {
        let (mut gathered, keeper) = gpuwhy_history::open(folder, max_size, rates)?;
        gathered.resume(|gathered, entry, has| {
            if entry.at_ns.saturating_sub(gathered.clusters.judged_ns()) >= JUDGED_NS {
                gathered.clusters.judge(entry.at_ns);
            }
            // What could not be understood was not acknowledged.
            let Ok(heard) = Heard::read(entry.kind, entry.message, entry.is_packed) else { return };
            heard.take(gathered, &Came { now_ns: entry.at_ns, sent_ns: entry.sent_ns, is_kept: true }, has);
        })?;
        gathered.clusters.wake(now_ns());
        let fleet = Self(Arc::new(Mutex::new(gathered)));
        let keeping = keeper.start(Arc::clone(&fleet.0))?;
        Ok((fleet, keeping))
    }

    pub fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn gathered(&self) -> &Mutex<Gathered> {
        &self.0
    }

    /// Compares ranks that have told something new.
    pub fn judge(&self) {
        self.lock().clusters.judge(now_ns());
    }

    /// Takes a message from somebody who may tell it.
    pub(crate) fn hear(
        &self,
        kind: Kind,
        message: &[u8],
        is_packed: bool,
        sent_ns: Option<u64>,
        grant: &Grant,
    ) -> Result<PushAnswer, Refusal> {
        let heard = Heard::read(kind, message, is_packed)?;
        heard.permit(grant)?;
        let entry = Entry { kind, at_ns: now_ns(), sent_ns, is_packed, message };
        let mut gathered = self.lock();
        let is_kept = gathered.note(&entry);
        let is_lost = gathered.keeps() && !is_kept;
        let taken = heard.take(&mut gathered, &Came { now_ns: entry.at_ns, sent_ns, is_kept }, &|_| false);
        drop(gathered);
        Ok(taken.answer(is_lost))
    }
}

/// A message, as far as it was understood.
enum Heard {
    Digests { by_node: BTreeMap<(String, String), Vec<Digest>>, points: u64, not_understood: u64 },
    Logs(LogsRequest),
}

/// What has become of a message.
#[derive(Default)]
struct Taken {
    standings: Vec<super::Standing>,
    items: u64,
    not_understood: u64,
}

impl Heard {
    fn read(kind: Kind, message: &[u8], is_packed: bool) -> Result<Self, Refusal> {
        fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Refusal> {
            M::decode(message).map_err(|error| Refusal::BadMessage { message: error.to_string() })
        }
        let unpacked = if is_packed { Cow::Owned(unpacked(message)?) } else { Cow::Borrowed(message) };
        if kind == Kind::Logs {
            return Ok(Self::Logs(decoded(&unpacked)?));
        }
        let decoded = decode(&decoded::<MetricsRequest>(&unpacked)?);
        let mut by_node: BTreeMap<_, Vec<Digest>> = BTreeMap::new();
        for (cluster, node, digest) in decoded.digests {
            by_node.entry((cluster, node)).or_default().push(digest);
        }
        Ok(Self::Digests { by_node, points: decoded.points, not_understood: decoded.not_understood })
    }

    fn permit(&self, grant: &Grant) -> Result<(), Refusal> {
        match self {
            Self::Digests { by_node, .. } => {
                by_node.keys().try_for_each(|(cluster, node)| grant.permit_telling(cluster, Some(node)))
            }
            Self::Logs(request) => request
                .resource_logs
                .iter()
                .map(whose)
                .try_for_each(|(cluster, node)| grant.permit_telling(&cluster, node.as_deref())),
        }
    }

    /// Takes it, but for clusters that have it already.
    fn take(self, gathered: &mut Gathered, came: &Came, has: &dyn Fn(&str) -> bool) -> Taken {
        let mut taken = Taken::default();
        match self {
            Self::Digests { by_node, points, not_understood } => {
                (taken.items, taken.not_understood) = (points, not_understood);
                for ((cluster, node), digests) in by_node.into_iter().filter(|((cluster, _), _)| !has(cluster)) {
                    let Some(cluster) = gathered.clusters.cluster(&cluster) else {
                        taken.not_understood += digests.len() as u64;
                        continue;
                    };
                    cluster.take(&node, digests, came);
                    let room = MOST_STANDINGS - taken.standings.len().min(MOST_STANDINGS);
                    taken.standings.extend(cluster.told_to(&node).into_iter().take(room).map(Into::into));
                }
            }
            Self::Logs(request) => {
                for told in &request.resource_logs {
                    let (cluster, node) = whose(told);
                    if !has(&cluster) {
                        taken.logs(gathered, told, &cluster, node, came.now_ns);
                    }
                }
            }
        }
        taken
    }
}

impl Taken {
    fn logs(&mut self, gathered: &mut Gathered, told: &ResourceLogs, cluster: &str, node: Option<String>, now_ns: u64) {
        let records = || told.scope_logs.iter().flat_map(|scope| &scope.log_records);
        let (Some(cluster), Some(node)) = (gathered.clusters.cluster(cluster), node) else {
            self.not_understood += records().count() as u64;
            return;
        };
        for record in records() {
            match finding(record) {
                Some((pid, why)) => {
                    self.items += 1;
                    cluster.take_finding(&node, pid, why, now_ns);
                }
                None => self.not_understood += 1,
            }
        }
    }

    /// What is not kept counts as rejected: nobody will find it again.
    fn answer(self, is_lost: bool) -> PushAnswer {
        let lost = if is_lost { self.items } else { 0 };
        let rejected = self.not_understood + lost;
        let error_message = match is_lost {
            true => "it counts for now and is not kept: the fleet cannot write its history",
            false => "only numbers and findings of docs/fleet.md are understood",
        };
        let partial_success = (rejected > 0)
            .then(|| PartialSuccess { rejected: rejected.cast_signed(), error_message: error_message.to_owned() });
        PushAnswer { partial_success, standings: self.standings }
    }
}

/// Where one kind of message is told.
pub fn door(kind: Kind) -> MethodRouter<Arc<Doors>> {
    post(
        async move |State(doors): State<Arc<Doors>>,
                    Extension(grant): Extension<Grant>,
                    headers: HeaderMap,
                    body: Body| { told(kind, &doors, &grant, &headers, body).await },
    )
}

async fn told(kind: Kind, doors: &Doors, grant: &Grant, headers: &HeaderMap, body: Body) -> Result<Response, Refusal> {
    let fleet = doors.asker.fleet().ok_or(Refusal::NoSuchPath)?;
    if !header(headers, CONTENT_TYPE.as_str()).eq_ignore_ascii_case(PROTOBUF) {
        return Err(Refusal::NotProtobuf);
    }
    let bytes = body::bytes(headers, body, &doors.patience).await?;
    let is_packed = is_packed(header(headers, CONTENT_ENCODING.as_str()))?;
    let answer = fleet.hear(kind, &bytes, is_packed, sent_ns(headers), grant)?;
    let mut response = ([(CONTENT_TYPE, PROTOBUF)], answer.encode_to_vec()).into_response();
    response.extensions_mut().insert(routine());
    Ok(response)
}

/// What comes every second from every node fills no record.
pub(super) fn routine() -> Remark {
    Remark { is_routine: true, ..Remark::default() }
}

pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// When the message was sent, by the clock of its node.
pub(super) fn sent_ns(headers: &HeaderMap) -> Option<u64> {
    header(headers, SENT).parse().ok()
}

/// Whether a message is packed, by what its header says.
pub(super) fn is_packed(encoding: &str) -> Result<bool, Refusal> {
    match encoding {
        "" | "identity" => Ok(false),
        "gzip" => Ok(true),
        other => Err(Refusal::BadMessage { message: format!("it is packed as {other:?}; gzip is understood") }),
    }
}

/// A message as it was before it was packed. A little may become much.
fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut unpacked = Vec::with_capacity(bytes.len().saturating_mul(USUAL_GROWTH));
    let read = GzDecoder::new(bytes).take(MOST_BYTES + 1).read_to_end(&mut unpacked);
    read.map_err(|error| Refusal::BadMessage { message: error.to_string() })?;
    if unpacked.len() as u64 > MOST_BYTES {
        return Err(Refusal::BodyTooLarge { most: MOST_BYTES as usize });
    }
    Ok(unpacked)
}

/// Of which cluster it is told, and of which node.
fn whose(told: &ResourceLogs) -> (String, Option<String>) {
    let attributes = told.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
    (text(attributes, "gpuwhy.cluster").unwrap_or_default(), text(attributes, "host.name"))
}

/// What a record says of a worker, if it is about a finding.
fn finding(record: &LogRecord) -> Option<(u32, Why)> {
    let of = |key: &str| text(&record.attributes, key);
    let pid = u32::try_from(whole(&record.attributes, "process.pid")?).ok()?;
    let severity = of("gpuwhy.severity")?;
    let severity = Severity::ALL.iter().copied().find(|one| one.as_str() == severity)?;
    let line = |file: String| match whole(&record.attributes, "code.line.number") {
        Some(line) => format!("{file}:{line}"),
        None => file,
    };
    let culprit = of("gpuwhy.culprit.name");
    let culprit = culprit.map(|name| match whole(&record.attributes, "gpuwhy.culprit.pid") {
        Some(pid) => format!("{name} ({pid})"),
        None => name,
    });
    let summary = match record.body.as_ref()?.value.as_ref()? {
        Value::Text(text) => text.chars().take(1024).collect(),
        _ => return None,
    };
    let (at_ns, cause) = (record.time_unix_nano, of("gpuwhy.cause")?);
    Some((pid, Why { at_ns, cause, severity, summary, culprit, place: of("code.file.path").map(line) }))
}
