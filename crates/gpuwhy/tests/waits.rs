//! What holds threads up: every stretch off the CPU has its reason, what it waited on, and who ended it.

mod support;

use std::time::Duration;

use gpuwhy_testbed::{Behaviour, Workload};
use support::{Finished, Place, needs_root, stolen_ns, traced};

const REASONS: [&str; 8] = ["futex", "io", "fault", "sleep", "poll", "stream", "ioctl", "other"];

/// Short stretches share a record, so at most one of each kind has none at the end.
const UNREPORTED_NS: i64 = 2_000_000;

fn stretches_add_up(finished: &Finished) {
    for reason in REASONS {
        let off = finished.number(&format!(
            "SELECT coalesce(max(abs(t.ns - coalesce(s.ns, 0))), 0) FROM \
             (SELECT tid, sum({reason}_ns) AS ns FROM thread_times GROUP BY tid) t LEFT JOIN \
             (SELECT tid, sum(all_blocked_ns) AS ns FROM sched_events WHERE blocked_on = '{reason}' GROUP BY tid) s \
             USING (tid)"
        ));
        // The last request of a thread has no record either, nor has the last page that is read for it, and how long
        // they take is the disk's to say.
        let last = format!("SELECT coalesce(max(blocked_ns), 0) FROM sched_events WHERE blocked_on = '{reason}'");
        let is_disks = ["io", "fault"].contains(&reason);
        let allowed = if is_disks { UNREPORTED_NS.max(finished.number(&last)) } else { UNREPORTED_NS };
        assert!(off <= allowed, "{reason}: stretches and clocks differ by {off} ns");
    }
}

#[test]
fn root_a_wait_for_a_lock_names_the_lock_and_who_gave_it_back() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed)
        .op("cuStreamSynchronize", Behaviour::Futex, Duration::from_millis(3))
        .threads(2)
        .calls(100)
        .clocks();
    let before = stolen_ns();
    let (truth, finished) = traced(&place, workload, &[]);
    let stolen = (stolen_ns() - before) as i64;
    stretches_add_up(&finished);
    for row in truth.rows_of("cuStreamSynchronize") {
        let (tid, releaser) = (row.tid, row.releaser_tid);
        let of_thread = format!("FROM sched_events WHERE tid = {tid} AND op = 'cuStreamSynchronize'");
        let all = finished.number(&format!("SELECT sum(all_blocked_ns) {of_thread}"));
        let named = finished.number(&format!(
            "SELECT sum(all_blocked_ns) {of_thread} AND blocked_on = 'futex' AND target_kind = 'lock' \
             AND woken_by_tid = {releaser}"
        ));
        assert!(named * 100 >= all * 95, "{named} ns of {all} are told as the releaser's");
        // What is neither time on a CPU nor time waiting for one, by the kernel's clocks.
        let blocked = row.wall_ns.saturating_sub(row.cpu_ns + row.run_queue_ns) as i64;
        // What the host took from this machine is in neither.
        let least = blocked * 95 / 100 - stolen;
        assert!(all + UNREPORTED_NS >= least, "{all} ns of waiting, {blocked} by the kernel's clocks");
    }
}

#[test]
fn root_whoever_ends_waits_is_followed_from_then_on() {
    needs_root();
    let place = Place::new();
    let workload =
        Workload::new(&place.testbed).op("cuStreamSynchronize", Behaviour::Futex, Duration::from_millis(3)).calls(200);
    let (truth, finished) = traced(&place, workload, &[]);
    let releaser = truth.calls[0].releaser_tid;
    let wall = finished.number(&format!("SELECT sum(wall_ns) FROM thread_times WHERE tid = {releaser}"));
    let asleep = finished.number(&format!("SELECT sum(sleep_ns) FROM thread_times WHERE tid = {releaser}"));
    assert!(wall > 500_000_000, "the releaser is watched for {wall} ns");
    // A thread that is awake and has no CPU has nothing to say about what it does.
    let queued = finished.number(&format!("SELECT sum(runqueue_ns) FROM thread_times WHERE tid = {releaser}"));
    assert!(asleep * 100 >= (wall - queued) * 70, "it sleeps {asleep} ns of {wall} before it gives the lock back");
}

#[test]
fn root_a_wait_for_a_pipe_and_a_disk_name_what_was_waited_for() {
    needs_root();
    for (behaviour, reason, kind) in [(Behaviour::Pipe, "stream", "pipe"), (Behaviour::Io, "io", "file")] {
        let place = Place::new();
        let workload =
            Workload::new(&place.testbed).op("cuStreamSynchronize", behaviour, Duration::from_millis(5)).calls(100);
        let (_, finished) = traced(&place, workload, &[]);
        stretches_add_up(&finished);
        let of_kind = format!("FROM sched_events WHERE blocked_on = '{reason}' AND target_kind = '{kind}'");
        let waited = finished.number(&format!("SELECT coalesce(sum(all_blocked_ns), 0) {of_kind}"));
        assert!(waited > 0, "no wait for a {kind} is told");
        if behaviour == Behaviour::Io {
            let requests =
                finished.number("SELECT count(*) FROM io_events WHERE direction = 'read' AND tid = issuer_tid");
            assert!(requests > 0, "no request ended a wait");
            assert!(finished.number("SELECT sum(requests) FROM io_stats") >= requests);
        }
    }
}
