//! Real tracers on hosts of their own, which are network namespaces here, with the ranks of one job: how soon the fleet names the
//! rank that becomes late, and whether it names anybody while nobody is.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuwhy_store::{Limits, Trace};
use serde_json::{Value, json};

use super::super::{Place, figure};
use crate::docs;

const NODES: u32 = 4;
const RANKS_OF_NODE: u32 = 4;
const RANKS: u32 = NODES * RANKS_OF_NODE;
const ROUNDS: u32 = 10;
const HEALTHY: u32 = 5;
/// From this operation on a rank is late by so much.
const LATE_FROM: u32 = 100;
const LATE_MS: u32 = 30;
/// Operations after which an iteration's time is known.
const SOME: u32 = 15;

const SECONDS: u32 = 30;
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "only-for-this-benchmark-0123456789";
const ADDRESS: &str = "10.78.0.1:9470";

pub fn run(place: &Place, binary: &Path) -> Result<Value> {
    let hosts = Hosts::new()?;
    let rounds = if place.quick { 1 } else { ROUNDS };
    let late = (0..rounds)
        .map(|round| one(place, binary, &hosts, Some(1 + round % (RANKS - 1))))
        .collect::<Result<Vec<_>>>()?;
    let healthy = if place.quick { 1 } else { HEALTHY };
    let healthy = (0..healthy).map(|_| one(place, binary, &hosts, None)).collect::<Result<Vec<_>>>()?;
    Ok(json!({ "nodes": NODES, "ranks": RANKS, "late_ms": LATE_MS, "late": late, "healthy": healthy }))
}

/// A job of which this rank becomes late, if one is to.
fn one(place: &Place, binary: &Path, hosts: &Hosts, late: Option<u32>) -> Result<Value> {
    let folder = tempfile::tempdir_in(&place.dir)?;
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN)?;
    std::fs::write(folder.path().join("job"), unique_id())?;
    let mut serve = hosts.command(0, binary);
    serve.args(["fleet", "serve", "--insecure-no-tls", "--audit-log", "/dev/null", "--addr", ADDRESS]);
    serve.arg("--data").arg(folder.path().join("fleet")).arg("--token-file");
    let _fleet = Ending(serve.arg(&token).stderr(Stdio::null()).spawn().context("start the fleet")?);
    let nodes = (0..NODES)
        .map(|node| start_node(place, binary, hosts, folder.path(), node, late))
        .collect::<Result<Vec<_>>>()?;
    let ask = |question: &[&str]| -> Result<Value> {
        let mut command = hosts.command(0, binary);
        command
            .args(["fleet", "ask", "--json", "--fleet", &format!("http://{ADDRESS}"), "--token-file"])
            .arg(&token)
            .args(question);
        let done = command.output()?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(serde_json::from_slice(&done.stdout)?)
    };
    let file = folder.path().join(format!("gpuwhy-{}.db", late.unwrap_or(0) / RANKS_OF_NODE));
    let rank = late.unwrap_or(0);
    let is_far = format!("SELECT count(*) FROM nccl_events WHERE rank = {rank} AND seq = {}", LATE_FROM + 8 * SOME);
    let begun = Instant::now();
    while number(&file, &is_far).is_none_or(|count| count < 1.0) {
        ensure!(begun.elapsed() < PATIENCE, "the job does not get on");
        thread::sleep(Duration::from_millis(200));
    }
    let events = ask(&["events", "--limit", "10000"])?;
    let became_late =
        events["events"].as_array().into_iter().flatten().filter(|event| event["event"] == "rank-became-late");
    let mut named: Vec<&Value> = became_late.collect();
    named.reverse();
    let Some(rank) = late else {
        drop(nodes);
        return Ok(json!({ "named": named.len() }));
    };
    let asked = |seq: u32| {
        number(&file, &format!("SELECT min(timestamp_ns) FROM nccl_events WHERE rank = {rank} AND seq = {seq}"))
    };
    let first = asked(LATE_FROM).context("the late operation is not in the trace")?;
    let iteration = (asked(LATE_FROM + SOME).context("no later operation")? - first) / f64::from(SOME) / 1e9;
    let found_after = named.first().map(|event| (event["at_ns"].as_f64().unwrap_or(f64::NAN) - first) / 1e9);
    let is_right = |event: &&Value| event["rank"] == rank && event["node"] == format!("node{}", rank / RANKS_OF_NODE);
    drop(nodes);
    let run = json!({
        "rank": rank, "found_after_s": found_after, "iteration_s": iteration,
        "is_soon": found_after.is_some_and(|after| after <= 1.0 + 2.0 * iteration),
        "is_right": named.len() == 1 && named.iter().all(is_right),
    });
    println!("{run}");
    Ok(run)
}

fn start_node(
    place: &Place,
    binary: &Path,
    hosts: &Hosts,
    folder: &Path,
    node: u32,
    late: Option<u32>,
) -> Result<Ending> {
    let mut command = hosts.command(1 + node, binary);
    command.args([
        "trace",
        "--live",
        "never",
        "--fleet",
        &format!("http://{ADDRESS}"),
        "--node",
        &format!("node{node}"),
        "--out",
    ]);
    command.arg(folder.join(format!("gpuwhy-{node}.db"))).env("GPUWHY_FLEET_TOKEN", TOKEN);
    command
        .args(["--", "timeout", "-s", "KILL", &SECONDS.to_string(), "python3", "-B"])
        .arg(program())
        .arg(place.testbed.libcuda());
    command.arg(SECONDS.to_string()).arg(place.testbed.libnccl()).arg(folder.join("job"));
    let late_rank = late.unwrap_or(RANKS);
    let numbers = [RANKS, node * RANKS_OF_NODE, RANKS_OF_NODE, late_rank, LATE_MS, LATE_FROM];
    command.args(numbers.map(|number| number.to_string())).env("LD_LIBRARY_PATH", place.testbed.dir());
    command.env("FAKE_CUDA_DEVICES", RANKS_OF_NODE.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Ending(command.spawn().context("start a tracer")?))
}

fn program() -> PathBuf {
    docs::root().join("crates/gpuwhy/tests/programs/rank_of_job.py")
}

fn unique_id() -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    (0..16).flat_map(|word| super::noise(now ^ word).to_le_bytes()).collect()
}

fn number(file: &Path, sql: &str) -> Option<f64> {
    let answer = Trace::open(file).ok()?.query(sql, &Limits::default()).ok()?;
    Some(figure(answer.rows.first()?, 0)).filter(|number| number.is_finite())
}

/// A process that is ended when this is dropped. A tracer ends as with Ctrl-C, and its command with it.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let _ = self.0.wait();
    }
}

/// Hosts with a switch between them; the first one has the fleet.
struct Hosts(Vec<String>);

impl Hosts {
    fn new() -> Result<Self> {
        let own = std::process::id();
        let hosts = Self((0..=NODES).map(|number| format!("gpuwhy-{own}-{number}")).collect());
        for host in &hosts.0 {
            ip(&format!("netns add {host}"))?;
            ip(&format!("-n {host} link set lo up"))?;
        }
        let fleet = &hosts.0[0];
        ip(&format!("-n {fleet} link add switch type bridge"))?;
        ip(&format!("-n {fleet} address add 10.78.0.1/24 dev switch"))?;
        ip(&format!("-n {fleet} link set switch up"))?;
        for (number, host) in hosts.0.iter().enumerate().skip(1) {
            ip(&format!("-n {fleet} link add port{number} type veth peer name cable netns {host}"))?;
            ip(&format!("-n {fleet} link set port{number} master switch up"))?;
            ip(&format!("-n {host} address add 10.78.0.{}/24 dev cable", 10 + number))?;
            ip(&format!("-n {host} link set cable up"))?;
        }
        Ok(hosts)
    }

    fn command(&self, host: u32, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/var/run/netns/{}", self.0[host as usize])).arg(program);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", host]).status();
        }
    }
}

fn ip(words: &str) -> Result<()> {
    let status = Command::new("ip").args(words.split_whitespace()).status().context("run ip")?;
    ensure!(status.success(), "ip {words}: {status}");
    Ok(())
}
