//! Takes what agents and anybody else push: metrics and records of a log, as OpenTelemetry's protocol over HTTP has them.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use gpuwhy_fleet::{Clusters, Digest, Why};
use gpuwhy_model::Severity;
use prost::Message;

use super::vocabulary::{PushAnswer, decode, text, whole};
use crate::Refusal;
use crate::clock::now_ns;
use crate::http::{Doors, Grant, Remark, body};
use crate::otlp::messages::{LogRecord, LogsRequest, MetricsRequest, PartialSuccess, ResourceLogs, Value};

const PROTOBUF: &str = "application/x-protobuf";
/// A message, unpacked.
const MOST_BYTES: u64 = 16 << 20;
/// Ranks that are told how they stand, in one answer.
const MOST_STANDINGS: usize = 256;

/// The clusters of a fleet, for all who ask and tell.
#[derive(Clone, Default)]
pub struct Fleet(Arc<Mutex<Clusters>>);

impl Fleet {
    pub fn lock(&self) -> MutexGuard<'_, Clusters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clusters(&self) -> &Mutex<Clusters> {
        &self.0
    }

    /// Compares ranks that have told something new.
    pub fn judge(&self) {
        self.lock().judge(now_ns());
    }
}

pub async fn metrics(
    State(doors): State<Arc<Doors>>,
    Extension(grant): Extension<Grant>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fleet = doors.asker.fleet().ok_or(Refusal::NoSuchPath)?;
    let request: MetricsRequest = message(&doors, &headers, body).await?;
    let decoded = decode(&request);
    let mut by_node: BTreeMap<(String, String), Vec<Digest>> = BTreeMap::new();
    for (cluster, node, digest) in decoded.digests {
        grant.permit_telling(&cluster, Some(&node))?;
        by_node.entry((cluster, node)).or_default().push(digest);
    }
    let mut standings = Vec::new();
    let now_ns = now_ns();
    let mut clusters = fleet.lock();
    for ((cluster, node), digests) in by_node {
        let Some(cluster) = clusters.cluster(&cluster) else { continue };
        cluster.take(&node, digests, now_ns);
        let room = MOST_STANDINGS - standings.len().min(MOST_STANDINGS);
        standings.extend(cluster.told_to(&node).into_iter().take(room).map(Into::into));
    }
    drop(clusters);
    Ok(answer(&PushAnswer { partial_success: not_understood(decoded.not_understood), standings }))
}

pub async fn logs(
    State(doors): State<Arc<Doors>>,
    Extension(grant): Extension<Grant>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let fleet = doors.asker.fleet().ok_or(Refusal::NoSuchPath)?;
    let request: LogsRequest = message(&doors, &headers, body).await?;
    let (now_ns, mut refused) = (now_ns(), 0);
    for told in &request.resource_logs {
        let (cluster, node) = whose(told);
        grant.permit_telling(&cluster, node.as_deref())?;
    }
    let mut clusters = fleet.lock();
    for told in &request.resource_logs {
        let (cluster, node) = whose(told);
        let records = || told.scope_logs.iter().flat_map(|scope| &scope.log_records);
        let (Some(cluster), Some(node)) = (clusters.cluster(&cluster), node) else {
            refused += records().count() as u64;
            continue;
        };
        for record in records() {
            match finding(record) {
                Some((pid, why)) => cluster.take_finding(&node, pid, why, now_ns),
                None => refused += 1,
            }
        }
    }
    drop(clusters);
    Ok(answer(&PushAnswer { partial_success: not_understood(refused), standings: Vec::new() }))
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

async fn message<M: Message + Default>(doors: &Doors, headers: &HeaderMap, body: Body) -> Result<M, Refusal> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    if !header(CONTENT_TYPE).eq_ignore_ascii_case(PROTOBUF) {
        return Err(Refusal::NotProtobuf);
    }
    let bytes = body::bytes(headers, body, &doors.patience).await?;
    let malformed = |message: String| Refusal::BadMessage { message };
    let bytes = match header(CONTENT_ENCODING) {
        "" | "identity" => bytes.to_vec(),
        "gzip" => {
            let mut unpacked = Vec::new();
            let read = GzDecoder::new(&bytes[..]).take(MOST_BYTES + 1).read_to_end(&mut unpacked);
            read.map_err(|error| malformed(error.to_string()))?;
            unpacked
        }
        other => return Err(malformed(format!("it is packed as {other:?}; gzip is understood"))),
    };
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Refusal::BodyTooLarge { most: MOST_BYTES as usize });
    }
    M::decode(&bytes[..]).map_err(|error| malformed(error.to_string()))
}

fn not_understood(rejected: u64) -> Option<PartialSuccess> {
    let error_message = "only numbers and findings of docs/fleet.md are understood".to_owned();
    (rejected > 0).then(|| PartialSuccess { rejected: rejected.cast_signed(), error_message })
}

fn answer(answer: &PushAnswer) -> Response {
    let mut response = ([(CONTENT_TYPE, PROTOBUF)], answer.encode_to_vec()).into_response();
    response.extensions_mut().insert(Remark { is_routine: true, ..Remark::default() });
    response
}
