//! The launch loop does a fixed amount of work per launch, and says what it did.

#![allow(clippy::unwrap_used)]

use gpuwhy_testbed::{LaunchLoop, LoopTruth, RunningLoop, Testbed};
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(200);

/// Unpacks a testbed, lets the loop that `configure` makes go, shows it to `look` and returns what it says.
fn run(configure: impl FnOnce(LaunchLoop) -> LaunchLoop, look: impl FnOnce(&mut RunningLoop)) -> LoopTruth {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    let mut running = configure(LaunchLoop::new(&testbed)).start().unwrap();
    running.go().unwrap();
    look(&mut running);
    running.finish().unwrap()
}

#[test]
fn a_slice_says_what_every_thread_did_while_it_ran_on() {
    let mut seen = 0;
    let truth = run(
        |launch_loop| launch_loop.threads(2).rate(20_000.0),
        |running| {
            for _ in 0..2 {
                let slice = running.slice(SLICE).unwrap();
                assert_eq!(slice.threads.len(), 2);
                assert!(slice.wall_ns >= SLICE.as_nanos() as u64);
                for thread in slice.threads {
                    assert!(thread.calls > 0 && thread.cpu_ns > 0);
                    assert!((thread.rounds - thread.calls as f64).abs() <= 2.0, "{thread:?}");
                    seen += thread.calls;
                }
            }
        },
    );
    assert_eq!(truth.threads.len(), 2);
    assert_ne!(truth.threads[0].tid, truth.threads[1].tid);
    assert!(truth.threads.iter().map(|thread| thread.calls).sum::<u64>() >= seen);
    assert!(truth.threads.iter().all(|thread| thread.slow_calls == 0) && truth.slow_op.is_none());
}

#[test]
fn the_work_takes_about_the_time_that_the_rate_leaves() {
    for rate in [100.0, 10_000.0] {
        run(
            |launch_loop| launch_loop.rate(rate),
            |running| {
                // In CPU time, which a busy machine cannot take away. Its cores may clock up and down.
                let per_cpu_second = running.slice(SLICE).unwrap().rounds_per_cpu_second();
                assert!((rate / 3.0..rate * 3.0).contains(&per_cpu_second), "{per_cpu_second} of {rate}");
            },
        );
    }
}

#[test]
fn a_share_of_the_launches_is_slow() {
    let truth = run(
        |launch_loop| launch_loop.rate(50_000.0).bimodal(0.1, Duration::from_micros(50)),
        |running| {
            running.slice(SLICE * 2).unwrap();
        },
    );
    let thread = &truth.threads[0];
    let share = thread.slow_calls as f64 / thread.calls as f64;
    assert!((0.05..0.2).contains(&share), "{thread:?}");
}

#[test]
fn every_slow_call_is_told_with_its_start() {
    for op in ["cuStreamSynchronize", "cuMemAlloc", "cuMemcpyHtoDAsync"] {
        let (every, length) = (Duration::from_millis(10), Duration::from_millis(5));
        let truth = run(
            |launch_loop| launch_loop.slow_op(op, every, length),
            |running| {
                running.slice(SLICE).unwrap();
            },
        );
        let slow_op = truth.slow_op.unwrap();
        assert_eq!(slow_op.op, op);
        assert_ne!(slow_op.tid, truth.threads[0].tid);
        assert!(slow_op.starts_ns.len() >= 2, "{slow_op:?}");
        let gaps = slow_op.starts_ns.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min().unwrap() >= length.as_nanos() as u64, "{slow_op:?}");
    }
}

#[test]
fn a_slow_op_that_does_not_exist_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    let launch_loop = LaunchLoop::new(&testbed).slow_op("cuNothing", SLICE, SLICE);
    let mut running = launch_loop.start().unwrap();
    running.go().unwrap();
    assert!(running.finish().is_err());
}
