//! What GPUs say of themselves: a trace keeps it, and the GPU's ledger believes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use gpuwhy_testbed::{LaunchLoop, RunningLoop, left_out};
use serde_json::Value;
use support::{Finished, Place, Queued, Tracing, gpuwhy, needs_root, number_so_far, output, wait_until};

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

/// A trace of a program on a GPU that says this of itself in a file, which the test may replace.
struct Watched {
    place: Place,
    running: RunningLoop,
    tracing: Tracing,
    said: String,
}

impl Watched {
    fn start(fake_nvml: &str, said: &str) -> Self {
        let place = Place::new();
        let running = LaunchLoop::new(&place.testbed).rate(500.0).start().unwrap();
        let (file, pid) = (place.file(), running.pid().to_string());
        let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "-p", &pid]);
        command.env("LD_LIBRARY_PATH", place.testbed.dir()).env("FAKE_NVML", fake_nvml);
        command.env("FAKE_NVML_FILE", place.dir.path().join("said"));
        command.env("FAKE_NVML_MEMORY", format!("{pid} 3000000000"));
        let mut watched = Self { tracing: Tracing::start(command, file), place, running, said: String::new() };
        watched.say(said);
        watched.tracing.wait_ready();
        watched.running.go().unwrap();
        let looks = "SELECT count(*) FROM sample_values WHERE name = 'gpu.lost'";
        wait_until("it was asked", || number_so_far(&watched.place.file(), looks).filter(|looks| *looks >= 2));
        watched
    }

    /// From now on, it also says this. What is said last counts.
    fn say(&mut self, said: &str) {
        self.said = format!("{}\n{said}", self.said);
        let new = self.place.dir.path().join("new");
        std::fs::write(&new, &self.said).unwrap();
        std::fs::rename(&new, self.place.dir.path().join("said")).unwrap();
    }

    fn faults(&self) -> Vec<Value> {
        let explanation = explained(&self.place);
        let findings = explanation["findings"].as_array().unwrap();
        findings.iter().filter(|finding| finding["cause"] == "gpu-fault").cloned().collect()
    }

    /// The fault with these words, and how long it took to be found, as far as the tracer had a CPU whenever it wanted one.
    fn found(&self, words: &str) -> (Value, Duration) {
        let mut queued = Queued::since_now(self.tracing.pid());
        let since = Instant::now();
        let fault = wait_until(words, || {
            queued.look();
            let has_words = |fault: &Value| fault["summary"].as_str().is_some_and(|summary| summary.contains(words));
            self.faults().into_iter().find(has_words)
        });
        (fault, since.elapsed().saturating_sub(queued.total()))
    }

    fn end(self) {
        self.running.finish().unwrap();
        self.tracing.wait_finished();
    }
}

const HEALTHY: &str = "pcie_generation 5 pcie_most_generation 5 pcie_width 16 pcie_most_width 16
    link0_up 1 link0_replay 7 link0_recovery 0 link0_crc_flit 3 link0_crc_data 0
    link1_up 0 link2_up 1 rows_pending 0 rows_failed 0 pages_pending 0";

#[test]
fn root_what_breaks_of_a_gpu_is_found_within_two_seconds_with_who_suffers() {
    needs_root();
    let mut watched = Watched::start("95 1", HEALTHY);
    assert_eq!(watched.faults(), Vec::<Value>::new(), "errors from before, and a link without anybody, are nothing");
    for (said, words, severity) in [
        ("pcie_width 4", "reaches the host over 4 lanes of 16", "high"),
        ("pcie_generation 4", "over a link of generation 4, and could at 5", "medium"),
        ("link0_replay 9 link0_recovery 1", "(link 0: 2 packets sent again, 1 times set up anew)", "medium"),
        ("link2_up 0", "link 2: down", "high"),
        ("rows_pending 1", "waits for a reset to replace a part of its memory", "medium"),
        ("rows_failed 1", "could not replace a part of its memory", "high"),
        ("lost 1", "fell off the bus", "high"),
    ] {
        watched.say(said);
        let (fault, after) = watched.found(words);
        assert_eq!((&fault["severity"], &fault["victim"]["pid"]), (&severity.into(), &watched.running.pid().into()));
        assert!(after < Duration::from_secs(2), "{words}: after {after:?}");
    }
    watched.end();
}

#[test]
fn root_a_gpu_that_vanishes_between_two_looks_is_lost() {
    needs_root();
    let mut watched = Watched::start("95 1", HEALTHY);
    watched.say("gone 1");
    assert_eq!(watched.found("fell off the bus").0["severity"], "high");
    watched.end();
}

#[test]
fn root_an_idle_gpu_lowers_the_generation_of_its_link_on_purpose() {
    needs_root();
    let mut watched = Watched::start("95 1", HEALTHY);
    watched.say("busy 3 pcie_generation 1");
    let idle = "SELECT count(*) FROM sample_values WHERE name = 'gpu.pcie.generation' AND value = 1";
    wait_until("it is idle", || number_so_far(&watched.place.file(), idle).filter(|looks| *looks >= 6));
    assert_eq!(watched.faults(), Vec::<Value>::new());
    watched.end();
}

#[test]
fn root_slices_of_a_gpu_are_told_apart_with_their_memory_and_processes() {
    needs_root();
    let watched = Watched::start("95 2", "slices 2");
    let pid = watched.running.pid();
    let slice = |number: u32| format!("MIG-00000000-0000-4000-8000-00000000000{number}");
    let gpu = "GPU-00000000-0000-4000-8000-000000000000";
    let value = |name: &str, device: &str| {
        let sql = format!(
            "SELECT CAST(max(value) AS INTEGER) FROM sample_values WHERE name = '{name}' AND device = '{device}'"
        );
        wait_until(name, || number_so_far(&watched.place.file(), &sql))
    };
    for number in [1, 2] {
        let part = format!("{gpu}/{}", slice(number));
        assert_eq!(value("gpu.slice.gpu_instance", &part), i64::from(number));
        assert_eq!(value("gpu.slice.compute_instance", &part), 0);
        assert_eq!(value("gpu.slice.memory.used", &slice(number)), i64::from(number) << 30);
        assert_eq!(value("gpu.slice.memory.total", &slice(number)), 8 << 30);
        assert_eq!(value("gpu.slice.processes", &slice(number)), 1);
    }
    assert_eq!(value("gpu.processes", "0"), 2);
    assert_eq!(value("gpu.process.memory", &format!("{}/{pid}", slice(2))), 3_000_000_000);
    let of_others = "SELECT count(DISTINCT device) FROM sample_values WHERE name = 'gpu.process.memory'";
    assert_eq!(number_so_far(&watched.place.file(), of_others), Some(1), "the GPU itself has none of it");
    watched.end();
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
