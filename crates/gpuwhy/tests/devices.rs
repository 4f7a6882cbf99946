//! What GPUs say of themselves: a trace keeps it, and the GPU's ledger believes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use gpuwhy_testbed::{LaunchLoop, left_out};
use serde_json::Value;
use support::{Finished, Place, Tracing, gpuwhy, needs_root, number_so_far, output, wait_until};

/// A program that launches now and then on a GPU that says this of itself.
fn traced(place: &Place, fake_nvml: &str) -> Finished {
    traced_with(place, fake_nvml, |_| String::new()).1
}

/// With what that GPU says of the process, which is told too.
fn traced_with(place: &Place, fake_nvml: &str, memory_of: fn(u32) -> String) -> (u32, Finished) {
    let mut running = LaunchLoop::new(&place.testbed).rate(500.0).start().unwrap();
    let pid = running.pid();
    let file = place.file();
    let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "-p", &pid.to_string()]);
    command.env("LD_LIBRARY_PATH", place.testbed.dir()).env("FAKE_NVML", fake_nvml);
    command.env("FAKE_NVML_MEMORY", memory_of(pid));
    let mut tracing = Tracing::start(command, file);
    tracing.wait_ready();
    running.go().unwrap();
    running.slice(Duration::from_secs(4)).unwrap();
    running.finish().unwrap();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{status}");
    (pid, finished)
}

#[test]
fn root_what_processes_have_of_a_gpus_memory_and_what_of_it_is_in_use_is_kept() {
    needs_root();
    let place = Place::new();
    let (pid, finished) = traced_with(&place, "25 2", |pid| format!("{pid} 3000000000"));
    let value = |name: &str, device: &str| {
        let of = format!("FROM sample_values WHERE name = '{name}' AND device = '{device}'");
        let distinct = finished.number(&format!("SELECT count(DISTINCT value) {of}"));
        (distinct, finished.number(&format!("SELECT CAST(round(1000 * max(value)) AS INTEGER) {of}")))
    };
    assert_eq!(value("gpu.process.memory", &format!("0/{pid}")), (1, 3_000_000_000_000));
    let of_others = "SELECT count(DISTINCT device) FROM sample_values WHERE name = 'gpu.process.memory'";
    assert_eq!(finished.number(of_others), 1, "what is not known is not told");
    // As numbered in NVML: percent of the time, and MiB in a second.
    assert_eq!(value("gpu.sm.utilization", "0"), (1, 20));
    assert_eq!(value("gpu.sm.occupancy", "0"), (1, 30));
    assert_eq!(value("gpu.tensor.utilization", "0"), (1, 50));
    assert_eq!(value("gpu.memory.bandwidth", "0"), (1, 100));
    assert_eq!(value("gpu.pcie.sent", "0"), (1, 20 * 1_048_576_000));
    assert_eq!(finished.number("SELECT count(*) FROM sample_values WHERE name LIKE 'gpu.nvlink.%'"), 0);
}

fn explained(place: &Place) -> Value {
    let (code, said, log) = output(gpuwhy(&["explain", place.file().to_str().unwrap(), "--phase", "all", "--json"]));
    assert_eq!(code, 0, "{log}");
    serde_json::from_str(&said).unwrap()
}

fn ledger(place: &Place) -> Value {
    explained(place)["gpus"][0].clone()
}

fn found(explanation: &Value, cause: &str) -> Option<Value> {
    explanation["findings"].as_array().unwrap().iter().find(|finding| finding["cause"] == cause).cloned()
}

/// The kernel's log, if it keeps what is written there.
fn kernel_log() -> Option<File> {
    let mut options = OpenOptions::new();
    let mut read = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    read.seek(SeekFrom::End(0)).ok()?;
    let mut log = OpenOptions::new().write(true).open("/dev/kmsg").ok()?;
    let mark = format!("gpuwhy: a test of process {}", std::process::id());
    log.write_all(format!("<6>{mark}\n").as_bytes()).ok()?;
    let mut record = [0; 8192];
    let mut records = std::iter::from_fn(|| read.read(&mut record).ok().map(|length| record[..length].to_vec()));
    records.any(|record| String::from_utf8_lossy(&record).contains(&mark)).then_some(log)
}

const HEAT: u32 = 0x20;
const POWER_CAP: u32 = 0x04;

#[test]
fn root_a_gpu_that_is_held_down_by_heat_is_told_and_one_at_its_power_limit_is_not() {
    needs_root();
    let place = Place::new();
    traced(&place, &format!("95 1 {HEAT} 990 1980"));
    let explanation = explained(&place);
    let finding = found(&explanation, "gpu-throttled").unwrap_or_else(|| panic!("{explanation:#}"));
    assert_eq!(finding["severity"], "high", "{finding:#}");
    let summary = finding["summary"].as_str().unwrap();
    assert!(
        summary.contains("GPU 0") && summary.contains("heat") && summary.contains("50 % of its speed"),
        "{summary}"
    );
    let place = Place::new();
    traced(&place, &format!("95 1 {POWER_CAP} 1500 1980"));
    assert_eq!(found(&explained(&place), "gpu-throttled"), None);
}

#[test]
fn root_a_fault_in_the_kernels_log_is_told_with_the_process_that_suffers() {
    needs_root();
    // Some kernels take no words of programs.
    let Some(mut log) = kernel_log() else {
        return left_out("faults of GPUs: nobody may write to the kernel's log here");
    };
    let place = Place::new();
    let mut running = LaunchLoop::new(&place.testbed).rate(500.0).start().unwrap();
    let pid = running.pid();
    let mut tracing = place.trace(&["-p", &pid.to_string()]);
    tracing.wait_ready();
    running.go().unwrap();
    let stored = "SELECT count(*) FROM sample_values WHERE name = 'host.memory.available'";
    wait_until("samplers are at work", || number_so_far(&place.file(), stored).filter(|count| *count > 0));
    let line = format!("<3>NVRM: Xid (PCI:0000:65:00): 79, pid={pid}, name=fake, GPU has fallen off the bus.\n");
    log.write_all(line.as_bytes()).unwrap();
    running.slice(Duration::from_secs(1)).unwrap();
    let finding = wait_until("the fault is told", || found(&explained(&place), "gpu-fault"));
    assert_eq!((&finding["severity"], &finding["victim"]["pid"]), (&"high".into(), &pid.into()), "{finding:#}");
    let summary = finding["summary"].as_str().unwrap();
    assert!(summary.contains("Xid 79 (it has fallen off the bus)"), "{summary}");
    running.finish().unwrap();
    tracing.wait_finished();
}

#[test]
fn root_how_much_a_gpu_works_by_its_own_word_is_kept_and_believed() {
    needs_root();
    let place = Place::new();
    let finished = traced(&place, "25 1");
    let said = |what: &str| {
        let of = "FROM sample_values WHERE device = '0' AND name";
        finished.number(&format!("SELECT CAST(round(1000 * {what}) AS INTEGER) {of} = 'gpu.utilization'"))
    };
    // Five in each of four seconds; those of the last one may come too late.
    assert!(said("count(*)") >= 12_000, "{}", said("count(*)"));
    assert_eq!((said("min(value)"), said("max(value)")), (250, 250));
    assert_eq!(said("(count(*) - count(DISTINCT at_ns))"), 0, "nothing twice");
    assert_eq!(
        finished.number("SELECT CAST(max(value) AS INTEGER) FROM sample_values WHERE name = 'gpu.processes'"),
        1
    );
    let used = "SELECT CAST(max(value) AS INTEGER) FROM sample_values WHERE name = 'gpu.memory.used'";
    assert_eq!(finished.number(used), 4 << 30);
    let gpu = ledger(&place);
    let idle = gpu["idle_share"].as_f64().unwrap();
    assert!(gpu["known_by"] == "explicit" && (idle - 0.75).abs() < 0.02, "{gpu:#}");
    assert_eq!(gpu["unknown_ns"], 0, "{gpu:#}");
}

#[test]
fn root_a_gpu_that_somebody_else_uses_too_says_nothing_about_this_program() {
    needs_root();
    let place = Place::new();
    traced(&place, "25 2");
    let gpu = ledger(&place);
    assert_ne!(gpu["known_by"], "explicit", "{gpu:#}");
}

#[test]
fn root_a_library_that_cannot_say_anything_is_no_trouble() {
    needs_root();
    let place = Place::new();
    let finished = traced(&place, "none");
    assert_eq!(finished.number("SELECT count(*) FROM sample_values WHERE name LIKE 'gpu.%'"), 0);
    assert_ne!(ledger(&place)["known_by"], "explicit");
}
