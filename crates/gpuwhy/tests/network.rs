//! Connections to another host, which is a network namespace here: a link that loses packets is told from a server that is late.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{Finished, Place, needs_root, output};

const CLIENT: &str = "10.77.0.1";
const SERVER: &str = "10.77.0.2";
const PORT: &str = "9000";
const SECONDS: &str = "5";
/// What arrives before a link goes bad: ten steps.
const GOOD_KBYTES: u32 = 200;
/// Segments that are sent again on a good link before anybody has said that they came.
const MOST_ASKED_AGAIN: i64 = 4;

/// Two hosts with a cable between them.
struct Hosts {
    client: String,
    server: String,
}

impl Hosts {
    fn new() -> Self {
        needs_root();
        let own = std::process::id();
        let hosts = Self { client: format!("gpuwhy-{own}-a"), server: format!("gpuwhy-{own}-b") };
        let Self { client, server } = &hosts;
        run(&format!("ip netns add {client}"));
        run(&format!("ip netns add {server}"));
        run(&format!("ip -n {client} link add cable type veth peer name cable netns {server}"));
        for (host, address) in [(client, CLIENT), (server, SERVER)] {
            run(&format!("ip -n {host} address add {address}/24 dev cable"));
            run(&format!("ip -n {host} link set cable up"));
            run(&format!("ip -n {host} link set lo up"));
        }
        hosts
    }

    /// After some steps on a good link, so many of a hundred packets do not arrive at the client. A connection that has not
    /// learnt yet how long answers take would stand still for seconds after the first of them.
    fn lose(&self, percent: u32) {
        let nft = format!("nsenter --net=/var/run/netns/{} nft", self.client);
        run(&format!("{nft} add table ip bad"));
        run(&format!("{nft} add chain ip bad link {{ type filter hook input priority 0 ; }}"));
        run(&format!(
            "{nft} add rule ip bad link tcp sport {PORT} quota over {GOOD_KBYTES} kbytes numgen random mod 100 < {percent} drop"
        ));
    }

    fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/var/run/netns/{host}")).arg(program);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [&self.client, &self.server] {
            let _ = Command::new("ip").args(["netns", "delete", host]).status();
        }
    }
}

fn run(words: &str) {
    let mut words = words.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words.clone()).status().unwrap();
    assert!(status.success(), "{words:?}: {status}");
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// A server that answers after so many milliseconds; it ends when dropped.
struct Server(Child);

impl Server {
    fn start(hosts: &Hosts, late_ms: u32) -> Self {
        let mut command = hosts.command(&hosts.server, "python3");
        command.arg("-B").arg(program("serves_batches.py")).args([SERVER, PORT, &late_ms.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program that uses the GPU says on the client's host, where it is traced.
fn traced(hosts: &Hosts, place: &Place, name: &str, arguments: &[&str]) -> String {
    let mut command = hosts.command(&hosts.client, env!("CARGO_BIN_EXE_gpuwhy"));
    command.args(["trace", "--out", place.file().to_str().unwrap(), "--", "python3", "-B"]);
    command.arg(program(name)).arg(place.testbed.libcuda()).args(arguments);
    let (code, said, log) = output(command);
    assert_eq!(code, 0, "{log}");
    said
}

fn explanation(place: &Place) -> Value {
    let (code, said, log) = output(support::gpuwhy(&["explain", place.file().to_str().unwrap(), "--json"]));
    assert_eq!(code, 0, "{log}");
    serde_json::from_str(&said).unwrap()
}

/// What is told of a client of such a server, and its trace.
fn explained(hosts: &Hosts, place: &Place, late_ms: u32) -> (Value, Finished) {
    let _server = Server::start(hosts, late_ms);
    traced(hosts, place, "asks_another_host.py", &[SECONDS, SERVER, PORT]);
    (explanation(place), Finished::open(&place.file(), Vec::new()))
}

#[test]
fn root_a_link_that_loses_packets_is_to_blame_and_not_the_server() {
    let (hosts, place) = (Hosts::new(), Place::new());
    hosts.lose(20);
    let (explanation, trace) = explained(&hosts, &place, 1);
    let first = &explanation["findings"][0];
    assert_eq!(first["cause"], "tcp-retransmit", "{explanation:#}");
    assert!(first["culprit"]["detail"].as_str().unwrap().contains(&format!("{SERVER}:{PORT}")), "{first:#}");
    assert!(first["where"][0]["file"].as_str().unwrap().ends_with("asks_another_host.py"), "{first:#}");
    // Whoever ran when the segment was sent again has nothing to do with it.
    let owners =
        trace.rows("SELECT DISTINCT saddr, sport, daddr, comm FROM tcp_events JOIN processes ON id = process_id");
    assert!(!owners.is_empty());
    let cell = |value: &gpuwhy_store::Value| value.to_json().to_string();
    for owner in owners {
        let owner: Vec<String> = owner.iter().map(cell).collect();
        let is_server = owner[..3] == [format!("\"{SERVER}\""), PORT.to_owned(), format!("\"{CLIENT}\"")];
        let is_client = owner[0] == format!("\"{CLIENT}\"") && owner[2] == format!("\"{SERVER}\"");
        assert!((is_server || is_client) && owner[3].contains("python3"), "{owner:?}");
    }
}

#[test]
fn root_a_server_that_is_late_on_a_good_link_is_not_blamed_on_the_network() {
    let (hosts, place) = (Hosts::new(), Place::new());
    let (explanation, trace) = explained(&hosts, &place, 20);
    assert_eq!(explanation["findings"][0]["cause"], "net-wait", "{explanation:#}");
    assert!(found(&explanation, "tcp-retransmit").is_none(), "{explanation:#}");
    // Where nobody has a CPU for long, TCP asks whether something was lost by sending it again.
    let again = trace.number("SELECT count(*) FROM tcp_events");
    assert!(again <= MOST_ASKED_AGAIN, "{again}");
}

/// Two ranks of a job on two hosts: what is told of them, and the process of the second one.
fn explained_ranks(hosts: &Hosts, late_ms: &str) -> (Value, u64) {
    let place = Place::new();
    let libnccl = place.testbed.libnccl();
    let server = format!("/var/run/netns/{}", hosts.server);
    let arguments = ["8", libnccl.to_str().unwrap(), &server, SERVER, PORT, late_ms];
    let second = traced(hosts, &place, "ranks_over_tcp.py", &arguments);
    (explanation(&place), second.trim().parse().unwrap())
}

fn found<'e>(explanation: &'e Value, cause: &str) -> Option<&'e Value> {
    explanation["findings"].as_array().unwrap().iter().find(|finding| finding["cause"] == cause)
}

#[test]
fn root_ranks_whose_packets_are_lost_are_told_with_the_rank_that_sends_them_again() {
    let hosts = Hosts::new();
    hosts.lose(30);
    let (explanation, second) = explained_ranks(&hosts, "0");
    let lossy = found(&explanation, "tcp-retransmit").unwrap_or_else(|| panic!("{explanation:#}"));
    assert_ne!(lossy["severity"], "low", "{lossy:#}");
    // What does not arrive is data of the one, and word to the other that its data arrived: both send again.
    let (detail, pid) = (lossy["culprit"]["detail"].as_str().unwrap(), &lossy["culprit"]["pid"]);
    let is_second = detail.starts_with(&format!("the way from rank 1 to {CLIENT}:")) && *pid == second;
    let is_first = detail == format!("the way from rank 0 to {SERVER}:{PORT}") && *pid != second;
    assert!(is_second || is_first, "{lossy:#}");
}

#[test]
fn root_ranks_that_are_slow_on_a_good_link_are_not_blamed_on_the_network() {
    let (explanation, _) = explained_ranks(&Hosts::new(), "20");
    assert!(found(&explanation, "tcp-retransmit").is_none(), "{explanation:#}");
}

/// Whoever does not read delays its acknowledgements, and TCP asks whether something was lost by sending it again.
#[test]
fn root_segments_that_are_sent_again_although_they_came_are_no_loss() {
    let (hosts, place) = (Hosts::new(), Place::new());
    let said = traced(&hosts, &place, "writes_to_who_does_not_read.py", &[SECONDS]);
    let again: i64 = said.trim().parse().unwrap();
    assert!(again >= 20, "{again}");
    let trace = Finished::open(&place.file(), Vec::new());
    let lost = trace.number("SELECT count(*) FROM tcp_events");
    assert!(lost <= MOST_ASKED_AGAIN, "{lost} of {again}");
}
