//! Real BPF programs on fake libraries whose calls are known exactly.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::time::Duration;

use gpuwhy_store::Value;
use gpuwhy_testbed::{Behaviour, Workload};
use support::{Place, counts_agree, needs_root, number_so_far, traced, wait_until};

fn every_call_is_counted_once_at_each_layer(attach: &str) {
    let place = Place::new();
    let workload = Workload::new(&place.testbed).nested().mix("launch").threads(4).calls(100_000);
    let (truth, finished) = traced(&place, workload, &["--layer", "both", "--attach", attach]);
    finished.check();
    counts_agree(&truth, &finished, "runtime");
    for layer in ["runtime", "driver"] {
        let launches = finished
            .number(&format!("SELECT sum(count) FROM call_stats WHERE layer = '{layer}' AND op LIKE '%LaunchKernel'"));
        assert_eq!(launches, 400_000, "{layer}");
    }
    assert_eq!(finished.text("SELECT attach_path FROM sessions"), attach);
    for reason in ["uncounted", "no_thread_state", "too_deep", "abandoned", "unmatched", "probe_missed"] {
        assert_eq!(finished.loss(reason), 0, "{reason}");
    }
    // Every driver call was made inside a runtime call, and says so.
    let orphans = "SELECT count(*) FROM cuda_events WHERE layer = 'driver' AND parent_id IS NULL";
    assert_eq!(finished.number(orphans), 0);
    let kept_parents = "SELECT count(*) FROM cuda_events child JOIN cuda_events parent ON parent.id = child.parent_id \
         WHERE parent.layer = 'runtime' AND child.tid = parent.tid \
         AND child.timestamp_ns + child.duration_ns <= parent.timestamp_ns + parent.duration_ns";
    if finished.lost_calls() == 0 {
        let children = finished.number("SELECT count(*) FROM cuda_events WHERE parent_id IS NOT NULL");
        assert_eq!(finished.number(kept_parents), children);
    }
}

#[test]
fn root_every_call_is_counted_once_at_each_layer_by_session_links() {
    needs_root();
    every_call_is_counted_once_at_each_layer("session");
}

#[test]
fn root_every_call_is_counted_once_at_each_layer_by_multi_links() {
    needs_root();
    every_call_is_counted_once_at_each_layer("multi");
}

#[test]
fn root_every_call_is_counted_once_at_each_layer_by_single_links() {
    needs_root();
    every_call_is_counted_once_at_each_layer("single");
}

#[test]
fn root_the_default_counts_a_launch_once() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).nested().mix("launch").threads(2).calls(1000);
    let (_, finished) = traced(&place, workload, &[]);
    finished.check();
    assert_eq!(finished.number("SELECT count(*) FROM cuda_events WHERE op LIKE '%LaunchKernel'"), 2000);
    // The driver's row also goes by the name people know.
    let by_runtime_name =
        "SELECT count(*) FROM cuda_events WHERE runtime_op = 'cudaLaunchKernel' AND op = 'cuLaunchKernel'";
    assert_eq!(finished.number(by_runtime_name), 2000);
    assert!(finished.text("SELECT caller FROM cuda_events WHERE op = 'cuLaunchKernel'").contains("libcudart"));
}

#[test]
fn root_a_full_ring_is_counted_not_hidden() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("launch").threads(2).calls(300_000);
    let (_, finished) = traced(&place, workload, &["--ring-size", "8KiB"]);
    finished.check();
    assert!(finished.loss("ring_full") > 0);
    assert!(finished.log.iter().any(|line| line.contains("ring_full")), "{:#?}", finished.log);
    assert_eq!(finished.number("SELECT sum(count) FROM call_stats WHERE op = 'cuLaunchKernel'"), 600_000);
}

#[test]
fn root_threads_that_die_inside_a_call_leave_nothing_behind() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("launch").threads(8).calls(100).die_inside();
    let (truth, finished) = traced(&place, workload, &[]);
    finished.check();
    counts_agree(&truth, &finished, "driver");
    let abandoned: u64 = truth.calls.iter().map(|calls| calls.abandoned).sum();
    assert!(abandoned > 0);
    assert_eq!(finished.loss("abandoned") as u64, abandoned);
}

#[test]
fn root_calls_that_are_jumped_out_of_do_not_disturb_the_next_ones() {
    needs_root();
    for attach in ["session", "multi", "single"] {
        let place = Place::new();
        let workload = Workload::new(&place.testbed)
            .op("cuLaunchKernel", Behaviour::Return, Duration::ZERO)
            .threads(2)
            .calls(1000)
            .longjmp();
        let (truth, finished) = traced(&place, workload, &["--attach", attach]);
        finished.check();
        counts_agree(&truth, &finished, "driver");
        let abandoned: u64 = truth.calls.iter().map(|calls| calls.abandoned).sum();
        assert!(abandoned >= 900, "{abandoned}");
        assert_eq!(finished.loss("abandoned") as u64, abandoned, "{attach}");
    }
}

#[test]
fn root_a_fork_inside_a_call_counts_it_once_and_follows_the_child() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("launch").threads(1).calls(100).fork_inside();
    let (truth, finished) = traced(&place, workload, &[]);
    finished.check();
    counts_agree(&truth, &finished, "driver");
    let child = truth.ends.iter().find_map(|end| end.child_pid).unwrap();
    let forks = format!("SELECT count(*) FROM process_life WHERE kind = 'fork' AND child_pid = {child}");
    assert_eq!(finished.number(&forks), 1);
}

#[test]
fn root_an_exec_closes_the_old_image_and_opens_a_new_one() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("launch").threads(0).calls(100).exec_self();
    let (truth, finished) = traced(&place, workload, &[]);
    finished.check();
    let made: u64 = truth.calls.iter().map(|calls| calls.calls).sum();
    assert_eq!(finished.number("SELECT sum(count) FROM call_stats") as u64, made);
    assert_eq!(finished.number("SELECT count(*) FROM process_life WHERE kind = 'exec'"), 1);
    let pid = truth.ends[0].pid;
    assert_eq!(finished.number(&format!("SELECT count(*) FROM processes WHERE pid = {pid}")), 2);
    assert_eq!(finished.number(&format!("SELECT count(*) FROM process_life WHERE kind = 'exit' AND pid = {pid}")), 1);
}

#[test]
fn root_a_row_names_its_device_stream_bytes_and_result() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("all").threads(2).calls(200).devices(2);
    let (truth, finished) = traced(&place, workload, &[]);
    finished.check();
    counts_agree(&truth, &finished, "driver");
    for calls in truth.calls.iter().filter(|calls| calls.layer == "driver" && calls.op == "cuLaunchKernel") {
        let row = finished.rows(&format!(
            "SELECT min(device), max(device), min(stream), max(stream) FROM cuda_events \
             WHERE op = 'cuLaunchKernel' AND tid = {}",
            calls.tid
        ));
        let device = Value::Integer(calls.device.into());
        let stream = Value::Integer(calls.stream as i64);
        assert_eq!(row[0], [device.clone(), device, stream.clone(), stream]);
    }
    for calls in truth.calls.iter().filter(|calls| calls.layer == "driver" && calls.bytes > 0) {
        let bytes = format!("SELECT sum(bytes) FROM cuda_events WHERE op = '{}' AND tid = {}", calls.op, calls.tid);
        assert_eq!(finished.number(&bytes) as u64, calls.bytes, "{}", calls.op);
    }
    let directions = "SELECT count(*) FROM cuda_events WHERE op = 'cuMemcpyHtoD' AND direction <> 'HtoD'";
    assert_eq!(finished.number(directions), 0);
}

#[test]
fn root_an_error_of_the_driver_is_in_the_row() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed)
        .op("cuMemAlloc", Behaviour::Return, Duration::ZERO)
        .returning(2)
        .threads(1)
        .calls(7);
    let (_, finished) = traced(&place, workload, &[]);
    finished.check();
    assert_eq!(finished.number("SELECT count(*) FROM cuda_events WHERE op = 'cuMemAlloc' AND ret_code = 2"), 7);
}

#[test]
fn root_the_statistics_of_all_calls_agree_with_the_rows() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed)
        .op("cuLaunchKernel", Behaviour::Burn, Duration::from_micros(50))
        .threads(2)
        .calls(2000);
    let (_, finished) = traced(&place, workload, &[]);
    finished.check();
    assert_eq!(finished.lost_calls(), 0);
    for (from_rows, from_stats) in [
        ("count(*)", "sum(count)"),
        ("sum(duration_ns)", "sum(sum_ns)"),
        ("min(duration_ns)", "min(min_ns)"),
        ("max(duration_ns)", "max(max_ns)"),
    ] {
        let rows = finished.number(&format!("SELECT {from_rows} FROM cuda_events WHERE op = 'cuLaunchKernel'"));
        let stats = finished.number(&format!("SELECT {from_stats} FROM call_stats WHERE op = 'cuLaunchKernel'"));
        assert_eq!(rows, stats, "{from_rows}");
    }
    let in_buckets = "SELECT sum(value ->> 1) FROM call_stats, json_each(histogram) WHERE op = 'cuLaunchKernel'";
    assert_eq!(finished.number(in_buckets), 4000);
}

#[test]
fn root_short_calls_can_be_counted_without_a_row() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed)
        .op("cuStreamSynchronize", Behaviour::Sleep, Duration::from_millis(3))
        .op("cuLaunchKernel", Behaviour::Return, Duration::ZERO)
        .threads(1)
        .calls(20);
    let (truth, finished) = traced(&place, workload, &["--keep-min", "1ms"]);
    counts_agree(&truth, &finished, "driver");
    // One that lost its CPU meanwhile is not short.
    let short = "SELECT count(*) FROM cuda_events WHERE op = 'cuLaunchKernel' AND duration_ns < 1000000";
    assert_eq!(finished.number(short), 0);
}

#[test]
fn root_the_device_of_a_thread_that_selected_it_long_ago_is_learnt() {
    needs_root();
    let place = Place::new();
    // Longer than two tracers in turn take, also on a busy machine. It is killed when they are done.
    let workload = Workload::new(&place.testbed).mix("chatter").threads(2).devices(2).rate(500.0);
    let mut running = workload.duration(Duration::from_secs(120)).start().unwrap();
    running.wait_ready().unwrap();
    running.go().unwrap();
    // The set-up is over once a first tracer has seen both threads launch.
    let pid = running.pid().to_string();
    let tracing = place.trace(&["-p", &pid]);
    let launching = "SELECT count(DISTINCT tid) FROM cuda_events WHERE op = 'cuLaunchKernel'";
    wait_until("both threads launch", || number_so_far(&place.file(), launching).filter(|threads| *threads == 2));
    tracing.stop();
    std::fs::remove_file(place.file()).unwrap();
    let mut tracing = place.trace(&["-p", &pid]);
    tracing.wait_ready();
    let learnt = "SELECT count(*) FROM (SELECT tid FROM cuda_events WHERE device IS NOT NULL GROUP BY tid \
                  HAVING count(*) > 100)";
    wait_until("the device of both is learnt", || number_so_far(&place.file(), learnt).filter(|threads| *threads == 2));
    let finished = tracing.stop();
    // The kernel lists threads in the order in which they started. Behind the main one, each has the next device.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().skip(1);
    let tids: Vec<String> = tasks.map(|task| task.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(tids.len(), 2, "{tids:?}");
    drop(running);
    finished.check();
    for (device, tid) in tids.iter().enumerate() {
        let wrong = format!(
            "SELECT count(*) FROM cuda_events WHERE tid = {tid} AND device IS NOT {device} AND timestamp_ns > \
             (SELECT min(timestamp_ns) FROM cuda_events WHERE tid = {tid} AND device IS NOT NULL)"
        );
        assert_eq!(finished.number(&wrong), 0, "thread {tid} of device {device}");
    }
    assert_eq!(finished.number("SELECT count(*) FROM call_stats WHERE op = 'cuCtxGetDevice'"), 0);
}
