//! What was written is what is read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{
    AgentUsage, Call, CallClass, CallStats, Direction, Histogram, Layer, LifeKind, LossReason, Losses, Note, NoteKind,
    Process, ProcessLife, Rung, RungChange, Session, SessionEnd, StackId, ThreadTimes, Wait, WaitReason,
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
        stack_id: Some(StackId(12)),
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
        estimate: durations.len() as u64,
        variance: 0.0,
    }
}

/// A part of a bucket in which one of `every` calls was seen.
fn sampled(cast: &Cast, durations: &[u64], every: u64, variance: f64) -> CallStats {
    let all = stats(cast, durations);
    CallStats { fraction: 1.0 / every as f64, estimate: all.count * every, variance, ..all }
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
fn estimates_of_a_bucket_add_up_and_its_fraction_is_what_was_seen_of_them() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.stats(&[stats(&cast, &[1024; 8])]).unwrap();
    writer.commit(START_NS).unwrap();
    let sql = "SELECT count, estimate, variance, fraction FROM call_stats";
    assert_eq!(lines(&path, sql), ["8 8 0.0 1.0"]);
    writer.stats(&[sampled(&cast, &[1024; 2], 4, 6.5)]).unwrap();
    writer.commit(START_NS).unwrap();
    assert_eq!(lines(&path, sql), ["10 16 6.5 0.625"]);
    writer.stats(&[sampled(&cast, &[1024; 2], 8, 2.5)]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, sql), ["12 32 9.0 0.375"]);
    let interval = "SELECT sum(estimate), 1.96 * sqrt(sum(variance)) FROM call_stats";
    assert_eq!(lines(&path, interval), ["32 5.88"]);
}

#[test]
fn a_window_in_which_nothing_was_called_keeps_its_fraction() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let nothing = CallStats {
        count: 0,
        estimate: 0,
        variance: 3.0,
        fraction: 0.1,
        histogram: Histogram::default(),
        ..stats(&cast, &[0])
    };
    writer.stats(&[nothing.clone(), nothing]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT count, estimate, variance, fraction, histogram FROM call_stats";
    assert_eq!(lines(&path, sql), ["0 0 6.0 0.1 []"]);
}

#[test]
fn a_share_or_variance_that_is_no_number_costs_nothing_else() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.stats(&[CallStats { fraction: f64::NAN, variance: f64::NAN, ..stats(&cast, &[1024]) }]).unwrap();
    let other = CallStats { thread: cast.other_thread, fraction: 1.5, variance: -1.0, ..stats(&cast, &[1024]) };
    writer.stats(&[other]).unwrap();
    writer.rung_change(&RungChange { fraction: f64::NAN, ..bursts(&cast) }).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT count, fraction, variance FROM call_stats ORDER BY tid";
    assert_eq!(lines(&path, sql), ["1 0.0 0.0", "1 1.0 0.0"]);
    assert_eq!(lines(&path, "SELECT rung, fraction FROM rungs"), ["bursts 0.0"]);
}

fn bursts(cast: &Cast) -> RungChange {
    RungChange {
        at_ns: START_NS + 3,
        process: cast.process,
        op: cast.launch,
        rung: Rung::Bursts,
        fraction: 0.05,
        reason: "2.1 % of thread 100 is over the budget of 1 %".into(),
    }
}

#[test]
fn changes_of_rung_say_who_what_when_and_why() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.rung_change(&bursts(&cast)).unwrap();
    let back = RungChange { at_ns: START_NS + 9, rung: Rung::Everything, fraction: 1.0, ..bursts(&cast) };
    writer.rung_change(&RungChange { reason: "there is room again".into(), ..back }).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT at_ns - 1790000000000000000, pid, comm, op, layer, rung, fraction, reason, session_id FROM rungs
        ORDER BY at_ns";
    let expected = [
        "3 100 python cuLaunchKernel driver bursts 0.05 2.1 % of thread 100 is over the budget of 1 % 1",
        "9 100 python cuLaunchKernel driver everything 1.0 there is room again 1",
    ];
    assert_eq!(lines(&path, sql), expected);
}

#[test]
fn what_the_tracer_took_adds_up_per_second_and_session() {
    let (_directory, path) = temporary();
    let usage = AgentUsage { bucket_ns: START_NS, wall_ns: 400, cpu_ns: 30, hooks_ns: 2, call_program_ns: 9 };
    let later = AgentUsage { bucket_ns: START_NS + 1_000_000_000, ..usage.clone() };
    let mut first = writer(&path);
    [&usage, &usage, &later].iter().for_each(|usage| first.agent_usage(usage).unwrap());
    first.finish(&end()).unwrap();
    let mut second = writer(&path);
    second.agent_usage(&usage).unwrap();
    second.finish(&end()).unwrap();
    let sql = "SELECT session_id, bucket_ns - 1790000000000000000, wall_ns, cpu_ns, hooks_ns FROM agent_usage
        ORDER BY session_id, bucket_ns";
    assert_eq!(lines(&path, sql), ["1 0 800 60 4", "1 1000000000 400 30 2", "2 0 400 30 2"]);
}

#[test]
fn percentiles_weigh_sampled_rows_as_what_they_stand_for() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    // A hundred short calls, all seen, and ten long ones of two hundred.
    let other = CallStats { thread: cast.other_thread, ..sampled(&cast, &[65536; 10], 20, 0.0) };
    writer.stats(&[stats(&cast, &[1024; 100]), other]).unwrap();
    writer.finish(&end()).unwrap();
    let merged = |arguments: &str| {
        let sql = format!(
            "SELECT merge_histograms({arguments}), percentile_ns(merge_histograms({arguments}), 0.5) FROM call_stats"
        );
        lines(&path, &sql)
    };
    assert_eq!(merged("histogram"), ["[[1024,100],[65536,10]] 1088"]);
    assert_eq!(merged("histogram, fraction"), ["[[1024,100],[65536,200]] 69632"]);
    assert_eq!(merged("histogram, NULL"), merged("histogram"));
    assert_eq!(merged("histogram, 0"), merged("histogram"));
    let trace = Trace::open(&path).unwrap();
    for fraction in ["-0.1", "1.1", "9e999", "'all'"] {
        let sql = format!("SELECT merge_histograms(histogram, {fraction}) FROM call_stats");
        assert!(trace.query(&sql, &Limits::default()).is_err(), "{fraction}");
    }
}

#[test]
fn rounding_does_not_add_up_over_many_rows_nor_depend_on_their_order() {
    let (_directory, path) = temporary();
    writer(&path).finish(&end()).unwrap();
    let sql = |order: &str| {
        format!(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000)
             SELECT merge_histograms('[[1024,1]]', 1.0 / (1 + x % 7)) FROM (SELECT x FROM n ORDER BY x {order})"
        )
    };
    // Of each seven rows one stands for one call, one for two... and 3000 = 7 * 428 + 4.
    let calls = 428 * 28 + (2 + 3 + 4 + 5);
    for order in ["ASC", "DESC"] {
        assert_eq!(lines(&path, &sql(order)), [format!("[[1024,{calls}]]")]);
    }
    let thirds = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000)
        SELECT merge_histograms('[[1024,1]]', 0.75) FROM n";
    assert_eq!(lines(&path, thirds), ["[[1024,4000]]"]);
    let most = u64::MAX;
    let huge = format!("SELECT merge_histograms('[[1024,{most}]]'), merge_histograms('[[1024,5]]', 1e-300)");
    assert_eq!(lines(&path, &huge), [format!("[[1024,{most}]] [[1024,{most}]]")]);
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
        tracer_ns: 7,
        throttled_ns: 30,
        work_ns: [31, 32, 33],
        major_faults: 4,
        minor_faults: 5,
        system_ns: 6,
    };
    writer.thread_times(&[times.clone(), times]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT pid, tid, comm, wall_ns, running_ns, runqueue_ns, blocked_ns, futex_ns, other_ns, in_calls_ns,
        in_calls_runqueue_ns, in_calls_blocked_ns, tracer_ns, throttled_ns, reclaim_ns, compaction_ns, ioctl_call_ns,
        major_faults, minor_faults, system_ns FROM thread_times";
    assert_eq!(lines(&path, sql), ["100 100 python 2000 1728 200 72 2 16 100 10 12 14 60 62 64 66 8 10 12"]);
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
        calibrations: vec![calibration("counted call", 210.5), calibration("kept call", 900.0)],
        budget: Some(0.01),
        is_virtual_machine: true,
    };
    let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [cast.call(1), cast.call(2)]).unwrap();
    writer.note(START_NS + 4, &Note::new(NoteKind::NotAttached, "half of the probes\nfailed")).unwrap();
    writer.clock_anchor(5, -6).unwrap();
    let life = ProcessLife {
        at_ns: START_NS,
        kind: LifeKind::Exit,
        pid: 100,
        child_pid: None,
        status: Some(9),
        comm: "python".into(),
    };
    let killed = ProcessLife { kind: LifeKind::OomKill, status: None, ..life.clone() };
    writer.life(&[killed, life]).unwrap();
    let mut losses = Losses::default();
    losses.add(LossReason::RingFull, 3);
    writer.losses(&losses).unwrap();
    writer.commit(START_NS + 5).unwrap();
    losses.add(LossReason::RingFull, 1);
    let end = SessionEnd { ended_ns: START_NS + 9, seen: 6, losses, agent_cpu_ns: 8, reason: "interrupted".into() };
    writer.finish(&end).unwrap();

    let sql = "SELECT version, host, boot_id, kernel, cpus, gpus, driver, command, attach_path, probe_cost_ns,
        last_commit_ns - started_ns, stored, ended_ns - started_ns, seen, agent_cpu_ns, end_reason, budget,
        is_virtual_machine FROM sessions";
    let expected =
        r#"0.1.0 node7 b 6.18 8 ["H200","H200 \"two\""] null gpuwhy trace multi 900 9 2 9 6 8 interrupted 0.01 1"#;
    assert_eq!(lines(&path, sql), [expected]);
    let sql = "SELECT session_id, what, ns FROM calibrations";
    assert_eq!(lines(&path, sql), ["1 counted call 210.5", "1 kept call 900.0"]);
    assert_eq!(lines(&path, "SELECT reason, count FROM losses"), ["ring_full 4"]);
    assert_eq!(lines(&path, "SELECT text FROM warnings"), ["half of the probes\nfailed"]);
    assert_eq!(lines(&path, "SELECT monotonic_ns, unix_offset_ns FROM clock_anchors"), ["5 -6"]);
    let killed_and_gone = ["oom_kill 100 null python", "exit 100 9 python"];
    assert_eq!(lines(&path, "SELECT kind, pid, status, comm FROM process_life"), killed_and_gone);
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
    writer.note(START_NS, &Note::new(NoteKind::Other, endless.as_str())).unwrap();
    writer.module(&endless, false).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(rows(&path, "SELECT * FROM processes").len(), 1);
    assert_eq!(number(&path, "SELECT LENGTH(cmdline) FROM processes"), 4096);
    assert_eq!(number(&path, "SELECT LENGTH(text) FROM warnings"), 4096);
}

#[test]
fn a_process_comes_back_with_the_limits_of_its_cgroup() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let limits = [
        (Some(0.5), Some(1 << 30)),
        (None, None),
        (Some(0.0), Some(u64::MAX)),
        (Some(f64::NAN), Some(0)),
        (Some(f64::INFINITY), None),
        (Some(-1.0), None),
    ];
    for (cpu_quota, memory_limit) in limits {
        writer.process(&Process { cpu_quota, memory_limit, ..Process::default() }).unwrap();
    }
    writer.finish(&end()).unwrap();
    let expected = ["0.5 1073741824", "null null", "0.0 9223372036854775807", "null 0", "null null", "null null"];
    assert_eq!(lines(&path, "SELECT cpu_quota, memory_limit FROM processes ORDER BY id"), expected);
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
