//! Every scenario runs, its fault is real as the job itself measures it, and what it says of itself is consistent.

#![allow(clippy::unwrap_used)]

use gpuwhy_testbed::{CulpritTruth, Measured, RunningScenario, SCENARIOS, Scenario, ScenarioTruth, Setup, Testbed};
use gpuwhy_testbed::{Undisturbed, left_out, needs_root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_millis(800);
/// What is left of the healthy twin's pace, at most, where fewer steps are all that can be seen of a fault.
const PACE_LEFT: f64 = 0.85;
/// Runs of each twin where their pace is compared: whatever else the machine or its host does only slows them down.
const RACES: usize = 3;

/// How the job notices that it is not healthy.
enum Evidence {
    /// More of its time is spent where the fault is.
    TimeInFault,
    /// The same, as far as this machine's disk shows it.
    TimeAtDisk,
    /// Time on the run queue, and others who take the CPU.
    RunQueue,
    /// Pages that had to be read.
    MajorFaults,
    /// A control group that stopped it.
    LimitHits,
    FewerSteps,
    /// It costs no time worth measuring.
    None,
}

/// One test for each scenario.
macro_rules! scenarios {
    ($($test:ident = $name:literal: $evidence:ident,)+) => {
        mod root_the_fault_is_real {
            use super::*;
            $(#[test] fn $test() { check($name, &Evidence::$evidence); })+
        }
        const TESTED: &[&str] = &[$($name),+];
    };
}

scenarios! {
    cpu_hog = "cpu-hog": RunQueue,
    cpu_hog_threads = "cpu-hog-threads": RunQueue,
    cpu_crowd = "cpu-crowd": RunQueue,
    cpu_quota = "cpu-quota": LimitHits,
    mutex_holder = "mutex-holder": TimeInFault,
    mutex_sleeper = "mutex-sleeper": TimeInFault,
    mutex_io_holder = "mutex-io-holder": TimeInFault,
    gil_holder = "gil-holder": FewerSteps,
    direct_read = "direct-read": TimeInFault,
    disk_hog = "disk-hog": TimeAtDisk,
    mapped_file = "mapped-file": MajorFaults,
    memory_limit = "memory-limit": LimitHits,
    slow_peer = "slow-peer": TimeInFault,
    slow_pipe = "slow-pipe": TimeInFault,
    slow_worker_io = "slow-worker-io": TimeInFault,
    slow_queue = "slow-queue": TimeInFault,
    python_dataloader = "python-dataloader": TimeInFault,
    child_per_step = "child-per-step": TimeInFault,
    slow_reader = "slow-reader": TimeInFault,
    slow_ioctl = "slow-ioctl": TimeInFault,
    sync_per_op = "sync-per-op": FewerSteps,
    tiny_kernels = "tiny-kernels": FewerSteps,
    pageable_copy = "pageable-copy": TimeInFault,
    module_per_step = "module-per-step": TimeInFault,
    capture_per_step = "capture-per-step": FewerSteps,
    malloc_per_step = "malloc-per-step": TimeInFault,
    out_of_memory = "out-of-memory": None,
    leak = "leak": None,
    oom = "oom": None,
    late_rank = "late-rank": TimeInFault,
    long_kernels = "long-kernels": FewerSteps,
    app_computes = "app-computes": FewerSteps,
    sleeps_on_purpose = "sleeps-on-purpose": FewerSteps,
    idle_server = "idle-server": TimeInFault,
}

#[test]
fn every_scenario_has_a_test_and_a_name_of_its_own() {
    let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    assert_eq!(names, TESTED);
}

#[test]
fn a_setup_out_of_range_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    for threads in [0, Setup::MAX_THREADS + 1] {
        let error = SCENARIOS[0].start(&testbed, &Setup { threads, ..setup(true) }).unwrap_err();
        assert!(format!("{error:#}").contains("dispatch threads"), "{error:#}");
    }
}

#[test]
fn root_a_scenario_with_more_threads_and_a_background_hits_who_it_should() {
    needs_root();
    let _machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    for (name, victims) in [("cpu-hog", 3), ("mutex-holder", 1)] {
        let setup = Setup { threads: 3, background: true, ..setup(false) };
        let truth = run(Scenario::find(name).unwrap(), &testbed, &setup);
        assert_eq!(truth.victim_tids.len(), victims, "{name}: {truth:?}");
    }
}

/// The run that is killed is this test itself, started again with a folder to work in.
#[test]
fn root_a_killed_run_leaves_nothing_behind() {
    const FOLDER: &str = "SCENARIO_TO_BE_KILLED";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_until_killed(Path::new(&folder));
    }
    needs_root();
    let _machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let mut run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "root_a_killed_run_leaves_nothing_behind", "--nocapture"])
        .env(FOLDER, dir.path())
        .spawn()
        .unwrap();
    wait_until("the scenarios run", || dir.path().join("pids").exists());
    let pids = fs::read_to_string(dir.path().join("pids")).unwrap();
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until("all processes are gone", || pids.iter().all(|pid| !is_alive(*pid)));
    wait_until("all control groups are gone", || cgroups_of(pids.iter().copied()).is_empty());
}

fn run_until_killed(folder: &Path) {
    let testbed = Testbed::unpack(folder).unwrap();
    let setup = Setup { duration: Duration::from_secs(60), ..setup(false) };
    let able = SCENARIOS.iter().filter(|scenario| scenario.unmet_needs(&testbed).unwrap().is_empty());
    let mut running: Vec<_> = able.map(|scenario| scenario.start(&testbed, &setup).unwrap()).collect();
    running.iter_mut().for_each(|scenario| scenario.go().unwrap());
    let pids = processes_of(std::process::id()).map(|pid| pid.to_string()).collect::<Vec<_>>().join(" ");
    fs::write(folder.join("pids.part"), pids).unwrap();
    fs::rename(folder.join("pids.part"), folder.join("pids")).unwrap();
    thread::sleep(setup.duration);
}

/// Runs the twins and compares them.
fn check(name: &str, evidence: &Evidence) {
    needs_root();
    let _machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    let scenario = Scenario::find(name).unwrap();
    let unmet = scenario.unmet_needs(&testbed).unwrap();
    if !unmet.is_empty() {
        return left_out(&format!("the scenario {name}: {}", unmet.join("; ")));
    }
    let undisturbed = Undisturbed::since_now();
    let twins: Vec<_> = (0..evidence.runs())
        .map(|_| (run(scenario, &testbed, &setup(false)), run(scenario, &testbed, &setup(true))))
        .collect();
    for (faulty, healthy) in &twins {
        assert_eq!((faulty.cause, healthy.cause), (scenario.cause, None));
        assert_eq!(faulty.culprit.is_some(), scenario.cause.is_some(), "{faulty:?}");
        assert!(healthy.culprit.is_none(), "{healthy:?}");
    }
    let is_there = evidence.is_there(&twins);
    if let Some(excuse) = evidence.excuse(&twins).filter(|_| !is_there) {
        return left_out(&format!("the fault of {name}: {excuse}"));
    }
    let why = || format!("no difference between a run with the fault and its healthy twin: {twins:#?}");
    undisturbed.expect(&format!("the fault of {name}"), if is_there { Ok(()) } else { Err(why()) });
}

/// Whether a program that has nothing beside it waits for a CPU.
fn is_crowded(healthy: &Measured) -> bool {
    healthy.run_queue.as_secs_f64() > 0.2 * healthy.elapsed.as_secs_f64()
}

/// Whether a program that has the disk for itself waits for it.
fn has_slow_disk(healthy: &Measured) -> bool {
    healthy.in_fault.as_secs_f64() > 0.15 * healthy.elapsed.as_secs_f64()
}

impl Evidence {
    fn runs(&self) -> usize {
        if matches!(self, Self::FewerSteps) { RACES } else { 1 }
    }

    /// Why a machine may not show the fault.
    fn excuse(&self, twins: &[(ScenarioTruth, ScenarioTruth)]) -> Option<&'static str> {
        let any_healthy = |is_so: fn(&Measured) -> bool| twins.iter().any(|(_, healthy)| is_so(&healthy.measured));
        match self {
            Self::RunQueue if any_healthy(is_crowded) => Some("somebody else takes the CPU of its healthy twin too"),
            Self::TimeAtDisk if any_healthy(has_slow_disk) => Some("its healthy twin waits for this disk too"),
            Self::TimeAtDisk => Some("this disk is as fast beside somebody who keeps it busy"),
            _ => None,
        }
    }

    fn is_there(&self, twins: &[(ScenarioTruth, ScenarioTruth)]) -> bool {
        let share = |part: Duration, whole: Duration| part.as_secs_f64() / whole.as_secs_f64();
        let shows = |with: &Measured, without: &Measured| match self {
            Self::TimeInFault | Self::TimeAtDisk => {
                share(with.in_fault, with.elapsed) - share(without.in_fault, without.elapsed) > 0.2
            }
            Self::RunQueue => {
                let more = share(with.run_queue, with.elapsed) - share(without.run_queue, without.elapsed);
                more > 0.2 && with.involuntary_switches > 0
            }
            // The healthy twin reads each of its few pages once.
            Self::MajorFaults => with.major_faults > without.major_faults + 100,
            Self::LimitHits => with.limit_hits > 2 && without.limit_hits == 0,
            Self::FewerSteps | Self::None => true,
        };
        let fastest = |paces: &mut dyn Iterator<Item = f64>| paces.fold(0.0, f64::max);
        let faulty = fastest(&mut twins.iter().map(|(faulty, _)| pace(&faulty.measured)));
        let healthy = fastest(&mut twins.iter().map(|(_, healthy)| pace(&healthy.measured)));
        match self {
            Self::FewerSteps => faulty < healthy * PACE_LEFT,
            _ => twins.iter().all(|(faulty, healthy)| shows(&faulty.measured, &healthy.measured)),
        }
    }
}

/// Steps a second of the time in which the job had a CPU or did not want one.
fn pace(measured: &Measured) -> f64 {
    measured.steps as f64 / measured.elapsed.saturating_sub(measured.run_queue).as_secs_f64()
}

/// Runs a scenario, and holds what it says afterwards against what the kernel said meanwhile.
fn run(scenario: &Scenario, testbed: &Testbed, setup: &Setup) -> ScenarioTruth {
    let mut running = scenario.start(testbed, setup).unwrap();
    let pids = running.pids();
    running.go().unwrap();
    let threads = watch(&running);
    let truth = running.finish().unwrap();
    assert_eq!(truth.victim_pid, pids[0]);
    assert!(!truth.victim_tids.is_empty() && truth.measured.steps > 0, "{truth:?}");
    let of_victim = |tid: &u32| threads.contains(&(pids[0], *tid));
    assert!(truth.victim_tids.iter().all(of_victim), "{truth:?} {threads:?}");
    truth.culprit.iter().for_each(|culprit| assert_was_there(culprit, &threads));
    assert!(all_end(threads.iter().map(|(pid, _)| *pid)), "left: {threads:?}");
    assert_eq!(cgroups_of(threads.iter().map(|(pid, _)| *pid)), Vec::<PathBuf>::new());
    truth
}

/// A process whose parent has ended takes a moment to follow.
fn all_end(pids: impl Iterator<Item = u32> + Clone) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while pids.clone().any(is_alive) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The processes and threads that were seen while the scenario ran: of this test's children, and of theirs.
fn watch(running: &RunningScenario) -> BTreeSet<(u32, u32)> {
    let pids = running.pids();
    let mut seen = BTreeSet::new();
    wait_until("the scenario is over", || {
        for pid in processes_of(std::process::id()) {
            seen.extend(threads_of(pid).map(|tid| (pid, tid)));
        }
        !is_alive(pids[0])
    });
    assert!(pids.iter().all(|pid| seen.iter().any(|(known, _)| known == pid)));
    seen
}

fn assert_was_there(culprit: &CulpritTruth, threads: &BTreeSet<(u32, u32)>) {
    // One of many that come and go may live between two looks.
    let was_there = |pid: &&u32| threads.iter().any(|(known, _)| known == *pid);
    let seen = culprit.pids.iter().filter(was_there).count();
    assert!(seen * 2 > culprit.pids.len(), "{culprit:?} {threads:?}");
    for tid in &culprit.tids {
        assert!(threads.iter().any(|(pid, known)| known == tid && culprit.pids.contains(pid)), "{culprit:?}");
    }
}

/// All descendants of a process.
fn processes_of(ancestor: u32) -> impl Iterator<Item = u32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        for tid in threads_of(found[next]).collect::<Vec<_>>() {
            let children = fs::read_to_string(format!("/proc/{}/task/{tid}/children", found[next])).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        next += 1;
    }
    found.into_iter().skip(1)
}

fn threads_of(pid: u32) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A zombie that nobody has looked after yet is not alive.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

/// The control groups that these processes have made: such a group is named after its maker.
fn cgroups_of(makers: impl Iterator<Item = u32>) -> Vec<PathBuf> {
    let names: BTreeSet<String> = makers.map(|pid| format!("gpuwhy-scenario-{pid}")).collect();
    let roots = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let roots: Vec<PathBuf> = roots.chain([PathBuf::from("/sys/fs/cgroup")]).collect();
    let paths = roots.iter().flat_map(|root| names.iter().map(|name| root.join(name)));
    paths.filter(|path| path.exists()).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "it took too long until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn setup(healthy: bool) -> Setup {
    Setup { seed: 7, threads: 1, background: false, healthy, duration: DURATION }
}

/// One at a time, also where the tests of a file are threads of one process.
fn machine() -> impl Drop {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}
