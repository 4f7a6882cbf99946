//! A fleet: what tracers of several hosts tell, who holds the others up, and why.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gpuwhy_fleet::Digest;
use gpuwhy_outputs::{FleetAddress, Push, Token};
use gpuwhy_testbed::{LaunchLoop, Undisturbed};
use serde_json::Value;
use support::{Listening, Place, Tracing, fleet_at, gpuwhy, needs_root, number_so_far, output, wait_until};

const NODES: u32 = 3;
const RANKS: u32 = 2 * NODES;
const LATE_RANK: u32 = 3;
/// From this operation on it is late.
const LATE_FROM: u32 = 100;

fn fleet() -> Listening {
    Listening::fleet(&[])
}

fn ask(fleet: &Listening, question: &[&str]) -> Result<Value, String> {
    let url = format!("http://{}", fleet.address);
    let (code, said, errors) = output(gpuwhy(&[&["fleet", "ask", "--json", "--fleet", &url], question].concat()));
    if code == 0 { Ok(serde_json::from_str(&said).unwrap()) } else { Err(errors) }
}

/// A host with two ranks of a job, under its own tracer.
fn node(place: &Place, fleet: &Listening, number: u32, late_ms: u32) -> Tracing {
    let file = place.dir.path().join(format!("gpuwhy-{number}.db"));
    let (url, name, first) = (format!("http://{}", fleet.address), format!("node{number}"), (2 * number).to_string());
    let told = ["--fleet", &url, "--cluster", "west", "--node", &name];
    let mut command = gpuwhy(&["trace", "--live", "never", "--out", file.to_str().unwrap()]);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/rank_of_job.py");
    command.args(told).args(["--", "python3", "-B"]).arg(program).arg(place.testbed.libcuda()).arg("60");
    command.arg(place.testbed.libnccl()).arg(place.dir.path().join("job")).args([&RANKS.to_string(), &first, "2"]);
    command.args([LATE_RANK, late_ms, LATE_FROM].map(|number| number.to_string()));
    command.env("LD_LIBRARY_PATH", place.testbed.dir()).stdout(Stdio::null());
    Tracing::start(command, file)
}

fn job(place: &Place, fleet: &Listening, late_ms: u32) -> Vec<Tracing> {
    let mut id = [0u8; 128];
    let own = std::process::id().to_le_bytes();
    id.iter_mut().enumerate().for_each(|(at, byte)| *byte = own[at % 4].wrapping_mul(31).wrapping_add(at as u8));
    std::fs::write(place.dir.path().join("job"), id).unwrap();
    (0..NODES).map(|number| node(place, fleet, number, late_ms)).collect()
}

#[test]
fn root_the_node_that_holds_the_others_up_is_told_with_its_rank_and_its_reason() {
    needs_root();
    let (place, machine, fleet) = (Place::new(), Undisturbed::since_now(), fleet());
    assert!(ask(&fleet, &["stragglers"]).unwrap_err().contains("nobody has told this fleet anything yet"));
    let nodes = job(&place, &fleet, 60);
    let file = place.dir.path().join("gpuwhy-1.db");
    let since = format!("SELECT timestamp_ns FROM nccl_events WHERE rank = {LATE_RANK} AND seq = {}", LATE_FROM - 1);
    let late_ns = wait_until("a rank is late", || number_so_far(&file, &since));
    let is_whole = |said: &Value| said["stragglers"].as_array().unwrap().iter().any(|one| !one["why"].is_null());
    let said = wait_until("somebody is blamed", || ask(&fleet, &["stragglers"]).ok().filter(is_whole));
    let first = &said["stragglers"][0];
    let is_so = first["node"] == "node1"
        && (first["rank"] == LATE_RANK && first["ranks"] == RANKS)
        && first["why"]["place"].as_str().is_some_and(|place| place.contains("rank_of_job.py"));
    machine.expect("who holds the others up", is_so.then_some(()).ok_or_else(|| format!("{said:#}")));
    let (since_ns, at_ns) = (first["since_ns"].as_i64().unwrap(), said["at_ns"].as_i64().unwrap());
    eprintln!(
        "late since {} ms, compared {} ms after",
        (since_ns - late_ns) / 1_000_000,
        (at_ns - late_ns) / 1_000_000
    );
    let said = ask(&fleet, &["nodes"]).unwrap();
    assert_eq!((said["cluster"].as_str(), said["nodes"].as_u64()), (Some("west"), Some(NODES.into())), "{said:#}");
    let said = ask(&fleet, &["workers", "node1"]).unwrap();
    assert_eq!(said["workers"].as_array().unwrap().len(), 2, "{said:#}");
    let events = ask(&fleet, &["fleet.cluster.event_history", "--node", "node1"]).unwrap();
    let became_late = events["events"].as_array().unwrap().iter().find(|event| event["event"] == "rank-became-late");
    assert_eq!(became_late.unwrap()["rank"], LATE_RANK, "{events:#}");
    for (mut node, number) in nodes.into_iter().zip(0..) {
        let said = ask(&fleet, &["workers", &format!("node{number}")]).unwrap();
        for worker in said["workers"].as_array().unwrap() {
            // SAFETY: a plain system call. The rank has not ended, so the number is still its own.
            unsafe { libc::kill(worker["pid"].as_i64().unwrap() as i32, libc::SIGKILL) };
        }
        node.wait_exit();
    }
}

#[test]
fn root_a_fleet_that_is_away_harms_nobody_and_is_told_when_it_is_there() {
    needs_root();
    let place = Place::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let url = format!("http://{address}");
    let mut job = LaunchLoop::new(&place.testbed).rate(200.0).start().unwrap();
    let pid = job.pid();
    let mut tracing = place.trace(&["-p", &pid.to_string(), "--fleet", &url, "--node", "alone"]);
    tracing.wait_ready();
    job.go().unwrap();
    job.slice(Duration::from_secs(5)).unwrap();
    tracing.wait_for("the fleet is not told");
    let fleet = Listening::start(fleet_at(&place.dir.path().join("fleet"), &address, &[]));
    job.slice(Duration::from_secs(8)).unwrap();
    let said = wait_until("the fleet is told", || ask(&fleet, &["workers", "alone"]).ok());
    assert!(said["workers"][0]["pid"].as_u64() == Some(pid.into()), "{said:#}");
    job.finish().unwrap();
    drop(fleet);
    tracing.stop().check();
}

#[test]
fn what_is_no_fleet_and_one_that_does_not_answer_are_clear_errors() {
    for (arguments, code, words) in [
        (&["trace", "--fleet", "fleet:9470"][..], 2, "no address of a fleet"),
        (&["trace", "--fleet", "http://"], 2, "no address of a fleet"),
        (&["trace", "--cluster", "west"], 2, "--fleet"),
        (&["fleet", "serve", "--addr", "0.0.0.0:0"], 1, "without encryption"),
        (&["fleet", "ask", "stragglers", "--fleet", "http://127.0.0.1:9"], 1, "127.0.0.1:9"),
        (&["fleet", "ask", "nonsense"], 2, "nonsense"),
        (&["fleet", "ask", "workers"], 2, "<NODE>"),
    ] {
        let mut command = gpuwhy(arguments);
        command.env_remove("GPUWHY_TOKEN");
        let (found, said, errors) = output(command);
        assert!(found == code && said.is_empty() && errors.contains(words), "{arguments:?}: {found} {errors}");
    }
    let mut command = gpuwhy(&["trace", "--duration", "1s", "--fleet", "http://127.0.0.1:9"]);
    let (code, _, errors) = output({
        command.env("GPUWHY_FLEET_TOKEN", "short");
        command
    });
    assert!(code == 1 && errors.contains("GPUWHY_FLEET_TOKEN"), "{errors}");
}

const KEY: &str = "key-of-the-nodes-of-west";

/// A fleet with a file of tokens, which knows no other.
fn fleet_with(tokens: &Path) -> Listening {
    let tokens = tokens.to_str().unwrap();
    Listening::fleet(&["--rate", "100000", "--tokens", tokens])
}

fn token(name: &str, secret: &str, more: &str) -> String {
    format!("[[token]]\nname = {name:?}\ntoken = {secret:?}\n{more}\n")
}

/// Tells of a worker with nothing to say, and how that is answered.
fn tell(fleet: &Listening, cluster: &str, node: &str, token: &str) -> Result<(), String> {
    let (url, token) = (format!("http://{}", fleet.address), Some(Token::new(token).unwrap()));
    let mut push = Push::new(FleetAddress { url, cluster: cluster.to_owned(), node: node.to_owned(), token });
    push.tell(&[Digest::default()]).map_err(|error| error.to_string())
}

/// A request as it stands, and its answer.
fn post(fleet: &Listening, path: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(&fleet.address).unwrap();
    let (address, length) = (&fleet.address, body.len());
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close");
    let kinds = "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
    write!(stream, "{head}\r\n{kinds}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ask_with(fleet: &Listening, place: &Path, token: &str, question: &[&str]) -> Result<Value, String> {
    let file = place.join("shown");
    std::fs::write(&file, token).unwrap();
    ask(fleet, &[&["--token-file", file.to_str().unwrap()], question].concat())
}

#[test]
fn a_token_does_what_it_is_for_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let tokens = place.path().join("tokens.toml");
    let everything = token("all", "token-of-everything", "roles = [\"ask\", \"tell\"]");
    let asks = token("asks", "token-that-asks-of-west", "roles = [\"ask\"]\nclusters = [\"west\"]");
    let tells = token("tells", "token-that-tells-of-west", "roles = [\"tell\"]\nclusters = [\"west\"]");
    std::fs::write(&tokens, everything + &asks + &tells).unwrap();
    let fleet = fleet_with(&tokens);
    tell(&fleet, "east", "e1", "token-of-everything").unwrap();
    tell(&fleet, "west", "w1", "token-that-tells-of-west").unwrap();
    for (cluster, token, words) in [
        ("east", "token-that-tells-of-west", ["403", "\"foreign_cluster\""]),
        ("west", "token-that-asks-of-west", ["403", "\"wrong_role\""]),
        ("west", "a-token-that-nobody-has", ["401", "\"wrong_token\""]),
    ] {
        let told = tell(&fleet, cluster, "w1", token).unwrap_err();
        assert!(words.iter().all(|word| told.contains(word)), "{token}: {told}");
    }
    let asked = |token: &str, question: &[&str]| ask_with(&fleet, place.path(), token, question);
    let nodes = asked("token-that-asks-of-west", &["nodes"]).unwrap();
    assert_eq!((&nodes["cluster"], &nodes["states"][0]["node"]), (&"west".into(), &"w1".into()), "{nodes:#}");
    let several = asked("token-of-everything", &["nodes"]).unwrap_err();
    assert!(several.contains("there are several: east, west"), "{several}");
    let hidden = asked("token-that-asks-of-west", &["nodes", "--cluster", "east"]).unwrap_err();
    assert!(hidden.contains("no cluster \"east\" tells this fleet; there is west"), "{hidden}");
    assert!(asked("token-that-tells-of-west", &["nodes"]).unwrap_err().contains("not for those who ask"));
    let call = |cluster: &str| {
        let call = format!(r#"{{"name":"workers","arguments":{{"cluster":{cluster:?},"node":"e1"}}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{call}}}"#);
        post(&fleet, "/mcp", "token-that-asks-of-west", &message)
    };
    let (hidden, absent) = (call("east"), call("nowh"));
    for (answer, cluster) in [(hidden, "east"), (absent, "nowh")] {
        let words = format!("no cluster \\\"{cluster}\\\" tells this fleet; there is west\"");
        assert!(answer.contains("200 OK") && answer.contains(&words), "{answer}");
    }
}

#[test]
fn a_node_tells_with_its_own_token_as_itself() {
    let place = tempfile::tempdir().unwrap();
    let [tokens, secret] = ["tokens.toml", "secret"].map(|name| place.path().join(name));
    std::fs::write(&secret, format!("{KEY}\n")).unwrap();
    let nodes = "[[token]]\nname = \"nodes\"\nfile = \"secret\"\nroles = [\"tell\"]\nper_node = true\n";
    std::fs::write(&tokens, nodes).unwrap();
    let fleet = fleet_with(&tokens);
    let (code, said, errors) =
        output(gpuwhy(&["fleet", "token", "--secret", secret.to_str().unwrap(), "--node", "node7"]));
    assert_eq!((code, errors.as_str(), said.trim().len()), (0, "", 64));
    tell(&fleet, "west", "node7", said.trim()).unwrap();
    for (node, token) in [("node8", said.trim()), ("node7", KEY)] {
        let told = tell(&fleet, "west", node, token).unwrap_err();
        assert!(told.contains("401") && told.contains("\"wrong_token\""), "{node}: {told}");
    }
}

#[test]
fn tokens_are_replaced_while_the_fleet_runs() {
    let place = tempfile::tempdir().unwrap();
    let tokens = place.path().join("tokens.toml");
    let tells = |name: &str, more: &str| {
        token(name, &format!("the-{name}-token-of-nodes"), &format!("roles = [\"tell\"]\n{more}"))
    };
    let old = tells("old", "until = \"2999-01-01T00:00:00Z\"");
    std::fs::write(&tokens, &old).unwrap();
    let fleet = fleet_with(&tokens);
    let told = |name: &str| tell(&fleet, "west", "node7", &format!("the-{name}-token-of-nodes"));
    assert!(told("old").is_ok() && told("new").is_err());
    std::fs::write(&tokens, old + &tells("new", "")).unwrap();
    wait_until("the new token is known", || told("new").ok());
    told("old").unwrap();
    std::fs::write(&tokens, tells("old", "until = \"2001-01-01T00:00:00Z\"") + &tells("new", "")).unwrap();
    wait_until("the old token has expired", || told("old").err().filter(|why| why.contains("401")));
    std::fs::write(&tokens, "[[token]]\nname = \"newest\"\n").unwrap();
    let written = Instant::now();
    wait_until("the file is looked at again", || (written.elapsed() > Duration::from_secs(2)).then_some(()));
    told("new").unwrap();
}

#[test]
fn a_file_of_tokens_that_is_wrong_is_told_with_its_line_and_column() {
    let place = tempfile::tempdir().unwrap();
    let tokens = place.path().join("tokens.toml");
    let good = token("a", KEY, "roles = [\"tell\"]");
    for (text, words) in [
        ("".to_owned(), "line 1, column 1: there is no token in the file"),
        ("[[token]\n".to_owned(), "line 1, column 9"),
        (good.clone() + "cluster = \"west\"\n", "line 5, column 1: unknown field `cluster`"),
        (token("a", "short", "roles = [\"tell\"]"), "line 3, column 9: a token has at least 16 characters"),
        (token("a", KEY, "roles = [\"rule\"]"), "line 4, column 10: unknown variant `rule`"),
        (good.clone() + "until = \"soon\"\n", "line 5, column 9"),
        (good.clone() + &token("b", KEY, "roles = [\"ask\"]"), "line 7, column 9: this is the token of \"a\""),
    ] {
        std::fs::write(&tokens, &text).unwrap();
        let serve = ["fleet", "serve", "--addr", "127.0.0.1:0", "--tokens", tokens.to_str().unwrap()];
        let (code, said, errors) = output(gpuwhy(&serve));
        let is_told = errors.contains(words) && errors.contains("tokens.toml");
        assert!(code == 1 && said.is_empty() && is_told, "{text}{code} {errors}");
    }
    let (code, _, errors) = output(gpuwhy(&["fleet", "serve", "--tokens", "/nowhere/tokens.toml"]));
    assert!(code == 1 && errors.contains("/nowhere/tokens.toml"), "{errors}");
    let (code, _, errors) = output(gpuwhy(&["fleet", "token", "--secret", "/nowhere/secret", "--node", "a"]));
    assert!(code == 1 && errors.contains("/nowhere/secret"), "{errors}");
}
