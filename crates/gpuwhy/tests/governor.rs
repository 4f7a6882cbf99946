//! The governor: what gives when calls are too many for the budget, and what never does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gpuwhy_apis::rows;
use gpuwhy_capture::{Image, InBursts, Options, Record, Sampling, Tracer};
use gpuwhy_testbed::{LaunchLoop, LoopTruth, RunningLoop};
use libbpf_rs::query::LinkInfoIter;
use support::{Finished, Place, needs_root, wait_until};

const STORM: f64 = 100_000.0;
/// So few that watching all of them fits into the budget, also where the CPU is slow.
const CALM: f64 = 100.0;

/// A launch loop that has not begun yet, and how to trace it: `gpuwhy trace -p` with these arguments.
fn traced(place: &Place, launch_loop: LaunchLoop, arguments: &[&str], seconds: u64) -> (LoopTruth, Finished) {
    let mut running = launch_loop.start().unwrap();
    let pid = running.pid().to_string();
    let mut tracing = place.trace(&[&["-p", pid.as_str()], arguments].concat());
    tracing.wait_ready();
    running.go().unwrap();
    running.slice(Duration::from_secs(seconds)).unwrap();
    let truth = running.finish().unwrap();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{status}");
    (truth, finished)
}

fn launches(truth: &LoopTruth) -> u64 {
    truth.threads.iter().map(|thread| thread.calls).sum()
}

#[test]
fn root_a_program_that_launches_now_and_then_has_every_call_kept_within_the_default_budget() {
    needs_root();
    let place = Place::new();
    let launch_loop = LaunchLoop::new(&place.testbed).rate(CALM);
    // What the tracer itself uses is known after some seconds, and counts.
    let (truth, finished) = traced(&place, launch_loop, &["--budget", "1%"], 6);
    finished.check();
    assert_eq!(
        finished.number("SELECT count(*) FROM cuda_events WHERE op = 'cuLaunchKernel'") as u64,
        launches(&truth)
    );
    assert_eq!(finished.number("SELECT count(*) FROM rungs"), 0);
    assert_eq!(finished.number("SELECT count(*) FROM call_stats WHERE fraction < 1 OR variance > 0"), 0);
}

#[test]
fn root_a_storm_is_seen_in_bursts_and_its_count_is_an_estimate_that_says_so() {
    needs_root();
    let place = Place::new();
    let launch_loop = LaunchLoop::new(&place.testbed).rate(STORM);
    let (truth, finished) = traced(&place, launch_loop, &["--budget", "1%"], 6);
    let lowest = "SELECT max(rung IN ('bursts', 'counters')) FROM rungs WHERE op = 'cuLaunchKernel' AND fraction < 0.5";
    assert_eq!(finished.number(lowest), 1);
    let made = launches(&truth);
    let seen = finished.number("SELECT sum(count) FROM call_stats WHERE op = 'cuLaunchKernel'") as u64;
    assert!(seen < made / 2, "{seen} of {made} were seen");
    assert_eq!(seen, finished.number("SELECT seen FROM sessions") as u64);
    // Four standard deviations: a test may not fail in one of twenty runs. `./dev bench estimates` counts the runs.
    let off = format!(
        "SELECT CAST(abs(sum(estimate) - {made}) <= 4 * sqrt(sum(variance)) AS INTEGER) \
         FROM call_stats WHERE op = 'cuLaunchKernel'"
    );
    let estimate = finished.number("SELECT sum(estimate) FROM call_stats");
    assert_eq!(finished.number(&off), 1, "{estimate} calls estimated, {made} made");
    assert!(estimate.abs_diff(made as i64) < made / 4, "{estimate} calls estimated, {made} made");
    assert_eq!(finished.number("SELECT count(*) FROM call_stats WHERE fraction > 1 OR estimate < count"), 0);
}

#[test]
fn root_rare_and_slow_calls_are_all_kept_with_their_split_during_a_storm_on_the_lowest_rung() {
    needs_root();
    for op in ["cuStreamSynchronize", "cuMemAlloc", "cuMemcpyHtoDAsync"] {
        let place = Place::new();
        let length = Duration::from_millis(5);
        let launch_loop = LaunchLoop::new(&place.testbed).rate(STORM).slow_op(op, Duration::from_millis(15), length);
        let (truth, finished) = traced(&place, launch_loop, &["--budget", "1%", "--rung", "counters"], 4);
        let slow = truth.slow_op.unwrap();
        assert!(slow.starts_ns.len() >= 100, "{} slow calls", slow.starts_ns.len());
        assert!(finished.number("SELECT count(*) FROM rungs WHERE rung = 'counters' AND op = 'cuLaunchKernel'") >= 1);
        let kept = |and: &str| {
            let sql = format!("SELECT count(*) FROM cuda_events WHERE op = '{op}' AND tid = {} AND {and}", slow.tid);
            finished.number(&sql) as usize
        };
        let whole =
            format!("duration_ns >= {} AND running_ns + runqueue_ns + blocked_ns = duration_ns", length.as_nanos());
        assert_eq!(kept(&whole), slow.starts_ns.len(), "{op}");
        // A hypervisor may take the CPU away on the way to the sleep, which then is over before it has begun.
        let asleep = kept(&format!("blocked_on = 'sleep' AND blocked_ns >= 0.8 * {}", length.as_nanos()));
        assert!(asleep >= slow.starts_ns.len() * 9 / 10, "{op}: {asleep} of {}", slow.starts_ns.len());
    }
}

#[test]
fn root_a_calm_process_has_every_call_seen_beside_a_storm_in_the_same_library() {
    needs_root();
    let place = Place::new();
    let mut storm = LaunchLoop::new(&place.testbed).rate(STORM).start().unwrap();
    let mut calm = LaunchLoop::new(&place.testbed).rate(CALM).start().unwrap();
    let (storm_pid, calm_pid) = (storm.pid().to_string(), calm.pid().to_string());
    let mut tracing = place.trace(&["-p", &storm_pid, "-p", &calm_pid, "--budget", "1%"]);
    tracing.wait_ready();
    calm.go().unwrap();
    storm.go().unwrap();
    tracing.wait_for("cuLaunchKernel of launch_loop");
    calm.slice(Duration::from_secs(3)).unwrap();
    let calm_truth = calm.finish().unwrap();
    storm.finish().unwrap();
    let (_, finished) = tracing.wait_finished();
    let counted = finished.number(&format!("SELECT sum(count) FROM call_stats WHERE pid = {calm_pid}"));
    let cut_off = finished.loss("cut_off");
    let made = launches(&calm_truth) as i64;
    assert!(counted <= made && counted + cut_off >= made, "{counted} counted, {cut_off} cut off, {made} made");
    let rungs = format!("SELECT count(*) FROM rungs WHERE pid = {calm_pid}");
    assert_eq!(finished.number(&rungs), 0, "its functions stay on the highest rung");
    let kept = finished.number(&format!("SELECT count(*) FROM cuda_events WHERE pid = {calm_pid}"));
    assert_eq!(kept, counted);
}

#[test]
fn root_a_stall_brings_back_the_calls_before_it() {
    needs_root();
    // One launch in 4,000 takes 20 ms, the others a few microseconds, of which no row is kept.
    let place = Place::new();
    let launch_loop = LaunchLoop::new(&place.testbed).rate(5_000.0).bimodal(0.00025, Duration::from_millis(20));
    let (_, finished) = traced(&place, launch_loop, &["--budget", "1%", "--rung", "slow-only"], 5);
    let raised = "SELECT coalesce(min(at_ns), 0) FROM rungs WHERE rung = 'everything' AND reason LIKE '%took % ms%'";
    let raised_ns = finished.number(raised);
    assert!(raised_ns > 0, "no stall was noticed: {:#?}", finished.log);
    let before = format!(
        "SELECT count(*) FROM cuda_events WHERE op = 'cuLaunchKernel' AND duration_ns < 1000000 \
         AND timestamp_ns BETWEEN {raised_ns} - 1500000000 AND {raised_ns}"
    );
    assert!(finished.number(&before) > 500, "the calls of the second before the stall are there");
    assert_eq!(
        finished.number("SELECT count(*) FROM (SELECT DISTINCT timestamp_ns FROM cuda_events)"),
        finished.number("SELECT count(*) FROM cuda_events")
    );
}

#[test]
fn root_the_trace_says_what_tracing_costs() {
    needs_root();
    let place = Place::new();
    let launch_loop = LaunchLoop::new(&place.testbed).rate(20_000.0);
    let (_, finished) = traced(&place, launch_loop, &["--budget", "2%"], 6);
    let figures = finished.rows("SELECT what FROM calibrations WHERE ns > 0");
    assert_eq!(figures.len(), 7, "{figures:?}");
    let order = "SELECT (SELECT ns FROM calibrations WHERE what = 'skipped hit') < \
                 (SELECT ns FROM calibrations WHERE what = 'kept call')";
    assert_eq!(finished.number(order), 1);
    assert_eq!(finished.number("SELECT budget = 0.02 FROM sessions"), 1);
    assert!(finished.number("SELECT count(*) FROM agent_usage WHERE cpu_ns > 0 AND cpu_ns < 4 * wall_ns") >= 2);
    assert!(finished.number("SELECT count(*) FROM thread_times WHERE tracer_ns > 0 AND tracer_ns < wall_ns") >= 2);
    let said = finished.log.iter().any(|line| line.contains("tracing took at most"));
    assert!(said, "{:#?}", finished.log);
}

#[test]
fn root_a_suspended_tracer_takes_its_probes_out_and_puts_them_back() {
    needs_root();
    let place = Place::new();
    let mut running = LaunchLoop::new(&place.testbed).rate(2_000.0).start().unwrap();
    let pid = running.pid().to_string();
    let before = links();
    let mut tracing = place.trace(&["-p", &pid]);
    tracing.wait_ready();
    running.go().unwrap();
    running.slice(Duration::from_millis(500)).unwrap();
    // What the program uses is attached by now.
    let traced = links();
    tracing.signal(libc::SIGTSTP);
    let stat = format!("/proc/{}/stat", tracing.pid());
    wait_until("the tracer stops", || std::fs::read_to_string(&stat).unwrap().contains(") T ").then_some(()));
    // Its hooks stay; the files' links are gone.
    let suspended = links();
    assert!(before < suspended && suspended + 2 <= traced, "{before}, {traced} and {suspended} links");
    let unseen = running.slice(Duration::from_secs(1)).unwrap().threads[0].calls;
    tracing.signal(libc::SIGCONT);
    tracing.wait_for("continued after");
    running.slice(Duration::from_millis(500)).unwrap();
    let made = launches(&running.finish().unwrap());
    let (_, finished) = tracing.wait_finished();
    finished.check();
    let seen = finished.number("SELECT sum(count) FROM call_stats") as u64;
    assert!(seen <= made - unseen && seen > made / 4, "{seen} of {made} seen, {unseen} made while it was suspended");
    assert_eq!(finished.number("SELECT count(*) FROM warnings WHERE text LIKE 'suspended%'"), 1);
}

/// Every link of every program in the kernel; other tests do not run meanwhile.
fn links() -> usize {
    LinkInfoIter::default().count()
}

#[test]
fn root_a_thousand_changes_under_load_lose_no_call_and_leave_no_link() {
    needs_root();
    let place = Place::new();
    let before = links();
    let launch = rows().position(|row| row.api.name == "cuLaunchKernel").unwrap() as u16;
    let mut storm = LaunchLoop::new(&place.testbed).rate(STORM).start().unwrap();
    let mut calm = LaunchLoop::new(&place.testbed).rate(2_000.0).start().unwrap();
    let mut tracer: Tracer<()> = Tracer::load(&Options::default()).unwrap();
    let library = place.testbed.libcuda();
    tracer.attach((), &library, &Image::read(&library).unwrap()).unwrap().unwrap();
    storm.go().unwrap();
    calm.go().unwrap();

    let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
    let mut count = |deltas: Vec<gpuwhy_capture::CountDelta>| {
        for delta in deltas.iter().filter(|delta| delta.row == launch) {
            *counted.entry(delta.task.pid).or_default() += delta.count;
        }
    };
    let in_bursts = |in_bursts| Sampling {
        rows: BTreeMap::from([(launch, in_bursts)]),
        exempt: BTreeSet::from([(calm.pid(), launch)]),
    };
    for turn in 0..250 {
        let how = if turn % 2 == 0 { InBursts::Kept } else { InBursts::Counted };
        count(tracer.sample(in_bursts(how)).1);
        open_burst(&mut tracer);
        count(tracer.close_burst().1);
        count(tracer.sample(Sampling::default()).1);
        count(tracer.tick().unwrap().0);
        drop(tracer.drain());
        still_runs(&mut storm);
    }
    let calm_pid = calm.pid();
    let truth = calm.finish().unwrap();
    storm.finish().unwrap();
    tracer.detach().unwrap();
    for record in tracer.drain_all() {
        if let Record::ThreadExit(snapshot) = record {
            count(tracer.close(snapshot.owner));
        }
    }
    count(tracer.tick().unwrap().0);
    let losses = tracer.losses().unwrap();
    let cut_off = losses.get(gpuwhy_model::LossReason::CutOff);
    let (made, seen) = (launches(&truth), counted[&calm_pid]);
    assert!(seen <= made && seen + cut_off >= made, "{seen} seen, {cut_off} cut off, {made} made; {losses:?}");
    drop(tracer);
    wait_until("every link is gone", || (links() == before).then_some(()));
}

fn open_burst(tracer: &mut Tracer<()>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while tracer.open_burst(false).is_none() {
        assert!(Instant::now() < deadline, "the links of the last burst stay");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn still_runs(running: &mut RunningLoop) {
    assert!(running.slice(Duration::from_millis(1)).is_ok(), "the workload died");
}
