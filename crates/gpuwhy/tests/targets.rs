//! Whom a trace is about, and that it is about nobody else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::os::unix::fs::PermissionsExt;

use gpuwhy_store::Value;
use gpuwhy_testbed::{Running, Truth, Workload};
use support::script::Script;
use support::{Finished, Place, Tracing, counts_agree, gpuwhy, needs_root, traced, wait_until};

fn launches(place: &Place, calls: u64) -> Workload {
    Workload::new(&place.testbed).mix("launch").threads(1).calls(calls)
}

fn count(finished: &Finished, what: &str) -> i64 {
    finished.number(&format!("SELECT coalesce(sum(count), 0) FROM call_stats WHERE {what}"))
}

/// Nothing a process did is in the trace.
fn is_absent(finished: &Finished, pid: u32) {
    for table in ["cuda_events", "call_stats", "thread_times", "process_life"] {
        let rows = format!("SELECT count(*) FROM {table} WHERE pid = {pid}");
        assert_eq!(finished.number(&rows), 0, "{table} knows process {pid}");
    }
}

/// A tracer that finds this place's library before any process has it.
fn tracing_with_library(place: &Place, arguments: &[&str]) -> Tracing {
    let file = place.file();
    let mut command = gpuwhy(&[&["trace", "--out", file.to_str().unwrap()], arguments].concat());
    command.env("LD_LIBRARY_PATH", place.testbed.dir());
    Tracing::start(command, file)
}

#[test]
fn root_a_command_is_followed_into_its_children_and_nowhere_else() {
    needs_root();
    let place = Place::new();
    let mut outsider = launches(&place, 1000).start().unwrap();
    outsider.wait_ready().unwrap();
    let outside = outsider.pid();
    let workload = place.testbed.workload();
    let workload = workload.to_str().unwrap();
    let both = "echo started >&2; read line
        \"$0\" --mix launch --calls 100 & \"$0\" --mix launch --calls 200 & wait";
    let file = place.file();
    let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--", "sh", "-c", both, workload]);
    command.env("LD_LIBRARY_PATH", place.testbed.dir());
    let mut tracing = Tracing::start_with_input(command, file);
    tracing.wait_for("started");
    outsider.go().unwrap();
    tracing.say("go");
    let (status, finished) = tracing.wait_finished();
    outsider.finish().unwrap();
    assert!(status.success());
    finished.check();
    let launches = "SELECT group_concat(calls) FROM (SELECT sum(count) AS calls FROM call_stats
        WHERE op = 'cuLaunchKernel' GROUP BY pid ORDER BY calls)";
    assert_eq!(finished.text(launches), "100,200");
    is_absent(&finished, outside);
}

#[test]
fn root_a_worker_that_a_named_process_starts_later_is_traced() {
    needs_root();
    let place = Place::new();
    let mut outsider = launches(&place, 1000).start().unwrap();
    outsider.wait_ready().unwrap();
    let outside = outsider.pid();
    let parent = "read line; LD_LIBRARY_PATH=$1 $2 --mix launch --calls 300 >/dev/null & wait; echo done; read line";
    let workload = place.testbed.workload();
    let arguments = [place.testbed.dir().to_str().unwrap(), workload.to_str().unwrap()];
    let mut parent = Script::shell(parent, &arguments);
    let mut tracing = tracing_with_library(&place, &["-p", &parent.pid().to_string()]);
    tracing.wait_ready();
    parent.say("go");
    outsider.finish().unwrap();
    parent.wait_for("done");
    parent.finish();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success());
    finished.check();
    assert_eq!(count(&finished, "op = 'cuLaunchKernel'"), 300);
    is_absent(&finished, outside);
}

#[test]
fn root_only_the_named_users_processes_are_traced() {
    needs_root();
    let place = Place::new();
    std::fs::set_permissions(place.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut theirs = launches(&place, 400).through(&nobody).start().unwrap();
    let mut ours = launches(&place, 400).start().unwrap();
    theirs.wait_ready().unwrap();
    ours.wait_ready().unwrap();
    let own_pid = ours.pid();
    let mut tracing = place.trace(&["-u", "nobody"]);
    tracing.wait_ready();
    ours.go().unwrap();
    theirs.go().unwrap();
    let truth = theirs.finish().unwrap();
    ours.finish().unwrap();
    let finished = tracing.stop();
    finished.check();
    counts_agree(&truth, &finished, "driver");
    assert_eq!(count(&finished, "op = 'cuLaunchKernel'"), 400);
    is_absent(&finished, own_pid);
}

#[test]
fn root_every_process_that_uses_a_file_is_seen_one_after_the_other() {
    needs_root();
    let place = Place::new();
    let mut tracing = tracing_with_library(&place, &[]);
    tracing.wait_ready();
    let called = |calls| {
        let mut running = launches(&place, calls).wait_end().start().unwrap();
        running.go().unwrap();
        running.wait_done().unwrap();
        running
    };
    let running: Vec<Running> = (1..=8).map(|n| called(n * 10)).collect();
    // A process that is gone before anybody looks at it has no name.
    wait_until("all are stored", || {
        let stored = Finished::open(&place.file(), Vec::new()).rows("SELECT DISTINCT pid FROM cuda_events");
        running.iter().all(|one| stored.contains(&vec![Value::Integer(one.pid().into())])).then_some(())
    });
    let truths: Vec<Truth> = running.into_iter().map(|one| one.finish().unwrap()).collect();
    let finished = tracing.stop();
    finished.check();
    for truth in &truths {
        counts_agree(truth, &finished, "driver");
        let pid = truth.ends[0].pid;
        let comm = format!("SELECT DISTINCT process_comm FROM cuda_events WHERE pid = {pid}");
        assert_eq!(finished.text(&comm), "workload");
    }
}

#[test]
fn root_a_process_that_sees_only_the_fourth_gpu_uses_the_fourth_gpu() {
    needs_root();
    let place = Place::new();
    let (_, finished) = traced(&place, launches(&place, 50).env("CUDA_VISIBLE_DEVICES", "3"), &[]);
    let devices = "SELECT group_concat(DISTINCT device) FROM cuda_events WHERE op = 'cuLaunchKernel'";
    assert_eq!(finished.text(devices), "3");
}

#[test]
fn root_the_tracer_leaves_itself_out() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let mut running = launches(&place, 100).start().unwrap();
    running.wait_ready().unwrap();
    let pid = running.pid();
    // It has the library mapped like any program that uses CUDA.
    let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap()]);
    command.env("LD_PRELOAD", place.testbed.libcuda());
    let mut tracing = Tracing::start(command, file);
    tracing.wait_ready();
    let own_pid = tracing.pid();
    running.finish().unwrap();
    let finished = tracing.stop();
    finished.check();
    // Whoever else uses CUDA on this machine is traced as well.
    assert_eq!(count(&finished, &format!("op = 'cuLaunchKernel' AND pid = {pid}")), 100);
    is_absent(&finished, own_pid);
}

#[test]
fn root_a_python_program_is_traced_like_any_other() {
    needs_root();
    let place = Place::new();
    let (truth, finished) = traced(&place, Workload::python(&place.testbed).steps(50), &["--layer", "both"]);
    finished.check();
    counts_agree(&truth, &finished, "runtime");
    assert_eq!(count(&finished, "op = 'cudaLaunchKernel'"), 500);
    assert_eq!(count(&finished, "op = 'cuLaunchKernel'"), 500);
}
