//! What held threads up comes back through the views, row by row.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{
    CollectiveCapture, CollectiveWait, CpuTaker, IoRequest, IoUsage, KernelWork, Process, StandsFor, Stretch,
    TargetKind, WaitReason, WaitTarget, WorkKind,
};
use gpuwhy_store::{Limits, Trace, Value};
use gpuwhy_window::Scope;
use support::*;

const STRETCH: &str =
    "SELECT timestamp_ns - 1790000000000000000, id - timestamp_ns, duration_ns, blocked_ns, runqueue_ns,
    is_throttled, pid, tid, comm, blocked_on, op, target_kind, target, woken_by_pid, woken_by_tid, woken_by_comm,
    taken_by_pid, taken_by_tid, taken_by_comm, taken_by_ns, also_taken_by_pid, also_taken_by_tid, also_taken_by_comm,
    also_taken_by_ns, all_count, all_blocked_ns, all_runqueue_ns, session_id FROM sched_events ORDER BY id";

#[test]
fn a_stretch_comes_back_with_everything_it_had() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let other = writer.process(&Process { pid: 200, comm: "stress".into(), ..Process::default() }).unwrap();
    let [first, second] = [201, 202].map(|tid| writer.thread(other, tid, &format!("burner-{tid}")).unwrap());
    let stretch = Stretch {
        blocked_ns: 6_000,
        runqueue_ns: 500,
        is_throttled: true,
        reason: Some(WaitReason::Futex),
        op: Some(cast.launch),
        target: Some(writer.target(&cast.target("0x7f12a0")).unwrap()),
        woken_by: Some(cast.other_thread),
        taken_by: [Some(CpuTaker { thread: first, ns: 400 }), Some(CpuTaker { thread: second, ns: 90 })],
        all: StandsFor { count: 12, blocked_ns: 7_000, runqueue_ns: 800 },
        ..cast.stretch(7)
    };
    let preempted = Stretch { blocked_ns: 0, reason: None, ..cast.stretch(9) };
    writer.stretches(&[stretch, preempted]).unwrap();
    writer.finish(&end()).unwrap();
    let expected = [
        "7 0 6500 6000 500 1 100 100 python futex cuLaunchKernel lock 0x7f12a0 100 101 worker \
         200 201 burner-201 400 200 202 burner-202 90 12 7000 800 1",
        "9 0 4000 0 4000 0 100 100 python null null null null null null null \
         null null null null null null null null 1 60000 4000 1",
    ];
    assert_eq!(lines(&path, STRETCH), expected);
    assert_eq!(lines(&path, "SELECT stored FROM sessions"), ["0"]);
}

#[test]
fn who_spoke_first_is_known_in_every_part_of_a_trace() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let user = writer.process(&Process { pid: 200, comm: "user".into(), ..Process::default() }).unwrap();
    let user_thread = writer.thread(user, 200, "user").unwrap();
    let pipe = |kind, name: &str| WaitTarget { process: cast.process, kind, name: name.into() };
    let target = Some(writer.target(&pipe(TargetKind::Pipe, "pipe:[1]")).unwrap());
    let one_way = Some(writer.target(&pipe(TargetKind::Unix, "unix:[2]")).unwrap());
    let asked = Stretch { target, woken_by: Some(user_thread), ..cast.stretch(1_000) };
    let answered = Stretch { thread: user_thread, target, woken_by: Some(cast.thread), ..cast.stretch(100_000) };
    let told = Stretch { target: one_way, woken_by: Some(user_thread), ..cast.stretch(200_000) };
    writer.stretches(&[asked, answered, told]).unwrap();
    writer.finish(&end()).unwrap();
    let late = Scope { from_ns: Some(START_NS + 150_000), ..Scope::default() };
    let early = Scope { to_ns: Some(START_NS + 50_000), ..Scope::default() };
    let trace = Trace::open(&path).unwrap();
    for scope in [Scope::default(), late, early] {
        let window = trace.window(&scope).unwrap();
        assert_eq!(window.spoke_first.into_iter().collect::<Vec<_>>(), [(user, cast.process, TargetKind::Pipe)]);
    }
}

#[test]
fn a_part_that_is_longer_than_the_trace_is_the_trace() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.stretches(&[cast.stretch(1_000)]).unwrap();
    writer.finish(&end()).unwrap();
    let trace = Trace::open(&path).unwrap();
    let all = trace.window(&Scope::default()).unwrap();
    let longer = Scope { from_ns: Some(1), to_ns: Some(u64::MAX / 4), ..Scope::default() };
    let part = trace.window(&longer).unwrap();
    assert_eq!((part.from_ns, part.to_ns), (all.from_ns, all.to_ns));
    let elsewhere = Scope { from_ns: Some(1), to_ns: Some(2), ..Scope::default() };
    let nothing = trace.window(&elsewhere).unwrap();
    assert_eq!((nothing.from_ns, nothing.to_ns, nothing.stretches.rows.len()), (1, 2, 0));
}

#[test]
fn kernel_work_comes_back_with_everything_it_had() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let device = WaitTarget { process: cast.process, kind: TargetKind::Device, name: "195:255".into() };
    let ioctl = KernelWork {
        thread: cast.other_thread,
        kind: WorkKind::Ioctl,
        duration_ns: 3_000,
        op: Some(cast.alloc),
        target: Some(writer.target(&device).unwrap()),
        code: Some(0xc020_462a),
        all_count: 5,
        all_ns: 3_500,
        ..cast.reclaim(2)
    };
    let compaction = KernelWork { kind: WorkKind::Compaction, ..cast.reclaim(3) };
    writer.kernel_work(&[compaction, cast.reclaim(1), ioctl]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT timestamp_ns - 1790000000000000000, id - timestamp_ns, duration_ns, pid, tid, comm, kind, op,
        target_kind, target, code, all_count, all_ns, session_id FROM kernel_events ORDER BY id";
    let expected = [
        "1 0 70000 100 100 python reclaim null null null null 1 70000 1",
        "2 0 3000 100 101 worker ioctl cuMemAlloc_v2 device 195:255 3223340586 5 3500 1",
        "3 0 70000 100 100 python compaction null null null null 1 70000 1",
    ];
    assert_eq!(lines(&path, sql), expected);
}

#[test]
fn a_request_comes_back_with_who_waited_and_who_handed_it_over() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let kernel = writer.process(&Process { pid: 9, comm: "kworker".into(), ..Process::default() }).unwrap();
    let issuer = Some(writer.thread(kernel, 9, "kworker/u8:1").unwrap());
    let write = IoRequest { is_write: true, device: "254:0".into(), bytes: 1 << 20, issuer, ..cast.read(2) };
    writer.io_requests(&[cast.read(1), write]).unwrap();
    writer.finish(&end()).unwrap();
    let sql =
        "SELECT timestamp_ns - 1790000000000000000, id - timestamp_ns, duration_ns, device, bytes, direction, pid,
        tid, comm, issuer_pid, issuer_tid, issuer_comm, session_id FROM io_events ORDER BY id";
    let expected = [
        "1 0 90000 nvme0n1 4096 read 100 100 python null null null 1",
        "2 0 90000 254:0 1048576 write 100 100 python 9 9 kworker/u8:1 1",
    ];
    assert_eq!(lines(&path, sql), expected);
}

#[test]
fn parts_of_a_bucket_of_io_add_up_per_process_and_device() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let other = writer.process(&Process { pid: 200, comm: "dd".into(), ..Process::default() }).unwrap();
    let usage = |process, device: &str| IoUsage {
        bucket_ns: START_NS,
        process,
        device: device.into(),
        requests: 2,
        bytes: 8192,
        busy_ns: 150,
    };
    let later = IoUsage { bucket_ns: START_NS + 1_000_000_000, ..usage(cast.process, "nvme0n1") };
    writer.io_usage(&[usage(cast.process, "nvme0n1"), usage(cast.process, "sda"), later]).unwrap();
    writer.commit(START_NS).unwrap();
    writer.io_usage(&[usage(other, "nvme0n1"), usage(cast.process, "nvme0n1")]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT bucket_ns - 1790000000000000000, pid, comm, device, requests, bytes, busy_ns, session_id
        FROM io_stats ORDER BY bucket_ns, pid, device";
    let expected = [
        "0 100 python nvme0n1 4 16384 300 1",
        "0 100 python sda 2 8192 150 1",
        "0 200 dd nvme0n1 2 8192 150 1",
        "1000000000 100 python nvme0n1 2 8192 150 1",
    ];
    assert_eq!(lines(&path, sql), expected);
}

#[test]
fn records_that_start_at_once_are_all_kept() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let stretch = |offset, blocked_ns| Stretch { blocked_ns, ..cast.stretch(offset) };
    // Within a batch, longer than one statement, and not in order.
    let mut batch: Vec<Stretch> = (0..45).map(|at| stretch(100, at)).collect();
    batch.extend([stretch(50, 1000), stretch(143, 1001), stretch(10, 1002)]);
    writer.stretches(&batch).unwrap();
    // Against stored rows, committed or not, before and after them.
    writer.stretches(&[stretch(100, 1003), stretch(50, 1004), stretch(9, 1005)]).unwrap();
    writer.commit(START_NS).unwrap();
    let again: Vec<Stretch> = (0..45).map(|at| stretch(100, 2000 + at)).collect();
    writer.stretches(&again).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(number(&path, "SELECT COUNT(*) FROM sched_events"), 45 + 3 + 3 + 45);
    assert_eq!(number(&path, "SELECT COUNT(DISTINCT blocked_ns) FROM sched_events"), 45 + 3 + 3 + 45);
    assert_eq!(number(&path, "SELECT MAX(timestamp_ns) - 1790000000000000000 FROM sched_events"), 100 + 45 + 45 + 1);
    let sql = "SELECT timestamp_ns - 1790000000000000000, blocked_ns FROM sched_events ORDER BY id LIMIT 5";
    assert_eq!(lines(&path, sql)[..4], ["9 1005", "10 1002", "50 1000", "51 1004"]);
}

/// Two ranks that ask in the same nanosecond: the trace goes on, with what came first.
#[test]
fn operations_that_are_asked_for_at_once_do_not_end_the_trace() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let wait = |start_ns, wait_ns| CollectiveWait { start_ns: START_NS + start_ns, done_ns: START_NS + 9_000, wait_ns };
    writer.collective_waits(&[wait(100, 1), wait(100, 2), wait(200, 3)]).unwrap();
    writer.collective_waits(&[wait(200, 4)]).unwrap();
    let capture = CollectiveCapture { start_ns: START_NS + 100, began_ns: START_NS };
    writer.collective_captures(&[capture, capture]).unwrap();
    writer.finish(&end()).unwrap();
    let trace = Trace::open(&path).unwrap();
    let waits = trace.query("SELECT wait_ns FROM collective_waits ORDER BY start_ns", &Limits::default()).unwrap();
    assert_eq!(waits.rows, [[Value::Integer(1)], [Value::Integer(3)]]);
}

#[test]
fn kernel_work_and_requests_that_start_at_once_are_all_kept() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    for _ in 0..3 {
        writer.kernel_work(&vec![cast.reclaim(5); 30]).unwrap();
        writer.io_requests(&vec![cast.read(5); 30]).unwrap();
    }
    writer.stretches(&[cast.stretch(5)]).unwrap();
    writer.calls(&mut [cast.call(5)]).unwrap();
    writer.finish(&end()).unwrap();
    for view in ["kernel_events", "io_events"] {
        let sql = format!("SELECT COUNT(*), MIN(id) - 1790000000000000000, MAX(id) - 1790000000000000000 FROM {view}");
        assert_eq!(lines(&path, &sql), ["90 5 94"], "{view}");
    }
    // Kinds do not get into each other's way.
    assert_eq!(lines(&path, "SELECT id - 1790000000000000000 FROM sched_events"), ["5"]);
    assert_eq!(lines(&path, "SELECT stored FROM sessions"), ["1"]);
}

#[test]
fn records_from_the_end_of_time_are_kept_and_can_be_read() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let last = Stretch {
        start_ns: u64::MAX,
        blocked_ns: u64::MAX,
        runqueue_ns: u64::MAX,
        all: StandsFor { count: u64::MAX, blocked_ns: u64::MAX, runqueue_ns: u64::MAX },
        ..cast.stretch(0)
    };
    writer.stretches(&[last.clone(), last]).unwrap();
    writer.stretches(&[]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(rows(&path, "SELECT * FROM sched_events").len(), 2);
}

#[test]
fn a_target_has_one_id_per_process_and_kind() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let other = writer.process(&Process { pid: 200, ..Process::default() }).unwrap();
    let lock = cast.target("0x7f12a0");
    let id = writer.target(&lock).unwrap();
    assert_eq!(writer.target(&lock).unwrap(), id);
    writer.commit(START_NS).unwrap();
    assert_eq!(writer.target(&lock).unwrap(), id);
    let different = [
        WaitTarget { process: other, ..lock.clone() },
        WaitTarget { kind: TargetKind::Signal, ..lock.clone() },
        WaitTarget { name: "0x7f12a8".into(), ..lock },
    ];
    let ids = different.map(|target| writer.target(&target).unwrap());
    assert_eq!(ids.map(|other| other.0 - id.0), [1, 2, 3]);
    writer.finish(&end()).unwrap();
    let sql = "SELECT id, process_id, kind, name FROM wait_targets ORDER BY id";
    assert_eq!(
        lines(&path, sql),
        ["1 1 lock 0x7f12a0", "2 2 lock 0x7f12a0", "3 1 signal 0x7f12a0", "4 1 lock 0x7f12a8"]
    );
}

#[test]
fn so_many_targets_that_the_first_are_forgotten_still_name_what_was_waited_on() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    for batch in 0..80 {
        let stretch = |at: u64| {
            let number = batch * 1000 + at;
            let target = Some(writer.target(&cast.target(&format!("{number}"))).unwrap());
            Stretch { target, blocked_ns: number, ..cast.stretch(number) }
        };
        let stretches: Vec<Stretch> = (0..1000).map(stretch).collect();
        writer.stretches(&stretches).unwrap();
        writer.commit(START_NS).unwrap();
    }
    let again = writer.target(&cast.target("0")).unwrap();
    assert!(again.0 > 80_000, "{again:?}");
    writer.finish(&end()).unwrap();
    assert_eq!(number(&path, "SELECT COUNT(*) FROM sched_events WHERE target = blocked_ns || ''"), 80_000);
}

#[test]
fn hostile_targets_and_devices_come_back_as_they_were() {
    let hostile = "'; DROP TABLE stretches; --\n\"\u{1b}[31m<script>\u{0}\u{202e}\u{1F980}";
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let target = Some(writer.target(&cast.target(hostile)).unwrap());
    writer.stretches(&[Stretch { target, ..cast.stretch(1) }]).unwrap();
    writer.kernel_work(&[KernelWork { target, ..cast.reclaim(1) }]).unwrap();
    writer.io_requests(&[IoRequest { device: hostile.into(), ..cast.read(1) }]).unwrap();
    let usage =
        IoUsage { bucket_ns: 1, process: cast.process, device: hostile.into(), requests: 1, bytes: 1, busy_ns: 1 };
    writer.io_usage(&[usage]).unwrap();
    writer.finish(&end()).unwrap();
    let views =
        [("sched_events", "target"), ("kernel_events", "target"), ("io_events", "device"), ("io_stats", "device")];
    for (view, column) in views {
        let found = rows(&path, &format!("SELECT {column} FROM {view}"));
        assert_eq!(found, [vec![Value::Text(hostile.into())]], "{view}");
    }
}

#[test]
fn endless_targets_and_devices_are_cut() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let endless = "\u{1F980}".repeat(1_000_000);
    let target = writer.target(&cast.target(&endless)).unwrap();
    assert_eq!(writer.target(&cast.target(&endless)).unwrap(), target);
    writer.stretches(&[Stretch { target: Some(target), ..cast.stretch(1) }]).unwrap();
    writer.io_requests(&[IoRequest { device: endless.clone(), ..cast.read(1) }]).unwrap();
    let usage = IoUsage { bucket_ns: 1, process: cast.process, device: endless, requests: 1, bytes: 1, busy_ns: 1 };
    writer.io_usage(&[usage.clone(), usage]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(number(&path, "SELECT LENGTH(target) FROM sched_events"), 256);
    assert_eq!(number(&path, "SELECT LENGTH(device) FROM io_events"), 4096);
    assert_eq!(lines(&path, "SELECT LENGTH(device), requests FROM io_stats"), ["4096 2"]);
}

#[test]
fn a_span_of_time_is_found_without_a_look_at_the_rest() {
    let (_directory, path) = temporary();
    writer(&path).finish(&end()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let plan = |sql: &str| {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        steps.map(Result::unwrap).collect::<Vec<_>>()
    };
    for (view, table) in [("sched_events", "stretches"), ("kernel_events", "kernel_work"), ("io_events", "io_requests")]
    {
        let steps = plan(&format!("SELECT * FROM {view} WHERE timestamp_ns BETWEEN 1 AND 9 ORDER BY timestamp_ns"));
        assert!(
            steps[0].contains(&format!("SEARCH {table} USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)")),
            "{steps:?}"
        );
        assert!(steps.iter().all(|step| step.starts_with("SEARCH")), "{steps:?}");
    }
    let memory = "SELECT * FROM calls INDEXED BY calls_memory WHERE address IS NOT NULL AND start_ns BETWEEN 1 AND 9
        ORDER BY start_ns";
    assert_eq!(plan(memory), ["SEARCH calls USING INDEX calls_memory (start_ns>? AND start_ns<?)"]);
}

#[test]
fn a_stretch_takes_at_most_eighty_bytes() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let target = Some(writer.target(&cast.target("0x7f12a0")).unwrap());
    let taker = Some(CpuTaker { thread: cast.other_thread, ns: 3_000 });
    let stretches = 50_000;
    for first in (0..stretches).step_by(10_000) {
        let stretch = |at: u64| Stretch {
            op: Some(cast.launch),
            target,
            woken_by: Some(cast.other_thread),
            taken_by: [taker; 2],
            ..cast.stretch(at * 4_999)
        };
        writer.stretches(&(first..first + 10_000).map(stretch).collect::<Vec<_>>()).unwrap();
        writer.commit(START_NS).unwrap();
    }
    writer.finish(&end()).unwrap();
    let bytes = path.metadata().unwrap().len();
    assert!(bytes < 80 * stretches, "{} bytes a row", bytes as f64 / stretches as f64);
}
