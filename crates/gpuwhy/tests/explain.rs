//! `gpuwhy explain` and `gpuwhy demo`: real faults, the real tracer, the right cause and culprit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuwhy_analysis::rules::RULES;
use gpuwhy_store::{KeptExplanation, keep_explanation};
use gpuwhy_testbed::{LaunchLoop, SCENARIOS, Scenario, ScenarioTruth, Setup, Undisturbed, left_out};
use serde_json::Value;
use support::{Place, gpuwhy, needs_root, output, small_trace};

/// Of each run: enough for some hundred steps.
const DURATION: Duration = Duration::from_secs(2);

fn explain(file: &Path, arguments: &[&str]) -> Value {
    let mut all = vec!["explain", file.to_str().unwrap(), "--json"];
    all.extend(arguments);
    let (code, stdout, stderr) = output(gpuwhy(&all));
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// What a scenario did, and what is said about it.
#[derive(Debug)]
struct Run {
    truth: ScenarioTruth,
    explanation: Value,
    neighbours: Neighbours,
}

/// Processes of somebody else that used a CPU during a run, by the kernel's own clocks.
#[derive(Debug)]
struct Neighbours {
    /// Those that are still there.
    there: Vec<u32>,
    /// Whether those that have ended did. Nobody can ask them any more, so that whoever is none of these may be one.
    some_ended: bool,
    known: BTreeSet<u32>,
}

/// The share of a run in which processes use a CPU before anybody speaks of them.
const NOTABLE: f64 = 0.03;

/// Runs a scenario under the tracer with its default budget.
fn run(place: &Place, scenario: &Scenario, healthy: bool) -> Run {
    let before = CpuClocks::now();
    let setup = Setup { seed: 1, threads: 1, background: false, healthy, duration: DURATION };
    let mut running = scenario.start(&place.testbed, &setup).unwrap();
    let pids: Vec<String> = running.pids().iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]).collect();
    let mut arguments = vec!["--budget", "1%"];
    arguments.extend(pids.iter().map(String::as_str));
    let mut tracing = place.trace(&arguments);
    tracing.wait_ready();
    running.go().unwrap();
    let own = cpu_times().into_keys().filter(|pid| is_own(*pid)).collect();
    let truth = running.finish().unwrap();
    let (status, _) = tracing.wait_finished();
    assert!(status.success());
    let neighbours = before.neighbours_until(&CpuClocks::now(), own);
    let explanation = explain(&place.file(), &[]);
    assert_eq!(explain(&place.file(), &["--stored"]), explanation);
    std::fs::remove_file(place.file()).unwrap();
    Run { truth, explanation, neighbours }
}

/// Whether a process is this test or was started by it.
fn is_own(pid: u32) -> bool {
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    std::iter::successors(Some(pid), parent).any(|ancestor| ancestor == std::process::id())
}

/// What the kernel says at a moment of who has had a CPU so far.
struct CpuClocks {
    /// Of all processes that are there, and of the machine.
    processes: HashMap<u32, u64>,
    machine_ns: u64,
    /// Of what this test has started and waited for.
    ended_ns: u64,
}

impl CpuClocks {
    fn now() -> Self {
        // SAFETY: the structure is plain numbers, which the call fills.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
            usage
        };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        let ended_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        Self { processes: cpu_times(), machine_ns: machine_ns(), ended_ns }
    }

    fn neighbours_until(&self, end: &Self, own: BTreeSet<u32>) -> Neighbours {
        let least = DURATION.mul_f64(NOTABLE).as_nanos() as u64;
        let used = |(pid, ns): (&u32, &u64)| (*pid, ns.saturating_sub(self.processes.get(pid).copied().unwrap_or(0)));
        let used: Vec<(u32, u64)> = end.processes.iter().map(used).collect();
        let there = used.iter().filter(|(pid, ns)| *ns > least && !is_own(*pid)).map(|(pid, _)| *pid).collect();
        let by_known = used.iter().map(|(_, ns)| ns).sum::<u64>() + (end.ended_ns - self.ended_ns);
        let some_ended = (end.machine_ns - self.machine_ns).saturating_sub(by_known) > least;
        Neighbours { there, some_ended, known: used.into_iter().map(|(pid, _)| pid).chain(own).collect() }
    }
}

impl Neighbours {
    fn have(&self, pid: u32) -> bool {
        self.there.contains(&pid) || (self.some_ended && !self.known.contains(&pid))
    }
}

/// The kernel tells times of processes in hundredths of a second.
const TICK_NS: u64 = 10_000_000;

/// How long all CPUs have been somebody's.
fn machine_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    // In user mode, there at low priority, and in the kernel.
    stat.split_whitespace().skip(1).take(3).map(|ticks| ticks.parse::<u64>().unwrap() * TICK_NS).sum()
}

/// How long the threads of each process have had a CPU, also those that have ended.
fn cpu_times() -> HashMap<u32, u64> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let time = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        // In user mode and in the kernel.
        Some((pid, (ticks(11)? + ticks(12)?) * TICK_NS))
    };
    pids.filter_map(time).collect()
}

impl Run {
    /// The cause and the process to blame stand first, or nothing grave is found.
    fn is_right(&self) -> bool {
        let mut found = self.explanation["findings"].as_array().unwrap().iter();
        let Some(cause) = self.truth.cause else {
            return found.all(|finding| finding["severity"] == "low" || self.is_a_neighbours(finding));
        };
        let expected = self.truth.culprit.as_ref().map(|culprit| &culprit.pids);
        let is_culprit = |finding: &Value| expected.is_none_or(|pids| is_by(finding, pids));
        let first = found.find(|finding| finding["cause"] == cause || !self.is_a_neighbours(finding));
        first.is_some_and(|first| first["cause"] == cause && (is_culprit(first) || self.is_a_neighbours(first)))
    }

    /// Somebody else on this machine takes the CPU, of one rank more than of the others, or of whoever is waited for: true, and
    /// nothing that the scenario is about.
    fn is_a_neighbours(&self, finding: &Value) -> bool {
        let culprit = &finding["culprit"];
        let pid = match finding["cause"].as_str() {
            Some("cpu-preempted") => culprit["pid"].as_u64(),
            Some("straggler") => culprit["detail"].as_str().and_then(pid_in),
            _ => {
                let last = finding["chain"].as_array().and_then(|chain| chain.last()?["what"].as_str());
                last.and_then(|last| pid_in(last.split_once(" ran on the CPU of ")?.0))
            }
        };
        pid.is_some_and(|pid| self.neighbours.have(pid as u32))
    }
}

/// Of the process that is named in these words, as in `name (12)`, or in `name (12/34)` if it is one of its threads.
fn pid_in(words: &str) -> Option<u64> {
    words.split('(').skip(1).find_map(|rest| rest.split(['/', ',', ')']).next()?.parse().ok())
}

fn is_by(finding: &Value, pids: &[u32]) -> bool {
    let blamed = finding["culprit"]["pid"].as_u64();
    pids.iter().any(|&pid| Some(u64::from(pid)) == blamed)
}

/// Once with the fault and once without; how often it is right on the whole is measured by `./dev accuracy`.
fn is_explained(name: &str) {
    needs_root();
    let place = Place::new();
    let scenario = Scenario::find(name).unwrap();
    let unmet = scenario.unmet_needs(&place.testbed).unwrap();
    if !unmet.is_empty() {
        return left_out(&format!("the explanation of {name}: {}", unmet.join("; ")));
    }
    for healthy in [false, true] {
        let machine = Undisturbed::since_now();
        let run = run(&place, scenario, healthy);
        let is_right = if run.is_right() { Ok(()) } else { Err(format!("{run:#?}")) };
        machine.expect(&format!("the explanation of {name}, healthy: {healthy}"), is_right);
    }
}

macro_rules! scenarios {
    ($($test:ident = $name:literal,)+) => {
        mod root_the_fault_is_found_and_nothing_in_its_twin {
            use super::*;
            $(#[test] fn $test() { is_explained($name); })+
        }
        const EXPLAINED: &[&str] = &[$($name),+];
    };
}

scenarios! {
    cpu_hog = "cpu-hog",
    cpu_hog_threads = "cpu-hog-threads",
    cpu_crowd = "cpu-crowd",
    cpu_quota = "cpu-quota",
    mutex_holder = "mutex-holder",
    mutex_sleeper = "mutex-sleeper",
    mutex_io_holder = "mutex-io-holder",
    gil_holder = "gil-holder",
    direct_read = "direct-read",
    mapped_file = "mapped-file",
    memory_limit = "memory-limit",
    slow_peer = "slow-peer",
    slow_pipe = "slow-pipe",
    slow_worker_io = "slow-worker-io",
    slow_queue = "slow-queue",
    python_dataloader = "python-dataloader",
    child_per_step = "child-per-step",
    slow_reader = "slow-reader",
    slow_ioctl = "slow-ioctl",
    sync_per_op = "sync-per-op",
    tiny_kernels = "tiny-kernels",
    pageable_copy = "pageable-copy",
    module_per_step = "module-per-step",
    capture_per_step = "capture-per-step",
    malloc_per_step = "malloc-per-step",
    out_of_memory = "out-of-memory",
    leak = "leak",
    oom = "oom",
    late_rank = "late-rank",
    long_kernels = "long-kernels",
    app_computes = "app-computes",
    sleeps_on_purpose = "sleeps-on-purpose",
    idle_server = "idle-server",
}

/// Their healthy twins wait for the machine's own disk too, and some disks are slow: `./dev accuracy` has them.
const LEFT_TO_ACCURACY: &[&str] = &["disk-hog"];

#[test]
fn every_scenario_is_explained() {
    let names = SCENARIOS.iter().map(|scenario| scenario.name).filter(|name| !LEFT_TO_ACCURACY.contains(name));
    assert_eq!(EXPLAINED, names.collect::<Vec<_>>());
}

#[test]
fn root_a_producer_that_waits_for_its_disk_is_followed_to_it() {
    needs_root();
    let place = Place::new();
    let scenario = Scenario::find("slow-worker-io").unwrap();
    let unmet = scenario.unmet_needs(&place.testbed).unwrap();
    if !unmet.is_empty() {
        return left_out(&format!("a producer that waits for its disk: {}", unmet.join("; ")));
    }
    let machine = Undisturbed::since_now();
    let run = run(&place, scenario, false);
    let mut findings = run.explanation["findings"].as_array().unwrap().iter();
    let is_disk = |edge: &Value| edge["what"].as_str().unwrap().contains("waiting for disk");
    let leads_to_disk = |finding: &Value| finding["chain"].as_array().unwrap().iter().any(is_disk);
    let is_followed = findings.find(|finding| finding["cause"].as_str() == run.truth.cause).is_some_and(leads_to_disk);
    let is_so = if is_followed { Ok(()) } else { Err(format!("{run:#?}")) };
    machine.expect("a producer that waits for its disk", is_so);
}

/// Of the 35 seconds that the next test takes.
const BUSY_NS: u64 = 10_000_000_000;

#[test]
fn root_a_short_incident_in_a_long_run_is_found_with_its_time() {
    needs_root();
    let place = Place::new();
    let before = cpu_times();
    let mut running = LaunchLoop::new(&place.testbed).rate(1_000.0).start().unwrap();
    let pid = running.pid().to_string();
    assert!(Command::new("taskset").args(["-a", "-p", "0x1", &pid]).stdout(Stdio::null()).status().unwrap().success());
    let mut tracing = place.trace(&["-p", &pid]);
    tracing.wait_ready();
    running.go().unwrap();
    running.slice(Duration::from_secs(20)).unwrap();
    let hog = || Command::new("taskset").args(["0x1", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
    let mut hogs: Vec<Child> = (0..3).map(|_| hog()).collect();
    running.slice(Duration::from_secs(5)).unwrap();
    hogs.iter_mut().for_each(|hog| {
        hog.kill().unwrap();
        hog.wait().unwrap();
    });
    running.slice(Duration::from_secs(10)).unwrap();
    running.finish().unwrap();
    assert!(tracing.wait_finished().0.success());
    let is_busy = |(pid, ns): (u32, u64)| before.get(&pid).is_some_and(|before| ns.saturating_sub(*before) > BUSY_NS);
    if cpu_times().into_iter().any(is_busy) {
        return left_out(
            "a short incident: somebody else takes a CPU all the time, which is what the whole run is about",
        );
    }

    let explanation = explain(&place.file(), &[]);
    let findings = explanation["findings"].as_array().unwrap();
    let pids: Vec<u32> = hogs.iter().map(Child::id).collect();
    let incident = findings.iter().find(|finding| finding["cause"] == "cpu-preempted" && is_by(finding, &pids));
    let incident = incident.unwrap_or_else(|| panic!("{explanation:#}"));
    assert_ne!(incident["severity"], "low", "{incident:#}");
    let ns = |moment: &Value| moment.as_u64().unwrap();
    let lasted_ns = ns(&incident["during"]["to_ns"]) - ns(&incident["during"]["from_ns"]);
    assert!((2_000_000_000..10_000_000_000).contains(&lasted_ns), "{incident:#}");
    let (_, page, _) = output(gpuwhy(&["explain", place.file().to_str().unwrap()]));
    assert!(page.contains("of the trace"), "{page}");
}

#[test]
fn an_explanation_has_the_documented_fields() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let explanation = explain(&file, &[]);
    assert_eq!(explanation["schema"], 1);
    for key in ["window", "coverage", "findings", "ruled_out"] {
        assert!(!explanation[key].is_null(), "{key} is missing in {explanation:#}");
    }
    for key in ["events", "lost", "sampled", "unattached"] {
        assert!(!explanation["coverage"][key].is_null(), "{key} is missing in {explanation:#}");
    }
}

/// Scenarios last some seconds, in which nobody hangs, and run on one host: ranks that hang are in `collectives.rs`, links that
/// lose packets in `network.rs`. There is no fabric here: its counters are tried in `analysis/tests/ranks.rs`. What takes a GPU
/// that says something of itself is in `devices.rs`.
const WITHOUT_SCENARIO: &[&str] =
    &["collective-hang", "tcp-retransmit", "fabric-error", "gpu-fault", "gpu-throttled", "gpu-starved"];

#[test]
fn every_cause_has_a_scenario_and_every_scenario_a_cause_that_is_known() {
    let causes = RULES.iter().map(|rule| rule.cause).filter(|cause| !WITHOUT_SCENARIO.contains(cause));
    let causes: BTreeSet<&str> = causes.collect();
    let caused: BTreeSet<&str> = SCENARIOS.iter().filter_map(|scenario| scenario.cause).collect();
    assert_eq!(caused, causes);
}

#[test]
fn findings_that_are_stored_are_shown_with_who_found_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let name = file.to_str().unwrap();
    let (code, _, stderr) = output(gpuwhy(&["explain", name, "--stored"]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("no findings are stored"), "{stderr}");

    let mut found = explain(&file, &[]);
    found["version"] = "0.0.7".into();
    let kept = KeptExplanation { at_ns: 1, version: "0.0.7".into(), json: found.to_string() };
    keep_explanation(&file, &kept, None).unwrap();
    assert_eq!(explain(&file, &["--stored"]), found);
    let (_, _, stderr) = output(gpuwhy(&["explain", name, "--stored"]));
    assert!(stderr.contains("gpuwhy 0.0.7"), "{stderr}");
    assert_ne!(explain(&file, &[])["version"], "0.0.7");
    let (code, _, stderr) = output(gpuwhy(&["explain", name, "--stored", "--pid", "1"]));
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn a_trace_in_which_nothing_fed_a_gpu_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let (code, stdout, _) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--to", "1000", "--exit-code"]));
    assert_eq!(code, 0);
    assert!(stdout.contains("nothing to explain"), "{stdout}");
}

#[test]
fn spans_that_make_no_sense_and_files_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let name = file.to_str().unwrap();
    for (arguments, code, words) in [
        (vec!["explain", name, "--from", "20", "--to", "10"], 1, "from: it is not before `to`"),
        (vec!["explain", name, "--from", "noon"], 2, "is no moment"),
        (vec!["explain", name, "--since", "5m", "--from", "1"], 2, "cannot be used with"),
        (vec!["explain", "/no/such/file.db"], 1, "there is no file"),
        (vec!["explain", "/etc/passwd"], 1, "passwd"),
        (vec!["demo", "no-such-scenario"], 1, "there is no scenario"),
    ] {
        let (found, stdout, stderr) = output(gpuwhy(&arguments));
        assert_eq!((found, stdout.as_str()), (code, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_demo_lists_what_it_can_show() {
    let (code, stdout, _) = output(gpuwhy(&["demo", "--list"]));
    assert_eq!(code, 0);
    assert!(stdout.lines().count() > 20 && stdout.contains("cpu-hog") && stdout.contains("lock-wait"), "{stdout}");
}

#[test]
fn root_without_privilege_the_demo_explains_a_recording_and_says_so() {
    needs_root();
    let place = Place::new();
    let binary = place.dir.path().join("gpuwhy");
    std::fs::copy(env!("CARGO_BIN_EXE_gpuwhy"), &binary).unwrap();
    let folder = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.dir.path(), folder).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).arg("demo");
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("recording"), "{stderr}");
    assert!(stdout.starts_with("GPU 0 was idle"), "{stdout}");
    assert!(stdout.contains("\ninput-starved"), "{stdout}");
}
