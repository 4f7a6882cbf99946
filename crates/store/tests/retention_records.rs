//! Stretches, kernel work and requests expire together with calls, so that the cap holds for any mix of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ops::Range;

use gpuwhy_model::{Call, IoUsage, KernelWork, Process, Sample, Stretch, ThreadTimes};
use gpuwhy_store::Writer;
use support::capped::*;
use support::*;

/// Stretches with a new target each, a thousand in five milliseconds.
fn write_stretches(writer: &mut Writer, cast: &Cast, batch: u64) {
    let stretch = |at: u64| {
        let number = batch * 1000 + at;
        let target = Some(writer.target(&cast.target(&format!("futex {number}"))).unwrap());
        Stretch { target, blocked_ns: number, ..cast.stretch(number * 5_000) }
    };
    let stretches: Vec<Stretch> = (0..1000).map(stretch).collect();
    writer.stretches(&stretches).unwrap();
}

#[test]
fn a_trace_of_stretches_alone_stays_under_the_cap() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    for batch in 0..200 {
        write_stretches(&mut writer, &cast, batch);
        writer.commit(START_NS + batch * 5_000_000).unwrap();
        assert_under(&path, CAP);
    }
    writer.finish(&end()).unwrap();
    let kept = number(&path, "SELECT COUNT(*) FROM sched_events");
    assert!(kept > 5_000, "{kept} stretches in {CAP} bytes");
    let newest = START_NS as i64 + 199_999 * 5_000;
    assert_eq!(number(&path, "SELECT MAX(id) FROM sched_events"), newest);
    assert_eq!(number(&path, "SELECT MIN(id) FROM sched_events"), newest - (kept - 1) * 5_000);
    let named = "SELECT COUNT(*) FROM sched_events WHERE target = 'futex ' || blocked_ns";
    assert_eq!(number(&path, named), kept);
    let targets = number(&path, "SELECT COUNT(*) FROM wait_targets");
    assert!(targets < kept + 10_000, "{targets} targets of {kept} stretches");
    // Nothing was lost that is counted in calls.
    assert_eq!(number(&path, "SELECT COUNT(*) FROM losses"), 0);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn events_of_all_kinds_go_together_the_oldest_first() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    for batch in 0..300 {
        let offsets = |step: usize| (0..400).step_by(step).map(move |at| (batch * 400 + at) * 10_000);
        writer.calls(&mut offsets(1).map(|at| cast.call(at)).collect::<Vec<_>>()).unwrap();
        writer.stretches(&offsets(2).map(|at| cast.stretch(at)).collect::<Vec<_>>()).unwrap();
        writer.kernel_work(&offsets(4).map(|at| cast.reclaim(at)).collect::<Vec<_>>()).unwrap();
        writer.io_requests(&offsets(8).map(|at| cast.read(at)).collect::<Vec<_>>()).unwrap();
        writer.commit(START_NS).unwrap();
        assert_under(&path, CAP);
    }
    writer.finish(&end()).unwrap();
    let views = ["cuda_events", "sched_events", "kernel_events", "io_events"];
    let oldest = views.map(|view| number(&path, &format!("SELECT MIN(id) FROM {view}")));
    let newest = views.map(|view| number(&path, &format!("SELECT MAX(id) FROM {view}")));
    assert!(oldest[0] > START_NS as i64, "something expired");
    assert!(oldest.iter().all(|oldest_ns| oldest_ns - oldest[0] <= 80_000), "{oldest:?}");
    assert!(newest.iter().all(|newest_ns| newest[0] - newest_ns <= 80_000), "{newest:?}");
    // Only calls are counted.
    let calls = number(&path, "SELECT COUNT(*) FROM cuda_events");
    assert_eq!(number(&path, "SELECT stored FROM sessions"), calls);
    assert_eq!(number(&path, "SELECT count FROM losses WHERE reason = 'expired'"), 120_000 - calls);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn stretches_make_room_for_calls() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    (0..20).for_each(|batch| write_stretches(&mut writer, &cast, batch));
    let later_ns = 3_600_000_000_000;
    for batch in 0..60 {
        let calls = (0..1000).map(|at| cast.call(later_ns + (batch * 1000 + at) * 5_000));
        writer.calls(&mut calls.collect::<Vec<_>>()).unwrap();
        writer.commit(START_NS).unwrap();
        assert_under(&path, CAP);
    }
    writer.finish(&end()).unwrap();
    assert_eq!(number(&path, "SELECT COUNT(*) FROM sched_events"), 0);
    assert!(number(&path, "SELECT COUNT(*) FROM cuda_events") > 20_000);
    assert!(number(&path, "SELECT COUNT(*) FROM wait_targets") < 1_500);
}

#[test]
fn more_new_targets_at_once_than_the_cap_has_room_for_are_written_in_parts() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, LEAST_CAP);
    let cast = Cast::new(&mut writer);
    for batch in 0..4 {
        let stretch = |at: u64| {
            let name = format!("{batch}.{at}.{}", "x".repeat(2000));
            Stretch { target: Some(writer.target(&cast.target(&name)).unwrap()), ..cast.stretch(batch * 1000 + at) }
        };
        let stretches: Vec<Stretch> = (0..200).map(stretch).collect();
        writer.stretches(&stretches).unwrap();
        writer.commit(START_NS).unwrap();
        assert_under(&path, LEAST_CAP);
    }
    writer.finish(&end()).unwrap();
    let kept = number(&path, "SELECT COUNT(*) FROM sched_events");
    assert!(kept >= 200, "{kept}");
    assert_eq!(number(&path, "SELECT COUNT(*) FROM sched_events WHERE LENGTH(target) = 1024"), kept);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn what_devices_did_is_kept_longer_than_stretches_but_not_beyond_the_cap() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    let seconds = 300;
    for second in 0..seconds {
        let bucket_ns = START_NS + second * 1_000_000_000;
        let usage = |disk| IoUsage {
            bucket_ns,
            process: cast.process,
            device: format!("disk-{disk}"),
            requests: 1,
            bytes: 1,
            busy_ns: 1,
        };
        writer.io_usage(&(0..100).map(usage).collect::<Vec<_>>()).unwrap();
        let stretches = (0..200).map(|at| cast.stretch(second * 1_000_000_000 + at * 5_000));
        writer.stretches(&stretches.collect::<Vec<_>>()).unwrap();
        writer.commit(bucket_ns).unwrap();
        assert_under(&path, CAP);
    }
    writer.finish(&end()).unwrap();
    let kept = number(&path, "SELECT COUNT(DISTINCT bucket_ns) FROM io_stats");
    assert!((20..seconds as i64).contains(&kept), "{kept} seconds");
    let newest = number(&path, "SELECT MAX(bucket_ns) FROM io_stats");
    assert_eq!(newest, START_NS as i64 + (seconds as i64 - 1) * 1_000_000_000);
    assert!(number(&path, "SELECT COUNT(*) FROM sched_events") > 3_000);
}

/// Sums so long that they make room for each other, and not the events for them.
fn write_sums(writer: &mut Writer, cast: &Cast, seconds: Range<u64>) {
    for second in seconds {
        let bucket_ns = START_NS + second * 1_000_000_000;
        let device = "x".repeat(3000);
        let usage = IoUsage { bucket_ns, process: cast.process, device, requests: 1, bytes: 1, busy_ns: 1 };
        writer.io_usage(&[usage]).unwrap();
        writer.commit(bucket_ns).unwrap();
    }
}

#[test]
fn an_earlier_session_keeps_its_names_until_the_last_of_its_records_is_gone() {
    let (_directory, path) = temporary();
    let mut first = capped(&path, CAP);
    let cast = Cast::new(&mut first);
    let target = Some(first.target(&cast.target("0x7f12a0")).unwrap());
    first.kernel_work(&[KernelWork { target, ..cast.reclaim(5) }]).unwrap();
    first.finish(&end()).unwrap();
    let mut second = capped(&path, CAP);
    let cast = Cast::new(&mut second);
    write_sums(&mut second, &cast, 10..400);
    assert!(number(&path, "SELECT COUNT(*) FROM io_usage") < 390);
    let work = "SELECT comm, target, session_id FROM kernel_events";
    assert_eq!(lines(&path, work), ["python 0x7f12a0 1"]);
    for batch in 0..40 {
        write_stretches(&mut second, &cast, 1_000_000 + batch);
        // Names are forgotten at commits, see `Writer::target`.
        second.commit(START_NS).unwrap();
    }
    write_sums(&mut second, &cast, 6000..6400);
    second.finish(&end()).unwrap();
    assert_eq!(lines(&path, work), [""; 0]);
    assert_eq!(lines(&path, "SELECT DISTINCT session_id FROM processes"), ["2"]);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM wait_targets WHERE process_id = 1"), 0);
}

/// A host that starts many short programs, in one session.
#[test]
fn names_of_what_has_ended_go_with_the_last_row_that_cites_them() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let stays = Cast::new(&mut writer);
    const JOBS: u64 = 6_000;
    for job in 0..JOBS {
        let at = job * 10_000_000;
        let process = Process { pid: 1000 + job as u32, comm: format!("job {job}"), ..Process::default() };
        let process = writer.process(&process).unwrap();
        let thread = writer.thread(process, 1000 + job as u32, &format!("thread {job}")).unwrap();
        writer.label(process, "container", &format!("container {job}")).unwrap();
        writer.kernel(process, 7, &format!("kernel {job}")).unwrap();
        let mut calls: Vec<_> = (0..5).map(|number| Call { thread, ..stays.call(at + number) }).collect();
        calls.push(stays.call(at + 9));
        writer.calls(&mut calls).unwrap();
        writer.thread_times(&[ThreadTimes::new(START_NS + at, thread, 1000)]).unwrap();
        let device = Some(format!("0/{job}"));
        let (name, unit) = ("gpu.process.memory".to_owned(), "bytes".to_owned());
        writer.samples(&[Sample { at_ns: START_NS + at, name, unit, device, value: 1.0 }]).unwrap();
        writer.thread_ended(thread, START_NS + at);
        writer.process_ended(process, START_NS + at);
        if job % 50 == 0 {
            writer.commit(START_NS + at).unwrap();
            assert_under(&path, CAP);
        }
    }
    writer.finish(&end()).unwrap();
    let count = |table: &str| number(&path, &format!("SELECT COUNT(*) FROM {table}"));
    for names in ["processes", "threads", "process_labels", "kernels", "sample_series"] {
        assert!(count(names) < JOBS as i64 * 2 / 3, "{} {names}", count(names));
    }
    // What is left has its name.
    let nameless = "NOT IN (SELECT id FROM threads)";
    assert_eq!(count(&format!("calls JOIN shapes ON shapes.id = shape_id WHERE thread_id {nameless}")), 0);
    assert_eq!(count(&format!("thread_usage WHERE thread_id {nameless}")), 0);
    assert_eq!(count("samples WHERE series_id NOT IN (SELECT id FROM sample_series)"), 0);
    assert_eq!(count("threads WHERE process_id NOT IN (SELECT id FROM processes)"), 0);
    assert_eq!(count("processes WHERE comm = 'python'"), 1);
    assert_eq!(integrity(&path), "ok");
}
