//! A file of an earlier version is read as it is, and brought up to date when more is written to it.
//!
//! `data/version-N.trace` was written by the last gpuwhy with schema version N: one session with 30 launches and 3
//! allocations of two threads over three seconds. From version 2 on the last second of launches is sampled, from version 3
//! on there are six stretches, an ioctl and a request to a disk, from version 4 on two stacks that calls and waits cite, and
//! version 5, which was made of version 4 by the last gpuwhy with it, has three samples and a label. Version 6 was made of
//! version 5 in the same way, and so was version 7 of that, which has a wait for an operation, a thread that stands still and a
//! TCP event, and version 8, which has news of a fabric.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use gpuwhy_model::Session;
use gpuwhy_store::{Filter, Limits, Options, SCHEMA_VERSION, StoreError, Trace, Writer};
use gpuwhy_window::Scope;
use support::*;
use tempfile::TempDir;

/// Versions that there is a file of.
const OLDER: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8];

/// Questions whose answers are the same before and after a migration.
const QUESTIONS: &[&str] = &[
    "SELECT id, timestamp_ns, duration_ns, running_ns, runqueue_ns, blocked_ns, pid, tid, comm, op, layer, class, runtime_op, device,
       stream, bytes, direction, ret_code, cgroup_id, stack_id, parent_id, caller, handle, address, blocked_on,
       woken_by_pid, woken_by_tid, woken_by_comm, preempted_by_pid, preempted_by_tid, preempted_by_comm, process_comm,
       container_id, session_id FROM cuda_events ORDER BY id",
    "SELECT bucket_ns, pid, tid, comm, op, layer, class, runtime_name, count, sum_ns, min_ns, max_ns, runqueue_ns,
       blocked_ns, bytes, errors, histogram, fraction, session_id FROM call_stats ORDER BY bucket_ns, tid",
    "SELECT bucket_ns, pid, tid, comm, wall_ns, running_ns, runqueue_ns, blocked_ns, futex_ns, io_ns, fault_ns,
       sleep_ns, poll_ns, stream_ns, ioctl_ns, other_ns, in_calls_ns, in_calls_runqueue_ns, in_calls_blocked_ns,
       session_id FROM thread_times ORDER BY bucket_ns",
    "SELECT percentile_ns(merge_histograms(histogram, fraction), 0.99) FROM call_stats",
    "SELECT id, started_ns, version, host, boot_id, kernel, cpus, gpus, driver, command, attach_path, probe_cost_ns,
       last_commit_ns, stored, ended_ns, seen, agent_cpu_ns, end_reason FROM sessions WHERE id = 1",
    "SELECT id, session_id, pid, parent_pid, started_ns, uid, comm, exe, cmdline, cgroup_id, cgroup, container_id
       FROM processes WHERE session_id = 1",
    "SELECT * FROM threads WHERE process_id = 1",
    "SELECT * FROM process_life",
    "SELECT session_id, at_ns, text FROM warnings",
    "SELECT * FROM losses",
    "SELECT * FROM clock_anchors",
];

/// The same of what is new in version 2.
const QUESTIONS_OF_2: &[&str] = &[
    "SELECT bucket_ns, tid, estimate, variance FROM call_stats ORDER BY bucket_ns, tid",
    "SELECT bucket_ns, tid, tracer_ns FROM thread_times ORDER BY bucket_ns",
    "SELECT * FROM rungs",
    "SELECT * FROM calibrations",
    "SELECT * FROM agent_usage ORDER BY bucket_ns",
    "SELECT budget, is_virtual_machine FROM sessions WHERE id = 1",
];

/// The same of what is new in version 3.
const QUESTIONS_OF_3: &[&str] = &[
    "SELECT id, timestamp_ns, duration_ns, blocked_ns, runqueue_ns, is_throttled, pid, tid, comm, blocked_on, op,
       target_kind, target, woken_by_pid, woken_by_tid, woken_by_comm, taken_by_pid, taken_by_tid, taken_by_comm,
       taken_by_ns, also_taken_by_pid, also_taken_by_tid, also_taken_by_comm, also_taken_by_ns, all_count,
       all_blocked_ns, all_runqueue_ns, session_id FROM sched_events ORDER BY id",
    "SELECT * FROM kernel_events",
    "SELECT * FROM io_events",
    "SELECT * FROM io_stats ORDER BY bucket_ns",
    "SELECT bucket_ns, tid, throttled_ns, reclaim_ns, compaction_ns, ioctl_call_ns, major_faults FROM thread_times",
    "SELECT cpu_quota, memory_limit FROM processes WHERE session_id = 1",
];

/// The same of what is new in version 4.
const QUESTIONS_OF_4: &[&str] = &[
    "SELECT id, stack_id, kernel FROM cuda_events ORDER BY id",
    "SELECT id, stack_id, waker_stack_id FROM sched_events ORDER BY id",
    "SELECT * FROM stack_lines",
    "SELECT * FROM call_sites",
    "SELECT * FROM wait_sites",
    "SELECT * FROM waker_sites",
    "SELECT * FROM run_sites",
    "SELECT * FROM stack_stats",
];

/// The same of what is new in version 5.
const QUESTIONS_OF_5: &[&str] = &[
    "SELECT * FROM sample_values",
    "SELECT * FROM labels",
    "SELECT name, is_launch, is_async, is_wait, is_followed, memory, graph_step FROM ops",
];

/// The same of what is new in version 6.
const QUESTIONS_OF_6: &[&str] = &[
    "SELECT * FROM nccl_events",
    "SELECT bucket_ns, tid, minor_faults, system_ns FROM thread_times ORDER BY bucket_ns",
];

/// The same of what is new in version 7.
const QUESTIONS_OF_7: &[&str] = &[
    "SELECT * FROM collective_waits",
    "SELECT * FROM unfinished",
    "SELECT * FROM tcp_events",
    "SELECT clock_shift_ns FROM sessions WHERE id = 1",
];

/// The same of what is new in version 8.
const QUESTIONS_OF_8: &[&str] =
    &["SELECT * FROM rdma_events", "SELECT * FROM nccl_replays", "SELECT id, capture_began_ns FROM nccl_events"];

/// Views that files have since a version.
const NEW: &[(u32, &[&str])] = &[
    (3, &["sched_events", "kernel_events", "io_events", "io_stats"]),
    (4, &["stack_lines", "call_sites", "wait_sites", "waker_sites", "run_sites", "stack_stats"]),
    (5, &["sample_values", "labels"]),
    (6, &["split_ranks"]),
    (8, &["nccl_replays", "rdma_events"]),
    (9, &["annotations"]),
];

const STACKS_SINCE: u32 = 4;

/// Views that files of a version do not have.
fn views_without(found: u32) -> impl Iterator<Item = &'static str> {
    NEW.iter().filter(move |(since, _)| *since > found).flat_map(|(_, views)| *views).copied()
}

fn questions_of(found: u32) -> Vec<&'static str> {
    let all = [
        QUESTIONS,
        QUESTIONS_OF_2,
        QUESTIONS_OF_3,
        QUESTIONS_OF_4,
        QUESTIONS_OF_5,
        QUESTIONS_OF_6,
        QUESTIONS_OF_7,
        QUESTIONS_OF_8,
    ];
    all[..found as usize].concat()
}

/// Everything about a table's columns but their defaults, which only a column that was added later has.
const LAYOUT: &str = "SELECT t.name, t.type, c.cid, c.name, c.type, c.\"notnull\", c.pk
    FROM sqlite_schema AS t, pragma_table_info(t.name) AS c ORDER BY t.name, c.cid";

fn older(version: u32) -> (TempDir, PathBuf) {
    let (directory, path) = temporary();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    std::fs::copy(data.join(format!("version-{version}.trace")), &path).unwrap();
    (directory, path)
}

fn answers(path: &Path, questions: &[&str]) -> Vec<Vec<String>> {
    questions.iter().map(|sql| lines(path, sql)).collect()
}

fn version(path: &Path) -> u32 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn open(path: &Path) -> Result<Writer, StoreError> {
    Writer::open(path, &session(), &Options::default())
}

#[test]
fn there_is_a_file_of_each_older_version() {
    assert_eq!(OLDER.to_vec(), (1..SCHEMA_VERSION).collect::<Vec<_>>());
    for &found in OLDER {
        assert_eq!(version(&older(found).1), found);
    }
}

#[test]
fn an_older_file_is_read_as_it_is() {
    for &found in OLDER {
        let (directory, path) = older(found);
        let before = std::fs::read(&path).unwrap();
        read_as_it_is(&path);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(version(&path), found);
    }
}

fn read_as_it_is(path: &Path) {
    let trace = Trace::open(path).unwrap();
    let found = |filter: Filter| trace.calls(&filter, &Limits::default()).unwrap().rows.len();
    assert_eq!(found(Filter::default()), 33);
    assert_eq!(found(Filter { op: Some("cudaLaunchKernel".into()), ..Filter::default() }), 30);
    assert_eq!(found(Filter { op: Some("cuMemAlloc".into()), ..Filter::default() }), 3);
    assert_eq!(found(Filter { min_duration_ns: Some(1_000_000), ..Filter::default() }), 6);
    assert_eq!(trace.end_ns().unwrap(), Some(START_NS + 3_000_000_000));
    let sums = "SELECT op, sum(count), max(fraction), percentile_ns(merge_histograms(histogram, fraction), 0.5)
        FROM call_stats GROUP BY op ORDER BY op";
    assert_eq!(lines(path, sums), ["cuLaunchKernel 30 1.0 4864", "cuMemAlloc_v2 3 1.0 38912"]);
    let times = "SELECT count(*), sum(wall_ns), sum(running_ns), sum(blocked_ns) FROM thread_times";
    assert_eq!(lines(path, times), ["3 3000000000 2988593895 11400105"]);
}

#[test]
fn what_an_older_file_does_not_have_is_a_clear_error() {
    for &found in OLDER {
        let (_directory, path) = older(found);
        let trace = Trace::open(&path).unwrap();
        for view in views_without(found) {
            let error = trace.query(&format!("SELECT * FROM {view}"), &Limits::default()).unwrap_err();
            assert_eq!(error.to_string(), format!("no such table: {view}"));
            assert!(error.hint().is_some());
        }
        assert_eq!(trace.has_stacks().unwrap(), found >= STACKS_SINCE);
        let column = match found {
            ..3 => "throttled_ns FROM thread_times",
            3 => "waker_stack_id FROM sched_events",
            4 => "is_launch FROM ops",
            5 => "seq FROM nccl_events",
            6 => "clock_shift_ns FROM sessions",
            7 => "capture_began_ns FROM nccl_events",
            // Version 9 added no columns.
            8.. => continue,
        };
        let error = trace.query(&format!("SELECT {column}"), &Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("no such column: {}", column.split(' ').next().unwrap()));
    }
}

#[test]
fn a_window_of_an_older_file_says_that_it_has_no_stacks() {
    for &found in OLDER.iter().filter(|found| **found < 4) {
        let (_directory, path) = older(found);
        let window = Trace::open(&path).unwrap().window(&Scope::default()).unwrap();
        assert_eq!(window.calls.rows.len(), 33);
        assert_eq!(window.stretches.rows.len(), if found < 3 { 0 } else { 6 });
        let has_stacks = found >= STACKS_SINCE;
        assert!(window.stacks.is_empty() != has_stacks && window.stack_walks.is_empty() != has_stacks);
        assert_eq!(window.gaps.iter().any(|gap| gap.contains("without stacks")), !has_stacks, "{:?}", window.gaps);
    }
}

#[test]
fn writing_to_an_older_file_brings_it_up_to_date_and_keeps_everything() {
    for &found in OLDER {
        let (directory, path) = older(found);
        let questions = questions_of(found);
        let before = answers(&path, &questions);
        open(&path).unwrap().finish(&end()).unwrap();
        assert_eq!(version(&path), SCHEMA_VERSION);
        assert_eq!(answers(&path, &questions), before);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(integrity(&path), "ok");
        if found < 3 {
            let sql = "SELECT throttled_ns, reclaim_ns, compaction_ns, ioctl_call_ns, major_faults FROM thread_times";
            assert_eq!(lines(&path, sql), ["0 0 0 0 0"; 3]);
            assert_eq!(lines(&path, "SELECT cpu_quota, memory_limit FROM processes"), ["null null"]);
        }
        let stacks = "SELECT count(stack_id) + count(waker_stack_id) FROM sched_events";
        assert_eq!(number(&path, stacks), if found < 4 { 0 } else { 2 });
        for view in views_without(found) {
            assert_eq!(number(&path, &format!("SELECT count(*) FROM {view}")), 0, "{view}");
        }
    }
}

#[test]
fn all_that_version_1_counted_was_seen() {
    let (_directory, path) = older(1);
    open(&path).unwrap().finish(&end()).unwrap();
    let sql = "SELECT op, count, estimate, variance FROM call_stats GROUP BY op ORDER BY op";
    assert_eq!(lines(&path, sql), ["cuLaunchKernel 10 10 0.0", "cuMemAlloc_v2 1 1 0.0"]);
    assert_eq!(number(&path, "SELECT count(*) FROM call_stats WHERE estimate <> count OR variance <> 0"), 0);
    assert_eq!(lines(&path, "SELECT tracer_ns FROM thread_times"), ["0"; 3]);
    assert_eq!(lines(&path, "SELECT budget, is_virtual_machine FROM sessions"), ["null null", "null 0"]);
}

#[test]
fn allocations_of_an_older_file_are_found_without_a_look_at_all_calls() {
    for &found in OLDER {
        let (_directory, path) = older(found);
        open(&path).unwrap().finish(&end()).unwrap();
        let sql = "SELECT bytes FROM calls INDEXED BY calls_memory WHERE address IS NOT NULL ORDER BY start_ns";
        assert_eq!(lines(&path, sql), ["4096", "8192", "16384"]);
    }
}

#[test]
fn a_session_added_to_an_older_file_stands_beside_the_first() {
    for &found in OLDER {
        let (_directory, path) = older(found);
        let session = Session { calibrations: vec![calibration("kept call", 900.5)], ..session() };
        let mut writer = Writer::open(&path, &session, &Options { max_size: Some(2 << 20) }).unwrap();
        let cast = Cast::new(&mut writer);
        writer.calls(&mut [cast.call(10_000_000_000)]).unwrap();
        writer.stretches(&[cast.stretch(10_000_000_000)]).unwrap();
        writer.finish(&end()).unwrap();
        assert_eq!(lines(&path, "SELECT session_id, count(*) FROM cuda_events GROUP BY 1"), ["1 33", "2 1"]);
        assert_eq!(lines(&path, "SELECT session_id, tid FROM sched_events WHERE session_id = 2"), ["2 100"]);
        let sql = "SELECT what, ns FROM calibrations WHERE session_id = 2";
        assert_eq!(lines(&path, sql), ["kept call 900.5"]);
        // Functions known to the older file keep their ids.
        assert_eq!(number(&path, "SELECT count(*) FROM ops WHERE name = 'cuLaunchKernel'"), 1);
    }
}

#[test]
fn a_migrated_file_is_laid_out_and_describes_itself_like_a_new_one() {
    let other = [
        "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' ORDER BY name",
        "SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name",
        "SELECT * FROM schema_tables",
        "SELECT * FROM schema_columns",
    ];
    let (_new_directory, new) = temporary();
    open(&new).unwrap().finish(&end()).unwrap();
    for &found in OLDER {
        let (_directory, migrated) = older(found);
        open(&migrated).unwrap().finish(&end()).unwrap();
        for sql in other.iter().chain([&LAYOUT]) {
            assert_eq!(lines(&migrated, sql), lines(&new, sql), "version {found}: {sql}");
        }
    }
}

#[test]
fn a_migration_that_fails_leaves_the_file_as_it_was() {
    let in_the_way = [
        (1, "CREATE TABLE rungs (mine)", "rungs"),
        (1, "CREATE VIEW agent_usage AS SELECT 1 AS mine", "agent_usage"),
        (1, "CREATE INDEX rung_changes_time ON warnings (at_ns)", "rung_changes_time"),
        (1, "CREATE TABLE stretches (mine)", "stretches"),
        (2, "CREATE TABLE sched_events (mine)", "sched_events"),
        (2, "CREATE VIEW io_usage AS SELECT 1 AS mine", "io_usage"),
        (2, "CREATE INDEX calls_memory ON calls (bytes)", "calls_memory"),
        (2, "ALTER TABLE processes ADD COLUMN cpu_quota ANY", "cpu_quota"),
        (3, "CREATE TABLE stacks (mine)", "stacks"),
        (3, "CREATE TABLE call_sites (mine)", "call_sites"),
        (3, "CREATE INDEX calls_stacks ON calls (stack_id)", "calls_stacks"),
        (3, "ALTER TABLE stretches ADD COLUMN stack_id ANY", "stack_id"),
        (4, "CREATE TABLE samples (mine)", "samples"),
        (4, "CREATE TABLE labels (mine)", "labels"),
        (4, "ALTER TABLE ops ADD COLUMN is_launch ANY", "is_launch"),
        (4, "CREATE TABLE explanations (mine)", "explanations"),
        (5, "CREATE TABLE nccl_operands (mine)", "nccl_operands"),
        (5, "CREATE TABLE split_ranks (mine)", "split_ranks"),
    ];
    for (version, sql, name) in in_the_way {
        let (directory, path) = older(version);
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).err().expect(name);
        assert!(matches!(error, StoreError::NotMigrated { found, .. } if found == version), "{error}");
        let message = error.to_string();
        assert!(message.contains(&format!("schema version {version}")) && message.contains(name), "{message}");
        assert!(!message.contains("CREATE"), "{message}");
        assert!(error.hint().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(number(&path, "SELECT count(*) FROM cuda_events"), 33);
    }
}

#[test]
fn a_file_that_somebody_reads_is_not_migrated_under_them() {
    let (_directory, path) = older(2);
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT COUNT(*) FROM calls", [], |_| Ok(())).unwrap();
    let error = open(&path).err().expect("in use");
    assert!(error.to_string().contains("another program has it open"), "{error}");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(version(&path), 2);
    open(&path).unwrap().finish(&end()).unwrap();
    assert_eq!(version(&path), SCHEMA_VERSION);
}

#[test]
fn a_full_file_is_not_migrated_beyond_its_size_cap() {
    let (_directory, path) = older(2);
    let cap = 1 << 20;
    let filler = rusqlite::Connection::open(&path).unwrap();
    filler.pragma_update(None, "synchronous", "OFF").unwrap();
    // A quarter of the cap is for the log.
    while path.metadata().unwrap().len() < cap / 4 * 3 {
        filler.execute("INSERT INTO warnings VALUES (1, 1, ?)", ["x".repeat(3000)]).unwrap();
    }
    drop(filler);
    let before = std::fs::read(&path).unwrap();
    let error = Writer::open(&path, &session(), &Options { max_size: Some(cap) }).err().expect("no room");
    assert!(error.to_string().contains("size cap has no room"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    open(&path).unwrap().finish(&end()).unwrap();
}

#[test]
fn the_log_of_a_killed_tracer_is_part_of_the_older_file() {
    let (_directory, path) = older(2);
    let (left, log) = (path.with_extension("left"), path.with_extension("left-wal"));
    {
        let killed = rusqlite::Connection::open(&path).unwrap();
        killed.pragma_update(None, "journal_mode", "WAL").unwrap();
        killed.execute("INSERT INTO warnings VALUES (1, 2, 'only in the log')", []).unwrap();
        std::fs::copy(&path, &left).unwrap();
        std::fs::copy(path.with_extension("db-wal"), &log).unwrap();
    }
    let writer = open(&left).unwrap();
    // Those who look at the head of the file only must see the new version at once.
    let head = std::fs::read(&left).unwrap();
    assert_eq!(head[60..64], SCHEMA_VERSION.to_be_bytes());
    writer.finish(&end()).unwrap();
    assert_eq!(number(&left, "SELECT count(*) FROM warnings WHERE text = 'only in the log'"), 1);
    assert_eq!(version(&left), SCHEMA_VERSION);
}

#[test]
fn a_trace_open_for_reading_goes_on_after_the_migration() {
    let (_directory, path) = older(2);
    let trace = Trace::open(&path).unwrap();
    let count = |sql| line(&trace.query(sql, &Limits::default()).unwrap().rows[0]);
    assert_eq!(count("SELECT sum(count) FROM call_stats"), "33");
    let writer = open(&path).unwrap();
    assert_eq!(count("SELECT sum(throttled_ns) FROM thread_times"), "0");
    drop(writer);
}

#[test]
fn an_older_file_can_be_read_as_if_it_were_new() {
    let (_directory, new) = temporary();
    drop(open(&new).unwrap());
    for &found in OLDER {
        let (_directory, path) = older(found);
        let before = std::fs::read(&path).unwrap();
        let trace = Trace::open_as_newest(&path).unwrap();
        let count = |sql: &str| trace.query(sql, &Limits::default()).unwrap().rows;
        for view in views_without(found) {
            assert_eq!(trace.query(&format!("SELECT * FROM {view}"), &Limits::default()).unwrap().rows.len(), 0);
        }
        let sums = "SELECT sum(count), sum(estimate) >= sum(count), sum(variance) >= 0 FROM call_stats";
        assert_eq!(line(&count(sums)[0]), "33 1 1");
        for table in lines(&new, "SELECT name FROM schema_tables") {
            trace.query(&format!("SELECT * FROM {table} LIMIT 1"), &Limits::default()).unwrap();
        }
        assert_eq!(trace.has_stacks().unwrap(), found >= STACKS_SINCE);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
