//! Digests as metrics of OpenTelemetry, so that any receiver can take them, and back; and what is told in return.
//!
//! A worker is a resource. Its numbers are those of [`QUANTITIES`]. Whoever sends them in other ways, with more resources or
//! attributes than these, is understood as far as names agree.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gpuwhy_fleet::{
    COMMUNICATOR, Digest, Part, QUANTITIES, Quantity, QuantityKind as Kind, RANK, RANKS, STATE, Told, Worker,
};
use gpuwhy_model::WaitReason;
use prost::Message;

use crate::otlp::messages::{
    CUMULATIVE, Data, Gauge, KeyValue, Metric, MetricsRequest, NumberPoint, Resource, ResourceMetrics, Scope,
    ScopeMetrics, Sum, Value, attribute,
};

const NODE: &str = "host.name";
const CLUSTER: &str = "gpuwhy.cluster";
const PID: &str = "process.pid";
const COMM: &str = "process.executable.name";
const DEVICE: &str = "gpuwhy.device";
const GPU: &str = "gpuwhy.gpu";
const LABEL: &str = "gpuwhy.label.";

/// More of anything is left out.
const MOST_TEXT: usize = 256;
const MOST_LABELS: usize = 32;
const MOST_WORKERS: usize = 1024;
const MOST_POINTS: usize = 1024;

/// What a thread may do with its time, in the order of [`Digest::thread_time`].
static STATE_NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let blocked = WaitReason::ALL.iter().map(|reason| format!("blocked_{}", reason.as_str()));
    ["running".to_owned(), "waiting_for_cpu".to_owned()].into_iter().chain(blocked).collect()
});

/// What a node tells of its workers.
pub fn encode(node: &str, cluster: &str, digests: &[Digest]) -> MetricsRequest {
    let one = |digest: &Digest| ResourceMetrics {
        resource: Some(resource(node, cluster, &digest.worker)),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(Scope { name: "gpuwhy".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }),
            metrics: QUANTITIES.iter().filter_map(|quantity| metric(quantity, digest)).collect(),
        }],
    };
    MetricsRequest { resource_metrics: digests.iter().map(one).collect() }
}

fn resource(node: &str, cluster: &str, worker: &Worker) -> Resource {
    let mut attributes = vec![
        attribute(NODE, node),
        attribute(CLUSTER, cluster),
        attribute(PID, worker.pid),
        attribute(COMM, worker.comm.as_str()),
    ];
    attributes.extend(worker.device.map(|device| attribute(DEVICE, u32::from(device))));
    attributes.extend(worker.gpu.iter().map(|gpu| attribute(GPU, gpu.as_str())));
    attributes.extend(worker.labels.iter().map(|(key, value)| attribute(&format!("{LABEL}{key}"), value.as_str())));
    Resource { attributes }
}

fn metric(quantity: &Quantity, digest: &Digest) -> Option<Metric> {
    let at = |time_unix_nano, value: f64, attributes| NumberPoint {
        time_unix_nano,
        as_double: Some(value),
        attributes,
        ..NumberPoint::default()
    };
    let one = |value: f64| vec![at(digest.at_ns, value, Vec::new())];
    let of_parts = |value: fn(&Part) -> f64| {
        let point = |part: &Part| at(part.done_ns, value(part), part_attributes(part));
        digest.parts.iter().map(point).collect()
    };
    let data_points: Vec<NumberPoint> = match quantity.kind {
        Kind::Steps => one(f64::from(digest.steps)),
        Kind::StepTime => digest.step_ns.map_or(Vec::new(), |ns| one(ns as f64 / 1e9)),
        Kind::GpuIdle => one(digest.gpu_idle),
        Kind::GpuBusy => one(digest.gpu_busy),
        Kind::ThreadTime => {
            let shares = STATE_NAMES.iter().zip(digest.thread_time).filter(|(_, share)| *share > 0.0);
            shares.map(|(name, share)| at(digest.at_ns, share, vec![attribute(STATE, name.as_str())])).collect()
        }
        Kind::Operations => of_parts(|part| part.operations as f64),
        Kind::OperationsWait => of_parts(|part| part.waited_ns as f64 / 1e9),
        Kind::Lost if digest.lost > 0 => one(digest.lost as f64),
        Kind::Lost => Vec::new(),
    };
    let data = match quantity.is_sum() {
        true => Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true }),
        false => Data::Gauge(Gauge { data_points }),
    };
    let is_there = match &data {
        Data::Sum(sum) => !sum.data_points.is_empty(),
        Data::Gauge(gauge) => !gauge.data_points.is_empty(),
        Data::Histogram(_) => false,
    };
    let (name, unit) = (quantity.name.to_owned(), quantity.unit.to_owned());
    is_there.then(|| Metric { name, unit, data: Some(data), ..Metric::default() })
}

fn part_attributes(part: &Part) -> Vec<KeyValue> {
    let communicator = format!("{:016x}", part.communicator);
    vec![attribute(COMMUNICATOR, communicator.as_str()), attribute(RANK, part.rank), attribute(RANKS, part.ranks)]
}

/// Digests that somebody told, with the cluster and the node that each is of, and how many numbers were not understood.
#[derive(Debug, Default)]
pub struct Decoded {
    pub digests: Vec<(String, String, Digest)>,
    pub points: u64,
    pub not_understood: u64,
}

pub fn decode(request: &MetricsRequest) -> Decoded {
    let mut decoded = Decoded::default();
    for told in &request.resource_metrics {
        let metrics = told.scope_metrics.iter().flat_map(|scope| &scope.metrics);
        let Some((cluster, node, worker)) = told.resource.as_ref().and_then(identity) else {
            decoded.not_understood += metrics.map(|metric| points(metric).len() as u64).sum::<u64>();
            continue;
        };
        let mut digest = Digest { worker, ..Digest::default() };
        let mut understood = 0;
        for metric in metrics {
            let points = points(metric);
            let quantity = QUANTITIES.iter().find(|quantity| quantity.name == metric.name);
            let Some(quantity) = quantity.filter(|_| points.len() <= MOST_POINTS) else {
                decoded.not_understood += points.len() as u64;
                continue;
            };
            for point in points {
                match read(quantity.kind, point, &mut digest) {
                    Some(()) => understood += 1,
                    None => decoded.not_understood += 1,
                }
            }
        }
        decoded.points += understood;
        if understood > 0 && decoded.digests.len() < MOST_WORKERS {
            decoded.digests.push((cluster, node, digest));
        }
    }
    decoded
}

/// Of which cluster, of which node, and what it is.
fn identity(resource: &Resource) -> Option<(String, String, Worker)> {
    let node = text(&resource.attributes, NODE)?;
    let pid = u32::try_from(whole(&resource.attributes, PID)?).ok()?;
    let labels = resource.attributes.iter().filter_map(|one| {
        let label = one.key.strip_prefix(LABEL)?;
        Some((within(label), text(std::slice::from_ref(one), &one.key)?))
    });
    let worker = Worker {
        pid,
        comm: text(&resource.attributes, COMM).unwrap_or_default(),
        device: whole(&resource.attributes, DEVICE).and_then(|device| u16::try_from(device).ok()),
        gpu: text(&resource.attributes, GPU),
        labels: labels.take(MOST_LABELS).collect::<BTreeMap<String, String>>(),
    };
    Some((text(&resource.attributes, CLUSTER).unwrap_or_default(), node, worker))
}

fn points(metric: &Metric) -> &[NumberPoint] {
    match &metric.data {
        Some(Data::Gauge(gauge)) => &gauge.data_points,
        Some(Data::Sum(sum)) => &sum.data_points,
        Some(Data::Histogram(_)) | None => &[],
    }
}

fn read(kind: Kind, point: &NumberPoint, digest: &mut Digest) -> Option<()> {
    let value = point
        .as_double
        .or(point.as_int.map(|whole| whole as f64))
        .filter(|value| value.is_finite() && *value >= 0.0)?;
    let share = value.min(1.0);
    // A number above what fits becomes the largest one.
    let ns = |seconds: f64| (seconds * 1e9).round() as u64;
    if !matches!(kind, Kind::Operations | Kind::OperationsWait) {
        digest.at_ns = digest.at_ns.max(point.time_unix_nano);
    }
    match kind {
        Kind::Steps => digest.steps = value as u32,
        Kind::StepTime => digest.step_ns = Some(ns(value)),
        Kind::GpuIdle => digest.gpu_idle = share,
        Kind::GpuBusy => digest.gpu_busy = share,
        Kind::ThreadTime => {
            let wanted = text(&point.attributes, STATE)?;
            let at = STATE_NAMES.iter().position(|name| *name == wanted)?;
            digest.thread_time[at] = share;
        }
        Kind::Operations => part(point, digest)?.operations = value as u64,
        Kind::OperationsWait => part(point, digest)?.waited_ns = ns(value),
        Kind::Lost => digest.lost = value as u64,
    }
    Some(())
}

/// The part that a point is about.
fn part<'d>(point: &NumberPoint, digest: &'d mut Digest) -> Option<&'d mut Part> {
    let communicator = u64::from_str_radix(&text(&point.attributes, COMMUNICATOR)?, 16).ok()?;
    let rank = u32::try_from(whole(&point.attributes, RANK)?).ok()?;
    let ranks = u32::try_from(whole(&point.attributes, RANKS)?).ok()?;
    let done_ns = point.time_unix_nano;
    let known = digest.parts.iter().position(|part| (part.communicator, part.rank) == (communicator, rank));
    let at = known.unwrap_or_else(|| {
        digest.parts.push(Part { communicator, rank, ranks, operations: 0, waited_ns: 0, done_ns });
        digest.parts.len() - 1
    });
    digest.parts.get_mut(at)
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|one| one.key == key)?.value.as_ref()?.value.as_ref()
}

/// As much of a text as there is room for.
fn within(text: &str) -> String {
    if text.len() <= MOST_TEXT { text.to_owned() } else { text.chars().take(MOST_TEXT).collect() }
}

pub fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    match value(attributes, key)? {
        Value::Text(text) if !text.is_empty() => Some(within(text)),
        Value::Whole(whole) => Some(whole.to_string()),
        _ => None,
    }
}

pub fn whole(attributes: &[KeyValue], key: &str) -> Option<i64> {
    match value(attributes, key)? {
        Value::Whole(whole) => Some(*whole),
        Value::Text(text) => text.parse().ok(),
        Value::Number(_) => None,
    }
}

/// What a fleet answers to a push: OpenTelemetry's own answer, and behind it how the sender's ranks stand among the others.
/// Whoever does not know that passes over it.
#[derive(Clone, PartialEq, Message)]
pub struct PushAnswer {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<crate::otlp::messages::PartialSuccess>,
    #[prost(message, repeated, tag = "4711")]
    pub standings: Vec<Standing>,
}

/// How a rank stands among those of its communicator.
#[derive(Clone, PartialEq, Message)]
pub struct Standing {
    #[prost(fixed64, tag = "1")]
    pub communicator: u64,
    #[prost(uint32, tag = "2")]
    pub rank: u32,
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// The share of the time for which others wait for it.
    #[prost(double, tag = "4")]
    pub share: f64,
    /// From which share on a rank is late.
    #[prost(double, tag = "5")]
    pub threshold: f64,
    /// Since when it is late; 0 if it is not.
    #[prost(fixed64, tag = "6")]
    pub since_ns: u64,
}

impl From<Told> for Standing {
    fn from(told: Told) -> Self {
        let Told { communicator, rank, pid, share, threshold, since_ns } = told;
        Self { communicator, rank, pid, share, threshold, since_ns: since_ns.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_fleet::STATES;

    fn digest(pid: u32) -> Digest {
        let mut thread_time = [0.0; STATES];
        (thread_time[0], thread_time[3]) = (0.25, 0.75);
        let labels = [("job", "llm"), ("rank", "7")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let part = Part {
            communicator: u64::MAX - 1,
            rank: 7,
            ranks: 16,
            operations: 123_456,
            waited_ns: 98_765_432_101,
            done_ns: 55,
        };
        Digest {
            at_ns: 77,
            worker: Worker {
                pid,
                comm: "python".to_owned(),
                device: Some(3),
                gpu: Some("NVIDIA H200".to_owned()),
                labels: labels.into(),
            },
            steps: 24,
            step_ns: Some(41_000_000),
            gpu_idle: 0.5,
            gpu_busy: 0.125,
            thread_time,
            parts: vec![part, Part { communicator: 9, rank: 0, ranks: 2, ..part }],
            lost: 3,
        }
    }

    #[test]
    fn what_is_told_is_what_is_understood() {
        let digests = [digest(1), digest(2)];
        let bytes = encode("node7", "west", &digests).encode_to_vec();
        let decoded = decode(&MetricsRequest::decode(&bytes[..]).unwrap());
        let told = digests.map(|digest| ("west".to_owned(), "node7".to_owned(), digest));
        assert_eq!((decoded.digests, decoded.not_understood), (told.to_vec(), 0));
    }

    #[test]
    fn numbers_of_others_are_passed_over_and_counted() {
        let mut request = encode("node7", "west", &[digest(1)]);
        let mut of_nobody = encode("node7", "west", &[digest(1)]).resource_metrics.remove(0);
        of_nobody.resource = None;
        request.resource_metrics.push(of_nobody);
        let metrics = &mut request.resource_metrics[0].scope_metrics[0].metrics;
        let points = metrics.iter().map(|metric| super::points(metric).len() as u64).sum::<u64>();
        let mut odd = metrics[0].clone();
        odd.name = "somebody.elses".to_owned();
        let mut wrong = metrics[0].clone();
        let Some(Data::Gauge(gauge)) = &mut wrong.data else { panic!("{wrong:?}") };
        gauge.data_points[0].as_double = Some(f64::NAN);
        metrics.extend([odd, wrong]);
        let decoded = decode(&request);
        assert_eq!((decoded.points, decoded.not_understood), (points, points + 2));
        assert_eq!(decoded.digests[0].2, digest(1));
    }

    #[test]
    fn hostile_numbers_and_names_stay_within_bounds() {
        let mut hostile = digest(1);
        hostile.worker.labels = (0..1000).map(|number| (format!("{number}"), "x".repeat(10_000))).collect();
        let mut request = encode(&"n".repeat(100_000), "west", &[hostile]);
        for metric in &mut request.resource_metrics[0].scope_metrics[0].metrics {
            if let Some(Data::Gauge(Gauge { data_points }) | Data::Sum(Sum { data_points, .. })) = &mut metric.data {
                data_points.iter_mut().for_each(|point| point.as_double = Some(f64::MAX));
            }
        }
        let decoded = decode(&request);
        let (_, node, digest) = &decoded.digests[0];
        assert!(node.len() == MOST_TEXT && digest.worker.labels.len() <= MOST_LABELS);
        assert!(digest.worker.labels.values().all(|value| value.len() <= MOST_TEXT));
        assert_eq!((digest.gpu_idle, digest.parts[0].operations, digest.steps), (1.0, u64::MAX, u32::MAX));
    }

    /// Nobody else knows the answer's own field, and nobody minds.
    #[test]
    fn an_answer_is_one_that_any_client_understands() {
        let standing = Standing { communicator: 7, rank: 1, pid: 2, share: 0.5, threshold: 0.03, since_ns: 9 };
        let partial_success = Some(crate::otlp::messages::PartialSuccess { rejected: 4, error_message: String::new() });
        let answer = PushAnswer { partial_success, standings: vec![standing] };
        let bytes = answer.encode_to_vec();
        let plain = crate::otlp::messages::Response::decode(&bytes[..]).unwrap();
        assert_eq!(plain.partial_success.unwrap().rejected, 4);
        assert_eq!(PushAnswer::decode(&bytes[..]).unwrap(), answer);
    }
}
