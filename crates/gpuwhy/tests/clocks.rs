//! Where a call's time goes: the trace against the kernel's own clocks of the same threads in the same calls.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::time::Duration;

use gpuwhy_store::Value;
use gpuwhy_testbed::{Behaviour, Truth, Workload};
use support::{Finished, Place, needs_root, stolen_ns, traced};

const OP: &str = "cuStreamSynchronize";
const CALLS: u64 = 50;

/// Between the workload's looks at a clock and the probes there are microseconds, in which a thread may lose its CPU.
const NEAR: f64 = 0.02;

/// Sums over all calls of the function, in nanoseconds.
#[derive(Debug)]
struct Split {
    duration: f64,
    running: f64,
    queued: f64,
    blocked: f64,
}

impl Split {
    fn of_trace(finished: &Finished) -> Self {
        let sum =
            |column: &str| finished.number(&format!("SELECT sum({column}) FROM cuda_events WHERE op = '{OP}'")) as f64;
        Self {
            duration: sum("duration_ns"),
            running: sum("running_ns"),
            queued: sum("runqueue_ns"),
            blocked: sum("blocked_ns"),
        }
    }

    /// What is left of a call when its time on a CPU and its time waiting for one are taken away is time blocked.
    fn of_kernel(truth: &Truth) -> Self {
        let sum = |of: fn(&gpuwhy_testbed::CallTruth) -> u64| truth.rows_of(OP).map(of).sum::<u64>() as f64;
        let duration = sum(|calls| calls.wall_ns);
        let (running, queued) = (sum(|calls| calls.cpu_ns), sum(|calls| calls.run_queue_ns));
        Self { duration, running, queued, blocked: (duration - running - queued).max(0.0) }
    }

    /// While a hypervisor has the CPU, the kernel's clock of a thread that runs stands still, and a thread that is woken
    /// there waits for a CPU by the trace, which sees who wakes it, and is still blocked by the kernel, which counts from
    /// when that CPU puts it into its queue. Where nothing is stolen, both say the same.
    fn agrees_with(&self, kernel: &Self, stolen: f64) {
        let off = NEAR * kernel.duration;
        let what = format!("{self:#?} in the trace, {kernel:#?} by the kernel's clocks, {stolen} ns stolen");
        for (name, ours, kernels, less, more) in [
            // The workload looks at its clock outside of the probes.
            ("duration", self.duration, kernel.duration, stolen, 0.0),
            ("queued", self.queued, kernel.queued, 0.0, stolen),
            ("running", self.running, kernel.running, 0.0, stolen),
            ("blocked", self.blocked, kernel.blocked, stolen, 0.0),
        ] {
            assert!((kernels - less - off..=kernels + more + off).contains(&ours), "{name}: {what}");
        }
    }
}

/// Runs the workload under the tracer; the hypervisor's part comes with it.
fn measured(place: &Place, workload: Workload) -> (Truth, Finished, f64) {
    let before = stolen_ns();
    let (truth, finished) = traced(place, workload.clocks(), &[]);
    finished.check();
    (truth, finished, stolen_ns() - before)
}

fn lands_in(behaviour: Behaviour, reason: Option<&str>) -> (Truth, Finished) {
    let place = Place::new();
    let workload = Workload::new(&place.testbed).op(OP, behaviour, Duration::from_millis(20)).threads(1).calls(CALLS);
    let (truth, finished, stolen) = measured(&place, workload);
    let (trace, kernel) = (Split::of_trace(&finished), Split::of_kernel(&truth));
    trace.agrees_with(&kernel, stolen);
    // Each call lasts 20 ms, on a CPU or blocked. Time waiting for a CPU is on top, or shortens a wait with a set end.
    let landed = if reason.is_some() { trace.blocked } else { trace.running };
    assert!(landed + trace.queued + stolen >= 0.95 * CALLS as f64 * 20e6, "{behaviour:?}: {trace:#?}");
    // As many calls as gave up the CPU by the kernel's count, and for the reason that they had.
    let of_reason = reason.map_or("NULL".to_owned(), |reason| format!("'{reason}'"));
    let waited = format!("SELECT count(*) FROM cuda_events WHERE op = '{OP}' AND blocked_ns > 0");
    let named = finished.number(&format!("{waited} AND blocked_on IS {of_reason}")) as u64;
    let waiting_calls: u64 = truth.rows_of(OP).map(|calls| calls.waiting_calls).sum();
    assert_eq!((named, finished.number(&waited) as u64), (waiting_calls, waiting_calls), "{behaviour:?}");
    (truth, finished)
}

/// The thread that ends the waits is named for nearly all of them: one it ends inside an interrupt is nobody's.
fn is_woken_by_the_releaser((truth, finished): &(Truth, Finished)) {
    let row = truth.rows_of(OP).next().unwrap();
    let releaser = row.releaser_tid;
    let woken = finished.number(&format!("SELECT count(*) FROM cuda_events WHERE woken_by_tid = {releaser}")) as u64;
    assert!(woken + 2 >= row.waiting_calls, "the releasing thread woke {woken} of {}", row.waiting_calls);
}

#[test]
fn root_time_spent_computing_is_running_time() {
    needs_root();
    lands_in(Behaviour::Burn, None);
}

#[test]
fn root_time_spent_sleeping_is_blocked_time() {
    needs_root();
    lands_in(Behaviour::Sleep, Some("sleep"));
}

#[test]
fn root_a_lock_held_by_another_thread_names_the_thread_that_released_it() {
    needs_root();
    is_woken_by_the_releaser(&lands_in(Behaviour::Futex, Some("futex")));
}

#[test]
fn root_a_pipe_names_the_thread_that_wrote_to_it() {
    needs_root();
    is_woken_by_the_releaser(&lands_in(Behaviour::Pipe, Some("stream")));
}

#[test]
fn root_reading_a_disk_is_io() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).op(OP, Behaviour::Io, Duration::from_millis(20)).threads(1).calls(20);
    let (truth, finished, _) = measured(&place, workload);
    let blocked = format!("SELECT count(*) FROM cuda_events WHERE op = '{OP}' AND blocked_ns > 0");
    let of_reason = |reason| finished.number(&format!("{blocked} AND blocked_on {reason}")) as u64;
    let waiting_calls = truth.rows_of(OP).next().unwrap().waiting_calls;
    assert_eq!(of_reason("IS NOT NULL"), waiting_calls);
    // On a busy machine, a read may wait longer for the file system than for the disk.
    assert!(of_reason("= 'io'") * 4 >= waiting_calls * 3, "{} of {waiting_calls}", of_reason("= 'io'"));
}

#[test]
fn root_time_spent_waiting_for_a_cpu_is_run_queue_time_and_names_who_took_it() {
    needs_root();
    // Two threads that burn share one CPU: half of each one's time is spent in the run queue.
    let place = Place::new();
    let workload = Workload::new(&place.testbed)
        .op(OP, Behaviour::Burn, Duration::from_millis(200))
        .threads(2)
        .calls(5)
        .through(&["taskset", "-c", "0"]);
    let (truth, finished, stolen) = measured(&place, workload);
    let kernel = Split::of_kernel(&truth);
    Split::of_trace(&finished).agrees_with(&kernel, stolen);

    // Whoever else had the CPU kept both from it, and is named where it had more of a wait than the sibling.
    let from = truth.rows_of(OP).map(|calls| calls.first_ns).min().unwrap();
    let to = truth.rows_of(OP).map(|calls| calls.last_ns).max().unwrap();
    let others = ((to - from) as f64 - kernel.running).max(0.0);
    let pid = truth.ends[0].pid;
    let queued = finished.number("SELECT sum(runqueue_ns) FROM sched_events") as f64;
    let by_sibling = finished.number(&format!(
        "SELECT sum(taken_by_ns) FROM sched_events WHERE taken_by_pid = {pid} AND taken_by_tid <> tid"
    )) as f64;
    assert!(
        by_sibling >= 0.95 * queued - 4.0 * others,
        "the sibling had the CPU for {by_sibling} ns of {queued}, others for {others}"
    );
}

#[test]
fn root_a_threads_whole_wall_time_is_accounted_for() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed)
        .op(OP, Behaviour::Sleep, Duration::from_millis(5))
        .threads(2)
        .rate(50.0)
        .duration(Duration::from_secs(2));
    let (truth, finished, stolen) = measured(&place, workload);
    for calls in truth.rows_of(OP) {
        let clocks = truth.clocks.iter().find(|clocks| clocks.tid == calls.tid).unwrap();
        let row = finished.rows(&format!(
            "SELECT sum(wall_ns), sum(running_ns + runqueue_ns + blocked_ns), sum(in_calls_ns), sum(sleep_ns), \
             sum(runqueue_ns) FROM thread_times WHERE tid = {}",
            calls.tid
        ));
        let [
            Value::Integer(wall),
            Value::Integer(parts),
            Value::Integer(in_calls),
            Value::Integer(slept),
            Value::Integer(queued),
        ] = row[0][..]
        else {
            panic!("{row:?}");
        };
        assert_eq!(wall, parts);
        let [wall, in_calls, slept, queued] = [wall, in_calls, slept, queued].map(|ns| ns as f64);
        let active = (calls.last_ns - calls.first_ns) as f64;
        let off = NEAR * active;
        assert!(wall >= active - stolen - off, "{wall} ns of {active} ns are accounted for");
        // It does nothing but sleep when it neither runs nor waits for a CPU.
        let (ran, waited) = (clocks.cpu_ns as f64, clocks.run_queue_ns as f64);
        let what = format!("{queued} ns waiting for a CPU; by the kernel's clock {waited}, {stolen} stolen");
        assert!((waited - off..=waited + stolen + off).contains(&queued), "{what}");
        assert!(slept >= active - ran - waited - stolen - off, "slept {slept} of {wall}; ran {ran}, waited {waited}");
        let (measured, what) = (calls.wall_ns as f64, format!("{in_calls} ns in calls, {} measured", calls.wall_ns));
        assert!((measured - stolen - off..=measured + off).contains(&in_calls), "{what}");
    }
}
