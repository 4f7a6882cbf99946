//! Tokens that are for some: whoever has one does what it is for, and hears of nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpuwhy_fleet::{Digest, Part, Why, Worker};
use gpuwhy_model::Severity;
use gpuwhy_outputs::fleet::packed;
use gpuwhy_outputs::{Fleet, FleetAddress, Push, PushError, Token};
use gpuwhy_questions::{FLEET_QUESTIONS, Question};
use serde_json::{Map, Value, json};
use support::{JSON, Reply, Served, Start};

const S: u64 = 1_000_000_000;
/// A while ago.
static BEGAN_NS: LazyLock<u64> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now - Duration::from_secs(600)).as_nanos() as u64
});
const PROTOBUF: &[(&str, &str)] = &[("Content-Type", "application/x-protobuf"), ("Content-Encoding", "gzip")];

const EVERYTHING: &str = "token-of-everything";
const ASKS: &str = "token-that-asks-of-west";
const TELLS: &str = "token-that-tells-of-west";
const KEY: &str = "key-of-nodes-of-west";
const OVER: &str = "token-that-has-expired";
const FILE: &str = r#"
[[token]]
name = "asks"
token = "token-that-asks-of-west"
roles = ["ask"]
clusters = ["west"]

[[token]]
name = "tells"
token = "token-that-tells-of-west"
roles = ["tell"]
clusters = ["west", "north"]

[[token]]
name = "nodes"
token = "key-of-nodes-of-west"
roles = ["tell"]
clusters = ["west"]
per_node = true

[[token]]
name = "over"
token = "token-that-has-expired"
roles = ["ask", "tell"]
until = "2001-01-01T00:00:00Z"
"#;

fn serving() -> (Fleet, Served) {
    let fleet = Fleet::default();
    let served = serving_of(&fleet);
    (fleet, served)
}

fn serving_of(fleet: &Fleet) -> Served {
    let (token, tokens) = (Some(EVERYTHING), Some(FILE));
    Start { fleet: Some(fleet.clone()), token, tokens, ..Start::default() }.serve()
}

/// What a rank of a job tells after so many seconds in each of which it has waited so long.
fn digest(job: u32, rank: u32, seconds: u64, waits_ns: u64) -> Digest {
    let (operations, waited_ns, done_ns) = (25 * seconds, waits_ns * seconds, seconds * S);
    let part = Part { communicator: u64::from(job), rank, ranks: 3, operations, waited_ns, done_ns };
    let worker = Worker { pid: job + rank, comm: format!("program-{job}"), ..Worker::default() };
    Digest { at_ns: *BEGAN_NS + seconds * S, worker, parts: vec![part], ..Digest::default() }
}

fn push(served: &Served, cluster: &str, node: &str, token: &str) -> Push {
    let (url, token) = (format!("http://{}", served.address), Some(Token::new(token).unwrap()));
    Push::new(FleetAddress { url, cluster: cluster.to_owned(), node: node.to_owned(), token })
}

fn ask(served: &Served, token: &str, question: &str, parameters: &Value) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [JSON, &[("Authorization", bearer.as_str())]].concat();
    served.send("POST", &format!("/api/v1/tools/{question}"), &headers, &parameters.to_string())
}

fn ask_as_tool(served: &Served, token: &str, question: &str, parameters: &Value) -> Reply {
    let call = json!({"name": question, "arguments": parameters});
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call});
    served.mcp_raw(message, &[("Authorization", &format!("Bearer {token}"))])
}

/// Parameters of a question: this cluster, this node wherever one can be named, and what it cannot do without.
fn parameters(question: &Question, cluster: Option<&str>, node: &str) -> Value {
    let input = question.input();
    let needed = input.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut given = Map::new();
    for (name, about) in input.pointer("/properties").and_then(Value::as_object).unwrap() {
        let value = match (name.as_str(), about["type"].as_str()) {
            ("cluster", _) => cluster.map(Value::from),
            ("node", _) => Some(node.into()),
            ("sql", _) => Some("SELECT node, comm FROM workers".into()),
            _ if !needed.contains(&name.as_str().into()) => None,
            (_, Some("integer" | "number")) => Some(1.into()),
            (_, Some("boolean")) => Some(true.into()),
            _ => Some(node.into()),
        };
        given.extend(value.map(|value| (name.clone(), value)));
    }
    given.into()
}

const JOBS: [(&str, u32); 2] = [("west", 1_000), ("east", 77_000)];

/// Two clusters that share no names, in each of which a rank is late.
fn two_clusters(fleet: &Fleet, served: &Served) {
    for second in 1..8 {
        for (cluster, job) in JOBS {
            for (rank, waits_ns) in [(0, S / 2), (1, S / 2), (2, S / 10)] {
                let node = format!("node-of-{cluster}-{rank}");
                push(served, cluster, &node, EVERYTHING).tell(&[digest(job, rank, second, waits_ns)]).unwrap();
            }
        }
        fleet.judge();
    }
    for (cluster, job) in JOBS {
        let (summary, culprit) = (format!("a reason of {cluster}"), Some(format!("culprit of {cluster}")));
        let why =
            Why { at_ns: S, cause: "lock-wait".to_owned(), severity: Severity::High, summary, culprit, place: None };
        let node = format!("node-of-{cluster}-2");
        fleet.lock().clusters.cluster(cluster).unwrap().take_finding(&node, job + 2, why, 8 * S);
    }
}

#[test]
fn a_token_of_one_cluster_never_hears_of_another_whatever_it_asks() {
    let data = tempfile::tempdir().unwrap();
    let (fleet, keeping) = Fleet::open(data.path(), 1 << 30, None).unwrap();
    let served = serving_of(&fleet);
    two_clusters(&fleet, &served);
    // What has been told is in the files of both.
    keeping.finish().unwrap();
    for ask in [ask, ask_as_tool] {
        for question in FLEET_QUESTIONS {
            let of = |token, cluster: Option<&str>, node: &str| {
                ask(&served, token, question.name, &parameters(question, cluster, node))
            };
            let has_east = |reply: &Reply| reply.body.contains("east") || reply.body.contains("7700");
            for cluster in [None, Some("west")] {
                let own = of(ASKS, cluster, "node-of-west-2");
                let is_answer =
                    own.status == 200 && own.body.contains("west") && !own.body.contains("\"isError\":true");
                assert!(is_answer && !has_east(&without_times(&own)), "{}: {own:?}", question.name);
            }
            let seen = of(EVERYTHING, Some("east"), "node-of-east-2");
            assert!(has_east(&without_times(&seen)), "{}: nothing would be found in {seen:?}", question.name);
            for (cluster, other) in [(None, None), (Some("west"), Some("west")), (Some("east"), Some("nowh"))] {
                let hidden = of(ASKS, cluster, "node-of-east-2");
                let absent = of(ASKS, other, "node-of-nowh-2");
                let same = without_times(&absent).body.replace("nowh", "east");
                assert_eq!((hidden.status, without_times(&hidden).body), (absent.status, same), "{}", question.name);
            }
        }
    }
    let several = ask(&served, EVERYTHING, "stragglers", &json!({})).body;
    assert!(several.contains("there are several: east, west"), "{several}");
    let other = ask(&served, ASKS, "stragglers", &json!({"cluster": "east"}));
    let words = "no cluster \\\"east\\\" tells this fleet; there is west\"";
    assert!(other.status == 404 && other.body.contains(words), "{other:?}");
}

/// An answer without the numbers that are times, and without the line that fences it in for a model.
fn without_times(reply: &Reply) -> Reply {
    fn cut(value: &mut Value) {
        match value {
            Value::Object(all) => {
                all.retain(|name, _| !name.ends_with("_ns") && name != "content");
                all.values_mut().for_each(cut);
            }
            Value::Array(all) => all.iter_mut().for_each(cut),
            _ => {}
        }
    }
    let mut value = reply.json();
    cut(&mut value);
    Reply { status: reply.status, head: String::new(), body: value.to_string() }
}

#[test]
fn who_tells_may_not_ask_and_who_asks_may_not_tell() {
    let (fleet, mut served) = serving();
    push(&served, "west", "a", TELLS).tell(&[digest(1, 0, 1, 0)]).unwrap();
    assert_eq!(ask(&served, ASKS, "nodes", &json!({})).status, 200);
    for refused in [ask, ask_as_tool].map(|ask| ask(&served, TELLS, "nodes", &json!({}))) {
        assert_eq!((refused.status, refused.code().as_str()), (403, "wrong_role"), "{refused:?}");
    }
    let told = push(&served, "west", "a", ASKS).tell(&[digest(1, 0, 2, 0)]);
    assert!(
        matches!(&told, Err(PushError::Refused(why)) if why.contains("403") && why.contains("wrong_role")),
        "{told:?}"
    );
    let told = push(&served, "east", "a", TELLS).tell(&[digest(1, 0, 2, 0)]);
    assert!(matches!(&told, Err(PushError::Refused(why)) if why.contains("foreign_cluster")), "{told:?}");
    assert_eq!(fleet.lock().clusters.names().collect::<Vec<_>>(), ["west"], "what is refused leaves nothing");
    for token in [OVER, KEY, "a-token-nobody-has"] {
        let refused = ask(&served, token, "nodes", &json!({}));
        assert_eq!((refused.status, refused.code().as_str()), (401, "wrong_token"), "{token}");
    }
    assert_eq!(ask(&served, EVERYTHING, "nodes", &json!({})).status, 200);
    let record = served.end();
    let lines: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |refused: &str| lines.iter().filter(|line| line["refused"] == refused).map(|line| &line["token"]).collect();
    let refused: [Vec<&Value>; 3] = ["wrong_role", "foreign_cluster", "wrong_token"].map(of);
    assert_eq!(refused[0], [&json!("tells"), &json!("tells"), &json!("asks")], "{record}");
    assert_eq!((&refused[1][..], refused[2].len()), (&[&json!("tells")][..], 3), "{record}");
}

#[test]
fn a_node_tells_as_itself_and_as_no_other() {
    let (fleet, served) = serving();
    let key = Token::new(KEY).unwrap();
    let of_a = key.of_node("a");
    push(&served, "west", "a", &of_a).tell(&[digest(1, 0, 1, 0)]).unwrap();
    let told = push(&served, "west", "b", &of_a).tell(&[digest(1, 1, 1, 0)]);
    assert!(matches!(&told, Err(PushError::Refused(why)) if why.contains("401")), "{told:?}");
    let told = push(&served, "east", "a", &of_a).tell(&[digest(1, 0, 1, 0)]);
    assert!(matches!(&told, Err(PushError::Refused(why)) if why.contains("foreign_cluster")), "{told:?}");
    let bearer = format!("Bearer {of_a}");
    let send = |path: &str, node: &str, body: &[u8]| {
        let as_node = [PROTOBUF, &[("Authorization", bearer.as_str()), ("Gpuwhy-Node", node)]].concat();
        let reply = served.send_bytes(path, &as_node, body);
        (reply.status, reply.body.split('"').nth(5).unwrap_or_default().to_owned())
    };
    let metrics = |node: &str| packed(node, "west", &[digest(1, 1, 1, 0)]);
    assert_eq!(send("/v1/metrics", "a", &metrics("b")), (403, "foreign_node".to_owned()));
    assert_eq!(send("/v1/metrics", "b", &metrics("b")), (401, "wrong_token".to_owned()));
    assert_eq!(send("/v1/metrics", "a", &metrics("a")).0, 200);
    assert_eq!(send("/v1/logs", "a", &finding(Some("b"))), (403, "foreign_node".to_owned()));
    assert_eq!(send("/v1/logs", "a", &finding(None)), (403, "foreign_node".to_owned()));
    assert_eq!(send("/v1/logs", "a", &finding(Some("a"))).0, 200);
    let nodes = fleet.lock().clusters.find(None).unwrap().1.nodes();
    assert_eq!(nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["a"]);
}

/// A message about the log of a node of west, without records.
fn finding(node: Option<&str>) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }
    let attribute = |key: &str, text: &str| {
        let value = field(2, &field(1, text.as_bytes()));
        field(1, &[field(1, key.as_bytes()), value].concat())
    };
    let node = node.map(|node| attribute("host.name", node)).unwrap_or_default();
    let resource = field(1, &[attribute("gpuwhy.cluster", "west"), node].concat());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &field(1, &resource)).unwrap();
    packed.finish().unwrap()
}
