//! `gpuwhy merge`: ranks that were traced apart, with clocks that are seconds off, are one job again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_store::apart::{forget, on_another_host};
use gpuwhy_testbed::{SCENARIOS, Setup, Undisturbed, left_out};
use serde_json::Value;
use support::{Finished, Place, Tracing, gpuwhy, needs_root, output};

const SECOND_NS: i64 = 1_000_000_000;

/// Two ranks, each traced by a tracer of its own into a file of its own.
fn traced_apart(place: &Place, healthy: bool) -> [PathBuf; 2] {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "late-rank").unwrap();
    let setup = Setup { seed: 1, threads: 1, background: false, healthy, duration: Duration::from_secs(3) };
    let mut running = scenario.start(&place.testbed, &setup).unwrap();
    let pids = running.pids();
    let files = [0, 1].map(|rank| place.dir.path().join(format!("rank{rank}.db")));
    let trace = |(pid, file): (&u32, &PathBuf)| {
        let pid = pid.to_string();
        let all = ["trace", "--out", file.to_str().unwrap(), "-p", &pid];
        let mut tracing = Tracing::start(gpuwhy(&all), file.clone());
        tracing.wait_ready();
        tracing
    };
    let tracers: Vec<Tracing> = pids.iter().zip(&files).map(trace).collect();
    assert_eq!(tracers.len(), 2, "{pids:?}");
    running.go().unwrap();
    running.finish().unwrap();
    for tracing in tracers {
        assert!(tracing.wait_finished().0.success());
    }
    // A process is traced with those that it started.
    forget(&files[0], pids[1]).unwrap();
    files
}

fn merged(place: &Place, files: &[PathBuf]) -> (PathBuf, String) {
    let out = place.dir.path().join("merged.db");
    let mut arguments = vec!["merge", "-o", out.to_str().unwrap()];
    arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
    let (code, _, said) = output(gpuwhy(&arguments));
    assert_eq!(code, 0, "{said}");
    (out, said)
}

fn explained(file: &Path) -> Value {
    let (code, said, log) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--json"]));
    assert_eq!(code, 0, "{log}");
    serde_json::from_str(&said).unwrap()
}

#[test]
fn root_the_late_rank_of_another_host_is_named_although_its_clock_is_off() {
    needs_root();
    for off_ns in [-4 * SECOND_NS, 5 * SECOND_NS] {
        let (place, machine) = (Place::new(), Undisturbed::since_now());
        let files = traced_apart(&place, false);
        on_another_host(&files[1], "node-b", off_ns).unwrap();
        let (out, said) = merged(&place, &files);
        assert!(said.contains("node-b: its clock was"), "{said}");
        let explanation = explained(&out);
        let is_named = is_named(&explanation, &out).then_some(()).ok_or_else(|| format!("{said}{explanation:#}"));
        machine.expect("a late rank of another host", is_named);
        let gpus: Vec<&Value> = explanation["gpus"].as_array().unwrap().iter().map(|gpu| &gpu["host"]).collect();
        assert!(gpus.len() == 2 && gpus.contains(&&Value::from("node-b")), "{gpus:?}");
    }
}

/// The late rank comes first, with its host and its own cause by that host's records.
fn is_named(explanation: &Value, file: &Path) -> bool {
    let first = &explanation["findings"][0];
    let summary = first["summary"].as_str().unwrap();
    // Beside busy neighbours it waits for a CPU longer than it computes.
    let is_queued = is_queued(file, "other-rank", 5);
    let own_cause =
        first["where"].to_string().contains("compute_more") || (is_queued && summary.contains("waiting for a CPU"));
    first["cause"] == "straggler" && first["culprit"]["host"] == "node-b" && summary.contains("on node-b") && own_cause
}

/// Whether a rank's thread waits for a CPU for more than one of so many parts of its time, by the kernel's own clocks.
fn is_queued(file: &Path, thread: &str, parts: u32) -> bool {
    let queued = format!(
        "SELECT coalesce(sum(runqueue_ns) * {parts} > sum(wall_ns), 0) FROM thread_times WHERE comm = '{thread}'"
    );
    Finished::open(file, Vec::new()).number(&queued) == 1
}

#[test]
fn root_balanced_ranks_of_two_hosts_have_no_straggler() {
    needs_root();
    let (place, machine) = (Place::new(), Undisturbed::since_now());
    let files = traced_apart(&place, true);
    on_another_host(&files[1], "node-b", 3 * SECOND_NS).unwrap();
    let (out, said) = merged(&place, &files);
    let explanation = explained(&out);
    let is_grave = |one: &Value| one["cause"] == "straggler" && one["severity"] != "low";
    let is_balanced = !explanation["findings"].as_array().unwrap().iter().any(is_grave);
    // Half of what makes a rank that is late a grave matter.
    if !is_balanced && ["scenario", "other-rank"].iter().any(|thread| is_queued(&out, thread, 40)) {
        return left_out("balanced ranks of two hosts: one of them waits for a CPU");
    }
    let is_so = is_balanced.then_some(()).ok_or_else(|| format!("{said}{explanation:#}"));
    machine.expect("balanced ranks of two hosts", is_so);
}

#[test]
fn root_a_trace_of_another_job_is_merged_and_blames_nobody_across_hosts() {
    needs_root();
    let place = Place::new();
    let [one, _] = traced_apart(&place, false);
    let other = Place::new();
    let [stranger, _] = traced_apart(&other, false);
    on_another_host(&stranger, "node-c", -86_400 * SECOND_NS).unwrap();
    let (out, said) = merged(&place, &[one, stranger]);
    assert!(said.contains("node-c: no collective operation in common"), "{said}");
    let explanation = explained(&out);
    let found: Vec<&Value> = explanation["findings"].as_array().unwrap().iter().map(|one| &one["cause"]).collect();
    let across = ["straggler", "collective-hang"].map(Value::from);
    assert!(found.iter().all(|cause| !across.contains(cause)), "{found:?} {explanation:#}");
}

#[test]
fn what_cannot_be_merged_is_a_clear_error() {
    let place = Place::new();
    let missing = place.dir.path().join("none.db");
    let out = place.dir.path().join("merged.db");
    let merge = |files: &[&Path]| {
        let mut arguments = vec!["merge", "-o", out.to_str().unwrap()];
        arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
        output(gpuwhy(&arguments))
    };
    let (code, _, said) = merge(&[&missing, &missing]);
    assert!(code == 1 && said.contains("there is no file") && !out.exists(), "{said}");
    let (code, _, said) = merge(&[&missing]);
    assert_eq!(code, 2, "{said}");
    std::fs::write(&out, "mine").unwrap();
    let (code, _, said) = merge(&[&missing, &missing]);
    assert!(code == 1 && said.contains("is there already"), "{said}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}
