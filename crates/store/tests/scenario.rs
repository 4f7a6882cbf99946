//! What was written is what is read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{
    Call, CallClass, CallStats, Direction, Histogram, Layer, LifeKind, LossReason, Losses, Process, ProcessLife,
    Session, SessionEnd, ThreadTimes, Wait, WaitReason,
};
use gpuwhy_store::{Filter, Limits, Options, Trace, Truncation, Value, Writer};
use support::*;

/// The queries of product.md, as users have seen them published.
const PUBLISHED: &[&str] = &[
    "SELECT * FROM cuda_events WHERE duration_ns > 1000000 LIMIT 20;",
    "SELECT op, rank, nranks, duration_ns/1e6 AS ms FROM nccl_events ORDER BY duration_ns DESC LIMIT 20;",
    "SELECT COUNT(*) FROM tcp_events WHERE event = 'tcp_retransmit_skb';",
    "WITH slow_collectives AS (
      SELECT timestamp_ns, duration_ns, rank, nranks, comm_id_hash, pid FROM nccl_events
       WHERE op = 'ALL_REDUCE' AND duration_ns > 50000000)
    SELECT s.rank, s.duration_ns/1e6 AS ms, COUNT(t.timestamp_ns) AS retransmits_in_window
      FROM slow_collectives s LEFT JOIN tcp_events t
        ON t.timestamp_ns BETWEEN s.timestamp_ns AND s.timestamp_ns + s.duration_ns
       AND t.event = 'tcp_retransmit_skb'
     GROUP BY s.rank, s.duration_ns, s.timestamp_ns ORDER BY ms DESC LIMIT 20;",
];

#[test]
fn a_call_comes_back_with_everything_it_had() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let wait =
        Wait { reason: Some(WaitReason::Futex), woken_by: Some(cast.other_thread), preempted_by: Some(cast.thread) };
    let call = Call {
        duration_ns: 9_000,
        runqueue_ns: 2_000,
        blocked_ns: 3_000,
        device: Some(3),
        stream: Some(u64::MAX),
        direction: Some(Direction::HostToDevice),
        handle: Some(77),
        caller: Some(cast.cudart),
        bytes: Some(4096),
        address: Some(1 << 63),
        ret_code: -2,
        parent_start_ns: Some(START_NS - 5),
        wait: Some(wait),
        stack_id: Some(12),
        ..cast.call(7)
    };
    writer.calls(&mut [call]).unwrap();
    writer.finish(&end()).unwrap();

    let sql = "SELECT timestamp_ns - 1790000000000000000, id - timestamp_ns, duration_ns, running_ns, runqueue_ns,
        blocked_ns, pid, tid, comm, op, layer, class, runtime_op, device, stream, bytes, direction, ret_code,
        cgroup_id, stack_id, timestamp_ns - parent_id, caller, handle, address, blocked_on,
        woken_by_pid, woken_by_tid, woken_by_comm, preempted_by_pid, preempted_by_tid, preempted_by_comm,
        process_comm, container_id, session_id FROM cuda_events";
    let expected = "7 0 9000 4000 2000 3000 100 100 python cuLaunchKernel driver launch cudaLaunchKernel 3 -1 4096 \
        HtoD -2 -1 12 12 /lib/libcudart.so.12 77 -9223372036854775808 futex 100 101 worker 100 100 python python null 1";
    assert_eq!(lines(&path, sql), [expected]);
}

#[test]
fn the_published_queries_run_as_they_stand() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [Call { duration_ns: 2_000_000, ..cast.call(0) }, cast.call(1)]).unwrap();
    writer.finish(&end()).unwrap();
    let counts: Vec<usize> = PUBLISHED.iter().map(|sql| rows(&path, sql).len()).collect();
    assert_eq!(counts, [1, 0, 1, 0]);
}

#[test]
fn the_runtime_name_is_shown_only_for_calls_the_runtime_made() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let by = |offset, caller| Call { caller, ..cast.call(offset) };
    let runtime = Call { op: cast.runtime_launch, ..cast.call(4) };
    writer.calls(&mut [by(1, Some(cast.cudart)), by(2, Some(cast.program)), by(3, None), runtime]).unwrap();
    writer.finish(&end()).unwrap();
    let names = lines(&path, "SELECT runtime_op FROM cuda_events ORDER BY id");
    assert_eq!(names, ["cudaLaunchKernel", "null", "null", "cudaLaunchKernel"]);
}

#[test]
fn filters_find_calls_by_time_thread_length_and_either_name() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let alloc = Call { op: cast.alloc, ..cast.call(3) };
    let long = Call { duration_ns: 50_000, thread: cast.other_thread, ..cast.call(2) };
    writer.calls(&mut [Call { caller: Some(cast.cudart), ..cast.call(1) }, long, alloc]).unwrap();
    writer.finish(&end()).unwrap();

    let trace = Trace::open(&path).unwrap();
    let found = |filter: Filter| -> Vec<i64> {
        let answer = trace.calls(&filter, &Limits::default()).unwrap();
        let first = |row: &Vec<Value>| match row[0] {
            Value::Integer(id) => id - START_NS as i64,
            _ => panic!("{row:?}"),
        };
        answer.rows.iter().map(first).collect()
    };
    let op = |name: &str| Filter { op: Some(name.into()), ..Filter::default() };
    assert_eq!(found(Filter::default()), [1, 2, 3]);
    let two = trace.calls(&Filter::default(), &Limits { rows: 2, ..Limits::default() }).unwrap();
    assert_eq!((two.rows.len(), two.truncated), (2, Some(Truncation::Rows)));
    assert_eq!(found(Filter { since_ns: Some(START_NS + 2), ..Filter::default() }), [2, 3]);
    assert_eq!(found(Filter { until_ns: Some(START_NS + 2), ..Filter::default() }), [1]);
    assert_eq!(found(Filter { tid: Some(101), pid: Some(100), ..Filter::default() }), [2]);
    assert_eq!(found(Filter { pid: Some(7), ..Filter::default() }), [0; 0]);
    assert_eq!(found(Filter { min_duration_ns: Some(6_000), ..Filter::default() }), [2]);
    assert_eq!(found(op("cuLaunchKernel")), [1, 2]);
    assert_eq!(found(op("cudaLaunchKernel")), [1]);
    assert_eq!(found(op("cuMemAlloc_v2")), [3]);
    assert_eq!(found(op("cuMemAlloc")), [3]);
    assert_eq!(found(op("cuMemAlloc' OR 1 --")), [0; 0]);
}

fn stats(cast: &Cast, durations: &[u64]) -> CallStats {
    let mut histogram = Histogram::default();
    durations.iter().for_each(|&ns| histogram.add(Histogram::index(ns), 1));
    CallStats {
        bucket_ns: START_NS,
        thread: cast.thread,
        op: cast.launch,
        count: durations.len() as u64,
        sum_ns: durations.iter().sum(),
        min_ns: *durations.iter().min().unwrap(),
        max_ns: *durations.iter().max().unwrap(),
        runqueue_ns: 1,
        blocked_ns: 2,
        bytes: 3,
        errors: 4,
        histogram,
        fraction: 1.0,
    }
}

#[test]
fn parts_of_a_bucket_add_up_and_none_is_overwritten() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.stats(&[stats(&cast, &[1024, 1024, 5000])]).unwrap();
    writer.commit(START_NS).unwrap();
    writer.stats(&[stats(&cast, &[1024, 100_000])]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT pid, tid, op, layer, count, sum_ns, min_ns, max_ns, runqueue_ns, blocked_ns, bytes, errors,
        fraction, histogram, percentile_ns(histogram, 0.5) FROM call_stats";
    let expected = "100 100 cuLaunchKernel driver 5 108072 1024 100000 2 4 6 8 1.0 \
        [[1024,3],[4608,1],[98304,1]] 1088";
    assert_eq!(lines(&path, sql), [expected]);
    let sum = "SELECT SUM(json_extract(value, '$[1]')) FROM call_stats, json_each(histogram)";
    assert_eq!(number(&path, sum), 5);
}

#[test]
fn a_fraction_that_is_no_number_costs_nothing_else() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.stats(&[CallStats { fraction: f64::NAN, ..stats(&cast, &[1024]) }]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT count, fraction FROM call_stats"), ["1 0.0"]);
}

#[test]
fn histograms_of_many_rows_merge_to_one() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let other = CallStats { thread: cast.other_thread, ..stats(&cast, &[2048]) };
    writer.stats(&[stats(&cast, &[1024]), other]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT merge_histograms(histogram) FROM call_stats"), ["[[1024,1],[2048,1]]"]);
    assert_eq!(lines(&path, "SELECT merge_histograms(histogram) FROM call_stats WHERE 0"), ["null"]);
    let trace = Trace::open(&path).unwrap();
    let wrong = ["SELECT percentile_ns('[[', 0.5)", "SELECT percentile_ns(1, 0.5)", "SELECT percentile_ns('[]', 99)"];
    for sql in wrong {
        assert!(trace.query(sql, &Limits::default()).is_err(), "{sql}");
    }
}

#[test]
fn thread_times_show_what_is_left_as_running() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let times = ThreadTimes {
        bucket_ns: START_NS,
        thread: cast.thread,
        wall_ns: 1000,
        runqueue_ns: 100,
        blocked_ns: [1, 2, 3, 4, 5, 6, 7, 8],
        in_calls_ns: 50,
        in_calls_runqueue_ns: 5,
        in_calls_blocked_ns: 6,
    };
    writer.thread_times(&[times.clone(), times]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT pid, tid, comm, wall_ns, running_ns, runqueue_ns, blocked_ns, futex_ns, other_ns, in_calls_ns,
        in_calls_runqueue_ns, in_calls_blocked_ns FROM thread_times";
    assert_eq!(lines(&path, sql), ["100 100 python 2000 1728 200 72 2 16 100 10 12"]);
}

#[test]
fn a_session_keeps_what_is_known_about_it() {
    let (_directory, path) = temporary();
    let session = Session {
        started_ns: START_NS,
        version: "0.1.0".into(),
        host: "node7".into(),
        boot_id: "b".into(),
        kernel: "6.18".into(),
        cpus: 8,
        gpus: vec!["H200".into(), "H200 \"two\"".into()],
        driver: None,
        command: "gpuwhy trace".into(),
        attach_path: "multi".into(),
        probe_cost_ns: Some(900),
    };
    let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [cast.call(1), cast.call(2)]).unwrap();
    writer.warn(START_NS + 4, "half of the probes\nfailed").unwrap();
    writer.clock_anchor(5, -6).unwrap();
    let life = ProcessLife {
        at_ns: START_NS,
        kind: LifeKind::Exit,
        pid: 100,
        child_pid: None,
        status: Some(9),
        comm: "python".into(),
    };
    writer.life(&[life]).unwrap();
    let mut losses = Losses::default();
    losses.add(LossReason::RingFull, 3);
    writer.losses(&losses).unwrap();
    writer.commit(START_NS + 5).unwrap();
    losses.add(LossReason::RingFull, 1);
    let end = SessionEnd { ended_ns: START_NS + 9, seen: 6, losses, agent_cpu_ns: 8, reason: "interrupted".into() };
    writer.finish(&end).unwrap();

    let sql = "SELECT version, host, boot_id, kernel, cpus, gpus, driver, command, attach_path, probe_cost_ns,
        last_commit_ns - started_ns, stored, ended_ns - started_ns, seen, agent_cpu_ns, end_reason FROM sessions";
    let expected = r#"0.1.0 node7 b 6.18 8 ["H200","H200 \"two\""] null gpuwhy trace multi 900 9 2 9 6 8 interrupted"#;
    assert_eq!(lines(&path, sql), [expected]);
    assert_eq!(lines(&path, "SELECT reason, count FROM losses"), ["ring_full 4"]);
    assert_eq!(lines(&path, "SELECT text FROM warnings"), ["half of the probes\nfailed"]);
    assert_eq!(lines(&path, "SELECT monotonic_ns, unix_offset_ns FROM clock_anchors"), ["5 -6"]);
    assert_eq!(lines(&path, "SELECT kind, pid, status, comm FROM process_life"), ["exit 100 9 python"]);
}

#[test]
fn hostile_strings_come_back_as_they_were() {
    let hostile = "'; DROP TABLE calls; --\n\"\u{1b}[31m<script>\u{0}\u{202e}\u{1F980}";
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let process = Process {
        pid: 1,
        comm: hostile.into(),
        exe: hostile.into(),
        cmdline: hostile.into(),
        cgroup: hostile.into(),
        container_id: Some(hostile.into()),
        ..Process::default()
    };
    let process = writer.process(&process).unwrap();
    let thread = writer.thread(process, 1, "first").unwrap();
    writer.rename_thread(thread, hostile).unwrap();
    let op = writer.op(hostile, Layer::Driver, CallClass::Launch, Some(hostile)).unwrap();
    let caller = writer.module(hostile, true).unwrap();
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [Call { thread, op, caller: Some(caller), ..cast.call(0) }]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT comm, op, runtime_op, caller, process_comm, container_id FROM cuda_events";
    assert_eq!(rows(&path, sql), [vec![Value::Text(hostile.into()); 6]]);
    let sql = "SELECT exe, cmdline, cgroup FROM processes WHERE pid = 1";
    assert_eq!(rows(&path, sql), [vec![Value::Text(hostile.into()); 3]]);
}

#[test]
fn endless_names_are_cut_so_that_every_row_can_be_read() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let endless = "\u{1F980}".repeat(1_000_000);
    let process = Process {
        comm: endless.clone(),
        exe: endless.clone(),
        cmdline: endless.clone(),
        cgroup: endless.clone(),
        container_id: Some(endless.clone()),
        ..Process::default()
    };
    writer.process(&process).unwrap();
    writer.warn(START_NS, &endless).unwrap();
    writer.module(&endless, false).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(rows(&path, "SELECT * FROM processes").len(), 1);
    assert_eq!(number(&path, "SELECT LENGTH(cmdline) FROM processes"), 4096);
    assert_eq!(number(&path, "SELECT LENGTH(text) FROM warnings"), 4096);
}

#[test]
fn functions_and_modules_keep_their_ids_from_session_to_session() {
    let (_directory, path) = temporary();
    for expected in 1..=2 {
        let mut writer = writer(&path);
        let cast = Cast::new(&mut writer);
        writer.calls(&mut [cast.call(0)]).unwrap();
        writer.finish(&end()).unwrap();
        assert_eq!(number(&path, "SELECT COUNT(*) FROM sessions"), expected);
    }
    assert_eq!(number(&path, "SELECT COUNT(*) FROM ops"), 3);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM modules"), 2);
    assert_eq!(lines(&path, "SELECT session_id, pid FROM cuda_events ORDER BY id"), ["1 100", "2 100"]);
}

#[test]
fn a_plain_launch_takes_at_most_forty_bytes() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let calls = 100_000;
    for first in (0..calls).step_by(10_000) {
        let mut batch: Vec<Call> = (first..first + 10_000).map(|at| cast.call(at * 4_999)).collect();
        writer.calls(&mut batch).unwrap();
        writer.commit(START_NS).unwrap();
    }
    writer.finish(&end()).unwrap();
    let bytes = path.metadata().unwrap().len();
    assert!(bytes < 40 * calls, "{} bytes a row", bytes as f64 / calls as f64);
}

#[test]
fn writers_and_readers_may_move_to_another_thread() {
    fn moves<T: Send>() {}
    moves::<Writer>();
    moves::<Trace>();
}
