//! What a fleet keeps: through its own death, a full disk and restarts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpuwhy_fleet::{Digest, Part, Worker};
use gpuwhy_outputs::{FleetAddress, Push};
use serde_json::{Value, json};
use support::mounts::Mount;
use support::{LIMIT, Listening, fleet_at, gpuwhy, needs_root, output, wait_until};

const S: u64 = 1_000_000_000;
const RANKS: u32 = 4;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A node whose seconds pass as fast as it tells them. Its first rank is late.
struct Node {
    push: Push,
    began_ns: u64,
    seconds: u64,
}

impl Node {
    fn new(address: &str, name: &str) -> Self {
        let url = format!("http://{address}");
        let address = FleetAddress { url, cluster: "west".to_owned(), node: name.to_owned(), token: None };
        Self { push: Push::new(address), began_ns: now_ns(), seconds: 0 }
    }

    fn second(&mut self) -> bool {
        self.seconds += 1;
        let digests: Vec<Digest> = (0..RANKS).map(|rank| self.digest(rank)).collect();
        self.push.tell(&digests).is_ok()
    }

    fn digest(&self, rank: u32) -> Digest {
        let waits_ns = if rank == 0 { S / 10 } else { S / 2 };
        let part = Part {
            communicator: 7,
            rank,
            ranks: RANKS,
            operations: 20 * self.seconds,
            waited_ns: waits_ns * self.seconds,
            done_ns: self.began_ns + self.seconds * S,
        };
        let labels = [("job".to_owned(), "llm".to_owned())].into();
        let gpu = Some("NVIDIA H200".to_owned());
        let worker = Worker { pid: 100 + rank, comm: "python".to_owned(), device: Some(0), gpu, labels };
        let at_ns = self.began_ns + self.seconds * S;
        Digest {
            at_ns,
            worker,
            steps: 20,
            step_ns: Some(S / 20),
            gpu_idle: 0.25,
            parts: vec![part],
            ..Digest::default()
        }
    }

    /// Until nothing waits to be told any more.
    fn settle(&mut self) {
        let deadline = Instant::now() + 2 * LIMIT;
        while self.push.waiting() > 0 {
            let _ = self.push.tell(&[]);
            std::thread::sleep(Duration::from_millis(20));
            assert!(Instant::now() < deadline, "{} wait", self.push.waiting());
        }
    }
}

fn ask(address: &str, question: &[&str]) -> Value {
    let url = format!("http://{address}");
    let (code, said, errors) = output(gpuwhy(&[&["fleet", "ask", "--json", "--fleet", &url], question].concat()));
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&said).unwrap()
}

fn sql(address: &str, sql: &str) -> Value {
    ask(address, &["sql", sql])["rows"][0][0].clone()
}

#[test]
fn a_fleet_that_is_killed_again_and_again_has_every_second_that_it_acknowledged_once() {
    let data = tempfile::tempdir().unwrap();
    let mut fleet = Listening::start(fleet_at(data.path(), "127.0.0.1:0", &["--rate", "1000000"]));
    let address = fleet.address.clone();
    let mut node = Node::new(&address, "a");
    // Long enough for news to be written several times, and short enough for kills to come before, in between and after.
    for tenths in [3, 31, 104, 7, 52, 110, 2] {
        let until = Instant::now() + Duration::from_millis(100 * tenths);
        while Instant::now() < until {
            node.second();
            std::thread::sleep(Duration::from_millis(10));
        }
        // Dropping it is a kill that nothing can catch.
        drop(fleet);
        node.second();
        fleet = Listening::start(fleet_at(data.path(), &address, &["--rate", "1000000"]));
    }
    node.settle();
    assert_eq!(node.push.lost(), 0);
    fleet.end();
    let fleet = Listening::start(fleet_at(data.path(), &address, &[]));
    let told = sql(&address, "SELECT sum(told_ns) / 1000000000 FROM spans_10s");
    assert_eq!(told, json!(node.seconds * u64::from(RANKS)));
    let steps = sql(&address, "SELECT sum(steps) FROM spans_10s");
    assert_eq!(steps, json!(node.seconds * u64::from(RANKS) * 20));
    assert_eq!(sql(&address, "SELECT count(*) FROM workers"), json!(RANKS));
    let came = sql(&address, "SELECT count(*) FROM events WHERE kind = 'node-came'");
    assert_eq!(came, json!(1), "{:#}", ask(&address, &["events"]));
    fleet.end();
}

#[test]
fn root_a_fleet_whose_disk_is_full_says_what_it_does_not_keep_and_goes_on() {
    needs_root();
    let place = tempfile::tempdir().unwrap();
    let disk = Mount::tmpfs("size=1m", &place.path().join("disk"));
    let fleet = Listening::start(fleet_at(&disk.path().join("data"), "127.0.0.1:0", &["--rate", "1000000"]));
    let mut node = Node::new(&fleet.address, "a");
    let not_kept = || ask(&fleet.address, &["stragglers"])["not_kept"].as_u64().unwrap();
    let deadline = Instant::now() + 2 * LIMIT;
    loop {
        (0..50).for_each(|_| assert!(node.second()));
        if not_kept() > 0 {
            break;
        }
        assert!(Instant::now() < deadline);
    }
    // What is known now is told all the same.
    let said = wait_until("the late rank is told", || {
        (0..3).for_each(|_| assert!(node.second()));
        std::thread::sleep(Duration::from_millis(100));
        let said = ask(&fleet.address, &["stragglers"]);
        (said["stragglers"][0]["rank"] == 0).then_some(said)
    });
    assert_eq!(said["stragglers"].as_array().unwrap().len(), 1, "{said:#}");
    disk.resize("size=64m");
    let before = wait_until("it is kept again", || {
        let before = not_kept();
        node.second();
        (not_kept() == before).then_some(before)
    });
    (0..20).for_each(|_| assert!(node.second()));
    assert_eq!(not_kept(), before);
    fleet.end();
}

#[test]
fn what_is_kept_answers_what_happened_what_changed_and_what_it_costs() {
    let place = tempfile::tempdir().unwrap();
    let (data, rates) = (place.path().join("data"), place.path().join("rates.toml"));
    std::fs::write(&rates, "currency = \"USD\"\n[gpus]\nH200 = 3.6\n").unwrap();
    let rates = ["--rates", rates.to_str().unwrap()];
    let fleet = Listening::start(fleet_at(&data, "127.0.0.1:0", &rates));
    let mut node = Node::new(&fleet.address, "a");
    // Seconds that were over an hour ago: all that are told lie in the past.
    node.began_ns -= 1800 * S;
    let said = wait_until("the late rank is told", || {
        (0..3).for_each(|_| assert!(node.second()));
        std::thread::sleep(Duration::from_millis(100));
        let said = ask(&fleet.address, &["summary"]);
        (said["late"] == 1).then_some(said)
    });
    assert_eq!((&said["workers"], &said["jobs"], &said["nodes"]), (&json!(RANKS), &json!(1), &json!(1)), "{said:#}");
    // While it is known to be late, others are held up.
    (0..20).for_each(|_| assert!(node.second()));
    let ranks = ask(&fleet.address, &["ranks", "--job", "llm"]);
    let since: Vec<bool> = ranks["ranks"].as_array().unwrap().iter().map(|rank| !rank["since_ns"].is_null()).collect();
    assert_eq!(since, [true, false, false, false], "{ranks:#}");
    let address = fleet.address.clone();
    fleet.end();
    // Another process knows it from the folder alone.
    let fleet = Listening::start(fleet_at(&data, &address, &rates));
    let seconds = node.seconds;
    let cost = ask(&address, &["fleet.cluster.get_cost", "--since", "2h"]);
    let total = |name: &str| cost["total"][name].as_f64().unwrap();
    let hours = seconds as f64 * f64::from(RANKS) / 3600.0;
    assert!((total("gpu_hours") - hours).abs() < 1e-6, "{cost:#}");
    assert!((total("idle_money") - hours * 3.6 / 4.0).abs() < 1e-6 && total("held_up_hours") > 0.0, "{cost:#}");
    assert_eq!((&cost["costs"][0]["key"], &cost["currency"]), (&json!("llm"), &json!("USD")), "{cost:#}");
    let changed = ask(&address, &["compare", "--since", "1h", "--by", "job"]);
    assert_eq!(changed["changes"][0]["key"], "llm", "{changed:#}");
    assert_eq!(changed["changes"][0]["now"]["step_ns"], json!(S / 20), "{changed:#}");
    let kinds: Vec<Value> = ask(&address, &["events", "--node", "a"])["events"].as_array().unwrap().clone();
    let kinds: Vec<&str> = kinds.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"rank-became-late") && kinds.contains(&"node-came"), "{kinds:?}");
    let harm = gpuwhy(&["fleet", "ask", "--fleet", &format!("http://{address}"), "sql", "DELETE FROM workers"]);
    let (code, _, errors) = output(harm);
    assert!(code == 1 && errors.contains("only reading"), "{errors}");
    fleet.end();
}

#[test]
fn a_history_that_is_not_to_be_written_is_left_as_it_is_and_said_why() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    std::fs::create_dir(path("newer")).unwrap();
    let newer = rusqlite::Connection::open(path("newer/west.db")).unwrap();
    newer.execute_batch("PRAGMA application_id = 1735423846; PRAGMA user_version = 99; CREATE TABLE x (y)").unwrap();
    std::fs::create_dir(path("other")).unwrap();
    std::fs::write(path("other/west.db"), "what somebody wrote").unwrap();
    std::fs::write(path("file"), "").unwrap();
    std::fs::write(path("rates"), "currency = \"USD\"\n[gpus]\nL4 = \"much\"\n").unwrap();
    let (rates, busy) = (path("rates").to_str().unwrap().to_owned(), path("busy"));
    let fleet = Listening::start(fleet_at(&busy, "127.0.0.1:0", &[]));
    for (data, arguments, words) in [
        ("newer", &[][..], "has version 99"),
        ("other", &[], "is not a history of gpuwhy"),
        ("file", &[], "file"),
        ("busy", &[], "another fleet keeps its history"),
        ("new", &["--max-size", "1MB"], "the least is"),
        ("new", &["--rates", &rates], "line 3"),
        ("new", &["--rates", "/nowhere/rates.toml"], "/nowhere/rates.toml"),
    ] {
        let (code, said, errors) = output(fleet_at(&place.path().join(data), "127.0.0.1:0", arguments));
        assert!(code == 1 && said.is_empty() && errors.contains(words), "{data} {arguments:?}: {code} {errors}");
    }
    assert_eq!(std::fs::read_to_string(path("other/west.db")).unwrap(), "what somebody wrote");
    assert!(!Path::new(&path("new")).exists());
    fleet.end();
}
