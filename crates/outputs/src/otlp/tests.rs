use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};

use flate2::read::GzDecoder;

use super::messages::*;
use super::queue::{METRICS, MOST_BYTES};
use super::*;

const SOON: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// What a receiver was sent: the path, the headers and the body.
struct Received {
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Received {
    fn metrics(&self) -> Vec<Metric> {
        assert_eq!(self.path, "/v1/metrics");
        let request = MetricsRequest::decode(&self.body[..]).unwrap();
        request.resource_metrics.into_iter().flat_map(|one| one.scope_metrics).flat_map(|one| one.metrics).collect()
    }

    fn spans(&self) -> Vec<Span> {
        assert_eq!(self.path, "/v1/traces");
        let request = TracesRequest::decode(&self.body[..]).unwrap();
        request.resource_spans.into_iter().flat_map(|one| one.scope_spans).flat_map(|one| one.spans).collect()
    }

    fn records(&self) -> Vec<LogRecord> {
        assert_eq!(self.path, "/v1/logs");
        let request = LogsRequest::decode(&self.body[..]).unwrap();
        request.resource_logs.into_iter().flat_map(|one| one.scope_logs).flat_map(|one| one.log_records).collect()
    }
}

/// Takes the next request and answers it.
fn answer(server: &TcpListener, head: &str, body: &[u8]) -> Received {
    let mut reader = BufReader::new(server.accept().unwrap().0);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((key, value)) = line.trim().split_once(": ") else { break };
        headers.insert(key.to_ascii_lowercase(), value.to_owned());
    }
    let mut packed = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut packed).unwrap();
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
    let stream = reader.get_mut();
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).unwrap();
    stream.write_all(body).unwrap();
    Received { path, headers, body: unpacked }
}

fn settings(server: SocketAddr) -> OtlpSettings {
    let set = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_HEADERS" => "authorization=Bearer%20secret".to_owned(),
        "OTEL_RESOURCE_ATTRIBUTES" => "k8s.node.name=gpu-7".to_owned(),
        _ => String::new(),
    };
    OtlpSettings::new(&format!("http://{server}/"), set).unwrap()
}

fn registry() -> Shared {
    let registry = Shared::default();
    registry.lock().add(&families::CALLS, &["7", "python", "cuLaunchKernel"], 3.0);
    registry
}

fn times(metrics: &[Metric]) -> BTreeSet<u64> {
    let times = metrics.iter().flat_map(|metric| match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => gauge.data_points.iter().map(|point| point.time_unix_nano).collect::<Vec<_>>(),
        Data::Sum(sum) => sum.data_points.iter().map(|point| point.time_unix_nano).collect(),
        Data::Histogram(all) => all.data_points.iter().map(|point| point.time_unix_nano).collect(),
    });
    times.collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn numbers_come_with_who_tells_them_and_what_they_are() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = Otlp::start_every(settings(server.local_addr().unwrap()), registry(), SOON).unwrap();
    let received = answer(&server, "200 OK", b"");
    assert_eq!(received.headers["authorization"], "Bearer secret");
    assert_eq!(received.headers["content-type"], "application/x-protobuf");
    let request = MetricsRequest::decode(&received.body[..]).unwrap();
    let resource = request.resource_metrics[0].resource.clone().unwrap().attributes;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for expected in [
        attribute("service.name", "gpuwhy"),
        attribute("service.instance.id", host.trim()),
        attribute("host.name", host.trim()),
        attribute("os.type", "linux"),
        attribute("k8s.node.name", "gpu-7"),
    ] {
        assert!(resource.contains(&expected), "{resource:?}");
    }
    let metrics = received.metrics();
    let calls = metrics.iter().find(|metric| metric.name == "gpuwhy_calls").unwrap();
    let Some(Data::Sum(sum)) = &calls.data else { panic!("{calls:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
    let point = &sum.data_points[0];
    assert_eq!(point.as_double, Some(3.0));
    assert!(point.start_time_unix_nano > 0 && point.time_unix_nano > point.start_time_unix_nano);
    assert!(point.attributes.contains(&attribute("process.pid", 7)), "{point:?}");
    assert!(point.attributes.contains(&attribute("code.function.name", "cuLaunchKernel")), "{point:?}");
    drop(server);
    assert!(otlp.finish().sent > 0);
}

#[test]
fn a_receiver_that_starts_again_gets_every_batch_once_and_in_order() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let otlp = Otlp::start_every(settings(address), registry(), SOON).unwrap();
    let mut all: Vec<u64> = times(&answer(&server, "200 OK", b"").metrics()).into_iter().collect();
    drop(server);
    wait_until("it has failed, and more waits", || {
        otlp.shared.counts.failed.load(Ordering::Relaxed) > 0 && otlp.shared.queue().batches.len() > 3
    });
    let server = TcpListener::bind(address).unwrap();
    // One that is too busy is asked once more for the same.
    let refused = times(&answer(&server, "503 Service Unavailable\r\nRetry-After: 0", b"").metrics());
    for _ in 0..5 {
        all.extend(times(&answer(&server, "200 OK", b"").metrics()));
    }
    assert!(refused.iter().all(|time| all.contains(time)));
    let in_order: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(all, in_order.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_receiver_that_is_down_costs_bounded_memory_and_what_is_lost_is_counted() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let registry = registry();
    let otlp = Otlp::start_every(settings(gone), registry.clone(), PATIENCE).unwrap();
    let batch = || Batch { signal: METRICS, body: vec![0; 1 << 20], items: 100 };
    for _ in 0..50 {
        otlp.shared.push(batch());
        assert!(otlp.shared.queue().bytes <= MOST_BYTES + (1 << 20));
    }
    let Sent { sent, lost, failed } = otlp.finish();
    assert!(sent == 0 && lost > 50 * 100 && failed > 0, "{sent} {lost} {failed}");
    let told: Vec<f64> = registry.lock().series_of(&families::OTLP_LOST).map(|(_, series)| number(series)).collect();
    assert_eq!(told, [lost as f64]);
}

fn number(series: &gpuwhy_metrics::Series) -> f64 {
    match series {
        gpuwhy_metrics::Series::Number(number) => *number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_receiver_does_not_want_is_not_sent_again() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = Otlp::start_every(settings(server.local_addr().unwrap()), registry(), SOON).unwrap();
    let first = times(&answer(&server, "400 Bad Request", b"").metrics());
    let told = PartialSuccess { rejected: 1, error_message: "no".to_owned() };
    let partly = Response { partial_success: Some(told) }.encode_to_vec();
    let second = times(&answer(&server, "200 OK", &partly).metrics());
    assert!(first.is_disjoint(&second));
    wait_until("it is counted", || otlp.shared.counts.sent.load(Ordering::Relaxed) > 0);
    drop(server);
    let Sent { lost, failed, .. } = otlp.finish();
    assert!(lost > 1 && failed >= 1, "{lost} {failed}");
}

#[test]
fn a_record_and_its_spans_are_sent_at_once() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let otlp = Otlp::start_every(settings(server.local_addr().unwrap()), registry(), PATIENCE).unwrap();
    let attributes =
        vec![("gpuwhy.cause", Attribute::Text("lock-wait".to_owned())), ("code.line.number", Attribute::Whole(31))];
    let text = "python (7) waited".to_owned();
    let first = SpanContext::of_trace("lock-wait 7 9");
    let entry = LogEntry { name: "gpuwhy.finding", at_ns: 9, level: Level::Error, text, attributes, span: Some(first) };
    let span = |context: SpanContext, links: &[SpanContext]| SpanEntry {
        context,
        parent: (context != first).then_some(first),
        name: "futex wait".to_owned(),
        from_ns: 5,
        to_ns: 8,
        attributes: vec![("thread.id", Attribute::Whole(7))],
        links: links.iter().map(|&to| SpanLink { to, attributes: Vec::new() }).collect(),
        failure: links.first().map(|_| "it returned 2".to_owned()),
    };
    let (victim, culprit) = (first.child("sched:5"), first.child("sched:6"));
    otlp.tell(vec![entry], vec![span(first, &[]), span(victim, &[culprit]), span(culprit, &[])]);
    let spans = answer(&server, "200 OK", b"").spans();
    let records = answer(&server, "200 OK", b"").records();
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.severity_number, record.time_unix_nano, &*record.event_name), (ERROR, 9, "gpuwhy.finding"));
    assert_eq!(record.body, Some("python (7) waited".into()));
    for expected in [attribute("gpuwhy.cause", "lock-wait"), attribute("code.line.number", 31)] {
        assert!(record.attributes.contains(&expected), "{expected:?} {record:?}");
    }
    let [root, victim, culprit] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&record.trace_id, &record.span_id), (&root.trace_id, &root.span_id));
    assert_eq!((root.trace_id.len(), root.span_id.len(), root.parent_span_id.len()), (16, 8, 0));
    assert_eq!((&victim.trace_id, &victim.parent_span_id), (&root.trace_id, &root.span_id));
    assert_eq!((&*victim.name, victim.start_time_unix_nano, victim.end_time_unix_nano), ("futex wait", 5, 8));
    assert_eq!((&victim.links[0].trace_id, &victim.links[0].span_id), (&culprit.trace_id, &culprit.span_id));
    assert!(victim.status.as_ref().is_some_and(|status| status.code == FAILED) && culprit.status.is_none());
    assert_eq!(victim.attributes, [attribute("thread.id", AnyValue::from(7))]);
    drop(server);
}
