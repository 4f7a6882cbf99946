//! Ordinary programs in Python, traced and explained as a user does it: the cause, who is to blame and the line for those with
//! a fault, nothing grave for those that only wait for work. The GPU is the testbed's fake one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gpuwhy_testbed::{Undisturbed, left_out};
use serde_json::Value;
use support::{Finished, Place, gpuwhy, needs_root, output};

const SECONDS: &str = "5";

/// With fewer looks at launches there is nothing to estimate from.
const LEAST_LOOKS: usize = 5;

/// Each look: when it ended, how long it was, and how many launches and waits began in it.
const WATCHED: &str = "SELECT at_ns, value,
    (SELECT count(*) FROM cuda_events WHERE timestamp_ns BETWEEN at_ns - value AND at_ns AND class = 'launch'),
    (SELECT count(*) FROM cuda_events WHERE timestamp_ns BETWEEN at_ns - value AND at_ns AND class = 'sync')
    FROM sample_values WHERE name = 'tracer.watched' ORDER BY at_ns";

/// Naps, which come after a sync, and whether one of them has a wait.
const NAPS: &str = "FROM (SELECT timestamp_ns + duration_ns AS from_ns, \
    lead(timestamp_ns) OVER (ORDER BY timestamp_ns) AS to_ns, class FROM cuda_events) WHERE class = 'sync' AND to_ns > 0";
const HAS_WAIT: &str = "EXISTS (SELECT 1 FROM sched_events WHERE timestamp_ns BETWEEN from_ns AND to_ns)";

/// One that waits longer for a CPU is held up by its neighbours, launches and all.
const MOST_QUEUED: f64 = 0.2;

/// The line that is to blame ends with this.
const MARK: &str = "# here";

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("py")
}

/// What it printed, why the GPU waited, and where its trace is.
fn explained(name: &str) -> (String, Value, Place) {
    needs_root();
    let place = Place::new();
    let (file, driver, program) = (place.file(), place.testbed.libcuda(), program(name));
    let words = ["trace", "--out", file.to_str().unwrap(), "--", "python3", "-B", program.to_str().unwrap()];
    let (code, said, stderr) = output(gpuwhy(&[&words[..], &[driver.to_str().unwrap(), SECONDS]].concat()));
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--json"]));
    assert_eq!(code, 0, "{stderr}");
    (said, serde_json::from_str(&stdout).unwrap(), place)
}

fn grave(explanation: &Value) -> Vec<&Value> {
    let findings = explanation["findings"].as_array().unwrap().iter();
    // A neighbour on this machine that takes the CPU is no fault of the program.
    findings.filter(|finding| finding["severity"] != "low" && finding["cause"] != "cpu-preempted").collect()
}

#[track_caller]
fn finds(name: &str, cause: &str, culprit: &str) {
    let machine = Undisturbed::since_now();
    let (_, explanation, _) = explained(name);
    machine.expect(name, is_found(name, &explanation, cause, culprit));
}

/// The first grave finding has this cause, this culprit, and the marked line first among those of the program.
fn is_found(name: &str, explanation: &Value, cause: &str, culprit: &str) -> Result<(), String> {
    let grave = grave(explanation);
    let first = grave.first().ok_or_else(|| format!("nothing grave: {explanation:#}"))?;
    let source = std::fs::read_to_string(program(name)).unwrap();
    let marked = source.lines().position(|line| line.ends_with(MARK)).unwrap() as u64 + 1;
    let own =
        |place: &&Value| place["role"] == "victim" && place["file"].as_str().unwrap().ends_with(&format!("{name}.py"));
    let line = first["where"].as_array().unwrap().iter().find(own).map(|place| &place["line"]);
    let told = (&first["cause"], &first["culprit"]["comm"], line);
    let is_so = told == (&cause.into(), &culprit.into(), Some(&marked.into()));
    if is_so { Ok(()) } else { Err(format!("{told:?} and not {cause}, {culprit}, {marked}: {explanation:#}")) }
}

#[track_caller]
fn finds_nothing(name: &str) {
    let machine = Undisturbed::since_now();
    let (_, explanation, _) = explained(name);
    let is_healthy = if grave(&explanation).is_empty() { Ok(()) } else { Err(format!("{explanation:#}")) };
    machine.expect(name, is_healthy);
}

#[test]
fn root_a_program_that_tokenizes_between_steps_computes_while_the_gpu_waits() {
    finds("tokenizes", "host-compute", "python3");
}

#[test]
fn root_a_program_that_collects_garbage_between_steps_computes_while_the_gpu_waits() {
    finds("collects_garbage", "host-compute", "python3");
}

#[test]
fn root_a_program_that_makes_large_buffers_anew_gets_pages_while_the_gpu_waits() {
    finds("makes_buffers", "page-fault", "python3");
}

#[test]
fn root_a_lock_that_two_processes_share_is_a_lock() {
    finds("shares_a_lock", "lock-wait", "cachewarmer");
}

#[test]
fn root_a_long_wait_is_told_with_its_line_among_many_short_ones() {
    finds("waits_at_many_depths", "lock-wait", "python3");
}

#[test]
fn root_a_client_that_has_asked_waits_however_the_server_spends_its_time() {
    finds("asks_a_late_server", "net-wait", "tracking");
}

#[test]
fn root_an_event_loop_that_has_asked_another_server_waits_for_it() {
    finds("asks_from_a_loop", "net-wait", "features");
}

#[test]
fn root_an_event_loop_that_serves_nobody_waits_for_the_server_that_it_asks() {
    finds("asks_in_a_loop", "net-wait", "features");
}

#[test]
fn root_tensors_that_are_kept_now_and_then_are_a_leak() {
    finds("keeps_tensors", "memory-leak", "python3");
}

/// Launches are watched for a twentieth of the time; the bounds of what is said of the rest hold the truth.
#[test]
fn root_idle_time_is_estimated_where_launches_are_watched_now_and_then() {
    let machine = Undisturbed::since_now();
    let (said, explanation, place) = explained("launches_often");
    let watched = Finished::open(&place.file(), Vec::new()).rows(WATCHED);
    let truth: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    if watched.len() < LEAST_LOOKS || number(&truth["queued"]) + machine.stolen_share() > MOST_QUEUED {
        return left_out("an estimate of idle time: somebody else takes the CPU for most of it");
    }
    is_found("launches_often", &explanation, "host-compute", "python3")
        .unwrap_or_else(|why| panic!("{why}\n{watched:?}"));
    let (truth, gpu) = (number(&truth["idle"]), &explanation["gpus"][0]);
    let (least, most) = (number(&gpu["interval"][0]), number(&gpu["interval"][1]));
    assert!(least - 0.05 <= truth && truth <= most + 0.05, "{truth} is idle in truth; {gpu:#}");
    assert_eq!(gpu["known_by"], "inferred", "{gpu:#}");
}

/// Where a neighbour leaves the CPU to a thread, some kernels do not tell.
#[test]
fn root_every_nap_is_seen_beside_busy_neighbours() {
    let is_over = AtomicBool::new(false);
    let (_, _, place) = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let explained = explained("sleeps_often");
        is_over.store(true, Ordering::Relaxed);
        explained
    });
    let trace = Finished::open(&place.file(), Vec::new());
    let naps = trace.number(&format!("SELECT count(*) {NAPS}"));
    let unseen = trace.number(&format!("SELECT count(*) {NAPS} AND NOT {HAS_WAIT}"));
    // The host of a virtual machine may take the CPU right before a nap, which then is over before it has begun.
    assert!(naps > 50 && unseen * 100 <= naps, "{unseen} of {naps} naps have no wait");
}

#[test]
fn root_a_blocking_server_with_little_traffic_is_healthy() {
    finds_nothing("serves_few");
}

#[test]
fn root_a_server_that_no_longer_listens_and_waits_for_requests_is_healthy() {
    finds_nothing("stops_listening");
}

#[test]
fn root_a_kernel_of_a_notebook_whose_user_thinks_is_healthy() {
    finds_nothing("answers_a_user");
}

#[test]
fn root_a_server_that_hands_requests_to_a_thread_is_healthy() {
    finds_nothing("serves_from_a_loop");
}

#[test]
fn root_a_server_that_has_loaded_its_weights_does_not_leak() {
    finds_nothing("loads_then_serves");
}

#[test]
fn root_a_notebook_that_idles_is_healthy() {
    finds_nothing("notebook");
}
