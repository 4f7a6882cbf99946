//! What a fleet takes from anybody who pushes, and how it answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use gpuwhy_fleet::{Digest, Part, Worker};
use gpuwhy_outputs::fleet::packed;
use gpuwhy_outputs::{Fleet, FleetAddress, Mode, Push, PushError, Token};
use http_body_util::BodyExt;
use serde_json::json;
use support::{Served, Start, TOKEN};

const PROTOBUF: &[(&str, &str)] = &[("Content-Type", "application/x-protobuf")];
const S: u64 = 1_000_000_000;

fn serving() -> (Fleet, Served) {
    let fleet = Fleet::default();
    let served = Start { fleet: Some(fleet.clone()), ..Start::default() }.serve();
    (fleet, served)
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// What a worker tells after so many seconds in each of which it has waited so long.
fn digest(rank: u32, seconds: u64, waits_ns: u64) -> Digest {
    let part = Part {
        communicator: 7,
        rank,
        ranks: 2,
        operations: 25 * seconds,
        waited_ns: waits_ns * seconds,
        done_ns: seconds * S,
    };
    let worker = Worker { pid: 100 + rank, comm: "python".to_owned(), ..Worker::default() };
    Digest { at_ns: seconds * S, worker, parts: vec![part], ..Digest::default() }
}

fn push(served: &Served, node: &str, token: Option<&str>) -> Push {
    let token = token.map(|token| Token::new(token).unwrap());
    let url = format!("http://{}", served.address);
    Push::new(FleetAddress { url, cluster: "west".to_owned(), node: node.to_owned(), token })
}

#[test]
fn nodes_that_push_hear_how_their_ranks_stand_and_everybody_can_ask() {
    let (fleet, served) = serving();
    let (mut a, mut b) = (push(&served, "a", None), push(&served, "b", None));
    assert_eq!(served.ask("stragglers", &json!({})).status, 404, "nobody has told anything");
    for second in 1..5 {
        a.tell(&[digest(0, second, S / 2)]).unwrap();
        b.tell(&[digest(1, second, S / 10)]).unwrap();
        fleet.judge();
    }
    a.tell(&[digest(0, 5, S / 2)]).unwrap();
    b.tell(&[digest(1, 5, S / 10)]).unwrap();
    let (mode, late) = b.late();
    assert_eq!((mode, late.len(), late[0].rank, late[0].pid), (Mode::Fleet, 1, 1, 101));
    assert_eq!(a.late(), (Mode::Fleet, Vec::new()));
    let said = served.ask("fleet.cluster.find_outlier_nodes", &json!({})).json();
    assert_eq!((&said["cluster"], &said["stragglers"][0]["node"]), (&json!("west"), &json!("b")), "{said:#}");
    let tools = served.get("/api/v1/tools/list").json();
    assert!(tools["tools"].as_array().unwrap().iter().all(|tool| tool["name"] != "explain"), "{tools:#}");
    let said = served.mcp("tools/call", json!({"name": "stragglers", "arguments": {"cluster": "east"}}));
    assert!(said.to_string().contains("no cluster"), "{said:#}");
}

#[test]
fn ranks_of_one_host_are_compared_where_no_fleet_answers() {
    let nowhere = FleetAddress {
        url: "http://127.0.0.1:9".to_owned(),
        cluster: String::new(),
        node: "a".to_owned(),
        token: None,
    };
    let mut push = Push::new(nowhere);
    assert_eq!(push.late(), (Mode::None, Vec::new()));
    let mut away = 0;
    for second in 1..5 {
        away += u32::from(push.tell(&[digest(0, second, S / 2), digest(1, second, S / 10)]).is_err());
    }
    assert_eq!(away, 1, "it is left alone for a while");
    let (mode, late) = push.late();
    assert_eq!((mode, late.iter().map(|one| one.rank).collect::<Vec<_>>()), (Mode::Local, vec![1]));
}

#[test]
fn who_has_no_token_or_the_wrong_one_is_refused_and_told_so() {
    let fleet = Fleet::default();
    let served = Start { fleet: Some(fleet), token: Some(TOKEN), ..Start::default() }.serve();
    for token in [None, Some("another-token-of-some-length")] {
        let told = push(&served, "a", token).tell(&[digest(0, 1, 0)]);
        assert!(matches!(&told, Err(PushError::Refused(why)) if why.contains("401")), "{told:?}");
    }
    push(&served, "a", Some(TOKEN)).tell(&[digest(0, 1, 0)]).unwrap();
}

#[test]
fn what_is_no_message_or_too_much_is_refused_with_the_reason() {
    let (_, mut served) = serving();
    let status = |headers: &[(&str, &str)], body: &[u8]| {
        let reply = served.send_bytes("/v1/metrics", headers, body);
        (reply.status, reply.code())
    };
    let gzip = [PROTOBUF, &[("Content-Encoding", "gzip")]].concat();
    assert_eq!(status(&[("Content-Type", "application/json")], b"{}"), (415, "not_protobuf".to_owned()));
    assert_eq!(status(PROTOBUF, b"\xff\xff\xff"), (400, "malformed".to_owned()));
    assert_eq!(status(&gzip, b"no gzip at all"), (400, "malformed".to_owned()));
    let odd = [PROTOBUF, &[("Content-Encoding", "br")]].concat();
    assert_eq!(status(&odd, b""), (400, "malformed".to_owned()));
    // A little that becomes much.
    assert_eq!(status(&gzip, &gzipped(&vec![0; 64 << 20])), (413, "body_too_large".to_owned()));
    // One that says it is too long is not even read.
    let head = "POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: 2097152\r\n\r\n";
    assert_eq!(served.send_raw(head.as_bytes()).code(), "body_too_large");
    let empty = served.send_bytes("/v1/metrics", PROTOBUF, b"");
    assert_eq!(empty.status, 200);
    // A push that went well is one of thousands each second.
    let record = served.end();
    assert_eq!((record.lines().count(), record.contains("\"status\":200")), (6, false), "{record}");
}

#[test]
fn a_trace_of_one_host_takes_no_pushes() {
    let served = Start::default().serve();
    assert_eq!(served.send_bytes("/v1/metrics", PROTOBUF, b"").status, 404);
    let said = served.ask("stragglers", &json!({}));
    assert_eq!((said.status, said.code().as_str()), (404, "no_such_question"));
    let told = push(&served, "a", None).tell(&[digest(0, 1, 0)]);
    assert!(matches!(told, Err(PushError::Refused(_))), "{told:?}");
}

/// A call of gRPC: the status over HTTP, that of the call, and what it says.
async fn call(address: &str, path: &str, headers: &[(&str, &str)], message: &[u8]) -> (u16, Option<String>, Vec<u8>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let framed = [&[1][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let mut request = hyper::Request::post(format!("http://{address}{path}")).header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = http_body_util::Full::new(hyper::body::Bytes::from(framed));
    let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
    let status = status.map(|status| status.to_str().unwrap().to_owned());
    (head.status.as_u16(), status, collected.to_bytes().to_vec())
}

const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc"), ("grpc-encoding", "gzip")];
const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_speaks_grpc_is_heard_and_refused_in_its_own_way() {
    let (fleet, served) = serving();
    let address = served.address.to_string();
    for second in 1..5 {
        let told = packed("a", "west", &[digest(0, second, S / 2)]);
        let (http, status, answer) = call(&address, METRICS, GRPC, &told).await;
        assert_eq!((http, status.as_deref(), answer[0]), (200, Some("0"), 0));
    }
    assert_eq!(fleet.lock().clusters.find(Some("west")).unwrap().1.workers("a")[0].at_ns, 4 * S);
    let nonsense = call(&address, METRICS, GRPC, &gzipped(b"\xff\xff\xff")).await;
    assert_eq!((nonsense.0, nonsense.1.as_deref()), (200, Some("3")));
    let bomb = call(&address, METRICS, GRPC, &gzipped(&vec![0; 64 << 20])).await;
    assert_eq!((bomb.0, bomb.1.as_deref()), (200, Some("8")));
    assert_eq!(call(&address, METRICS, &[], b"").await.0, 415);
    assert_eq!(call(&address, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", GRPC, b"").await.0, 404);
    let fleet = Fleet::default();
    let served = Start { fleet: Some(fleet), token: Some(TOKEN), ..Start::default() }.serve();
    let told = packed("a", "west", &[digest(0, 1, 0)]);
    assert_eq!(call(&served.address.to_string(), METRICS, GRPC, &told).await.0, 401);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [GRPC, &[("authorization", bearer.as_str())]].concat();
    assert_eq!(call(&served.address.to_string(), METRICS, &headers, &told).await.1.as_deref(), Some("0"));
}

#[test]
fn what_a_fleet_that_is_away_has_to_be_told_waits_and_comes_once() {
    let data = tempfile::tempdir().unwrap();
    let (fleet, keeping) = Fleet::open(data.path(), 1 << 30, None).unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    let mut push = Push::new(FleetAddress { url, cluster: "west".to_owned(), node: "a".to_owned(), token: None });
    let now_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    for second in 1..=100 {
        let at_ns = now_ns + second * S;
        let _ = push.tell(&[Digest { at_ns, ..digest(0, second, S / 2) }]);
    }
    assert_eq!((push.waiting(), push.lost()), (100, 0));
    let served = Start { fleet: Some(fleet), address: Some(address), ..Start::default() }.serve();
    support::wait_until("all of it is told", || {
        let _ = push.tell(&[]);
        push.waiting() == 0
    });
    assert_eq!(push.lost(), 0);
    keeping.finish().unwrap();
    let said = served.ask("sql", &json!({"sql": "SELECT sum(told_ns) / 1000000000 FROM spans_10s"})).json();
    assert_eq!(said["rows"], json!([[100]]), "{said:#}");
}
