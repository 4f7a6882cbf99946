//! Workloads do what they were asked to do, and say so.

#![allow(clippy::unwrap_used)]

use gpuwhy_testbed::{Behaviour, Bench, Testbed, Truth, Workload};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Unpacks a testbed, runs the workload that `configure` makes and returns what it says.
fn run(configure: impl FnOnce(&Testbed) -> Workload) -> Truth {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    configure(&testbed).start().unwrap().finish().unwrap()
}

#[test]
fn every_thread_makes_the_calls_it_was_asked_for() {
    let truth = run(|testbed| Workload::new(testbed).threads(3).calls(500).mix("launch"));
    assert_eq!(truth.calls_of("cuLaunchKernel"), 1500);
    assert_eq!(truth.tids().len(), 3);
    assert!(truth.rows_of("cuLaunchKernel").all(|row| row.calls == 500 && row.tid != row.pid));
}

#[test]
fn setting_up_a_device_is_part_of_the_truth() {
    let truth = run(|testbed| Workload::new(testbed).threads(4).devices(4).calls(1).mix("launch"));
    assert_eq!(truth.calls_of("cuCtxSetCurrent"), 4);
    let mut devices: Vec<_> = truth.rows_of("cuCtxSetCurrent").map(|row| (row.device, row.errors)).collect();
    devices.sort_unstable();
    assert_eq!(devices, [(0, 0), (1, 0), (2, 0), (3, 0)]);
}

#[test]
fn the_mix_goes_through_its_functions_in_turn() {
    let truth = run(|testbed| Workload::new(testbed).calls(90));
    assert_eq!(truth.calls_of("cuMemAlloc"), 10);
    assert_eq!(truth.calls_of("cuMemFree"), 10);
    assert_eq!(truth.rows_of("cuMemAlloc").next().unwrap().bytes, 10 * (16 << 20));
}

#[test]
fn a_graph_is_captured_once_and_launched_many_times() {
    let truth = run(|testbed| Workload::new(testbed).calls(100).mix("graph"));
    assert_eq!(truth.calls_of("cuGraphLaunch"), 100);
    assert_eq!(truth.calls_of("cuGraphInstantiateWithFlags"), 1);
    assert_eq!(truth.calls_of("cuLaunchKernel"), 2);
}

#[test]
fn runtime_calls_go_through_both_builds_of_the_runtime() {
    for workload in [|testbed: &Testbed| Workload::new(testbed).nested(), Workload::statically_linked] {
        let truth = run(|testbed| workload(testbed).calls(80));
        assert_eq!(truth.calls_of("cudaLaunchKernel"), 10);
        assert_eq!(truth.calls_of("cudaSetDevice"), 1);
        assert!(truth.calls.iter().all(|row| row.layer == "runtime" && row.errors == 0));
    }
}

#[test]
fn each_behaviour_takes_the_time_it_was_given() {
    use Behaviour::{Burn, Futex, Io, Pipe, Sleep};
    for behaviour in [Burn, Sleep, Futex, Pipe, Io] {
        let truth = run(|testbed| Workload::new(testbed).calls(5).op("cuStreamSynchronize", behaviour, MILLISECOND));
        let row = truth.rows_of("cuStreamSynchronize").next().unwrap().clone();
        assert!(row.calls == 5 && row.wall_ns >= 5_000_000, "{behaviour:?}: {row:?}");
        assert_eq!(row.releaser_tid != 0, matches!(behaviour, Futex | Pipe));
    }
}

#[test]
fn a_function_fails_when_told_to() {
    let truth = run(|testbed| {
        Workload::new(testbed).nested().calls(7).op("cudaMalloc", Behaviour::Return, Duration::ZERO).returning(2)
    });
    assert_eq!(truth.rows_of("cudaMalloc").next().unwrap().errors, 7);
}

#[test]
fn pacing_keeps_the_rate() {
    let truth = run(|testbed| Workload::new(testbed).mix("launch").rate(2000.0).duration(Duration::from_millis(500)));
    // A busy machine may fall behind; it never runs ahead.
    let calls = truth.calls_of("cuLaunchKernel");
    assert!((100..=1001).contains(&calls), "{calls}");
}

#[test]
fn a_library_can_be_loaded_after_the_start() {
    let truth = run(|testbed| Workload::new(testbed).dlopen(&testbed.libcuda_endbr()).calls(10).mix("launch"));
    assert_eq!(truth.calls_of("cuLaunchKernel"), 10);
}

#[test]
fn threads_that_die_inside_a_call_leave_it_open() {
    let truth = run(|testbed| Workload::new(testbed).threads(2).calls(10).mix("launch").die_inside());
    assert!(truth.rows_of("cuLaunchKernel").all(|row| (row.calls, row.abandoned) == (9, 1)));
    assert_eq!(truth.calls_of("cuLaunchKernel"), 18);
}

#[test]
fn every_second_call_can_be_jumped_out_of() {
    for layer in [|testbed: &Testbed| Workload::new(testbed), Workload::statically_linked] {
        let truth = run(|testbed| layer(testbed).calls(10).mix("launch").longjmp());
        let row = truth.calls.iter().find(|row| row.op.ends_with("LaunchKernel")).unwrap();
        assert_eq!((row.calls, row.abandoned), (5, 5));
    }
}

#[test]
fn a_child_forked_inside_a_call_counts_only_its_own_calls() {
    let truth = run(|testbed| Workload::new(testbed).calls(20).mix("launch").fork_inside());
    let child = truth.ends.iter().find_map(|end| end.child_pid).unwrap();
    let by_child: u64 = truth.rows_of("cuLaunchKernel").filter(|row| row.pid == child).map(|row| row.calls).sum();
    assert_eq!((by_child, truth.calls_of("cuLaunchKernel")), (10, 30));
}

#[test]
fn a_process_that_replaces_its_image_makes_its_calls_twice() {
    let truth = run(|testbed| Workload::new(testbed).calls(5).mix("launch").exec_self());
    let images: Vec<_> = truth.rows_of("cuLaunchKernel").map(|row| (row.image, row.calls)).collect();
    assert_eq!(images, [(0, 5), (1, 5)]);
    assert_eq!(truth.ends[0].pid, truth.ends[1].pid);
}

#[test]
fn thread_names_may_hold_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    let workload = Workload::new(&testbed).threads(0).calls(1).name(r"\x1b[31m\xff").wait_end();
    let mut running = workload.start().unwrap();
    running.go().unwrap();
    running.wait_done().unwrap();
    let comm = std::fs::read(format!("/proc/{}/comm", running.pid())).unwrap();
    assert_eq!(comm, b"\x1b[31m\xff\n");
    running.finish().unwrap();
}

#[test]
fn the_python_workload_tells_its_truth() {
    let truth = run(|testbed| Workload::python(testbed).steps(5));
    assert_eq!(truth.calls_of("cudaLaunchKernel"), 50);
    assert_eq!(truth.calls_of("cudaMemcpyAsync"), 10);
    assert_eq!(truth.total_calls(), truth.ends[0].calls);
}

#[test]
fn a_bench_round_makes_its_calls_on_every_thread() {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    let mut bench = Bench::start(&testbed, 2).unwrap();
    for round in 0..3 {
        let result = bench.round(10_000).unwrap();
        assert_eq!((result.round, result.calls, result.by_thread.len()), (round, 10_000, 2));
        assert!(result.ns_per_call > 0.0);
    }
}
