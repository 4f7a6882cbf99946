//! A fleet: what tracers of several hosts tell, who holds the others up, and why.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpuwhy_testbed::{LaunchLoop, Undisturbed};
use serde_json::Value;
use support::{Listening, Place, Tracing, gpuwhy, needs_root, number_so_far, output, wait_until};

const NODES: u32 = 3;
const RANKS: u32 = 2 * NODES;
const LATE_RANK: u32 = 3;
/// From this operation on it is late.
const LATE_FROM: u32 = 100;

fn fleet() -> Listening {
    Listening::start(gpuwhy(&["fleet", "serve", "--addr", "127.0.0.1:0"]))
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
    let fleet = Listening::start(gpuwhy(&["fleet", "serve", "--addr", &address]));
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
        (&["fleet", "ask", "findings"], 2, "findings"),
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
