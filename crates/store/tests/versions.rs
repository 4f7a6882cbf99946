//! A file of an earlier version is read as it is, and brought up to date when more is written to it.
//!
//! `data/version-1.trace` was written by the last gpuwhy with schema version 1: one session with 30 launches and 3
//! allocations of two threads over three seconds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use gpuwhy_model::Session;
use gpuwhy_store::{Filter, Limits, Options, SCHEMA_VERSION, StoreError, Trace, Writer};
use support::*;
use tempfile::TempDir;

/// Questions whose answers are the same before and after a migration.
const QUESTIONS: &[&str] = &[
    "SELECT * FROM cuda_events ORDER BY id",
    "SELECT bucket_ns, pid, tid, comm, op, layer, class, runtime_name, count, sum_ns, min_ns, max_ns, runqueue_ns,
       blocked_ns, bytes, errors, histogram, fraction, session_id FROM call_stats ORDER BY bucket_ns, tid",
    "SELECT bucket_ns, pid, tid, comm, wall_ns, running_ns, runqueue_ns, blocked_ns, futex_ns, io_ns, fault_ns,
       sleep_ns, poll_ns, stream_ns, ioctl_ns, other_ns, in_calls_ns, in_calls_runqueue_ns, in_calls_blocked_ns,
       session_id FROM thread_times ORDER BY bucket_ns",
    "SELECT percentile_ns(merge_histograms(histogram, fraction), 0.99) FROM call_stats",
    "SELECT id, started_ns, version, host, boot_id, kernel, cpus, gpus, driver, command, attach_path, probe_cost_ns,
       last_commit_ns, stored, ended_ns, seen, agent_cpu_ns, end_reason FROM sessions WHERE id = 1",
    "SELECT * FROM processes WHERE session_id = 1",
    "SELECT * FROM threads WHERE process_id = 1",
    "SELECT * FROM process_life",
    "SELECT * FROM warnings",
    "SELECT * FROM losses",
    "SELECT * FROM clock_anchors",
];

/// Everything about a table's columns but their defaults, which only a column that was added later has.
const LAYOUT: &str = "SELECT t.name, t.type, c.cid, c.name, c.type, c.\"notnull\", c.pk
    FROM sqlite_schema AS t, pragma_table_info(t.name) AS c ORDER BY t.name, c.cid";

fn version_1() -> (TempDir, PathBuf) {
    let (directory, path) = temporary();
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.trace"), &path).unwrap();
    (directory, path)
}

fn answers(path: &Path) -> Vec<Vec<String>> {
    QUESTIONS.iter().map(|sql| lines(path, sql)).collect()
}

fn version(path: &Path) -> u32 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn open(path: &Path) -> Result<Writer, StoreError> {
    Writer::open(path, &session(), &Options::default())
}

#[test]
fn an_older_file_is_read_as_it_is() {
    let (directory, path) = version_1();
    let before = std::fs::read(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let found = |filter: Filter| trace.calls(&filter, &Limits::default()).unwrap().rows.len();
    assert_eq!(found(Filter::default()), 33);
    assert_eq!(found(Filter { op: Some("cudaLaunchKernel".into()), ..Filter::default() }), 30);
    assert_eq!(found(Filter { op: Some("cuMemAlloc".into()), ..Filter::default() }), 3);
    assert_eq!(found(Filter { min_duration_ns: Some(1_000_000), ..Filter::default() }), 6);
    assert_eq!(trace.end_ns().unwrap(), Some(START_NS + 3_000_000_000));
    let sums = "SELECT op, sum(count), min(fraction), percentile_ns(merge_histograms(histogram, fraction), 0.5)
        FROM call_stats GROUP BY op ORDER BY op";
    assert_eq!(lines(&path, sums), ["cuLaunchKernel 30 1.0 4864", "cuMemAlloc_v2 3 1.0 38912"]);
    let times = "SELECT count(*), sum(wall_ns), sum(running_ns), sum(blocked_ns) FROM thread_times";
    assert_eq!(lines(&path, times), ["3 3000000000 2988593895 11400105"]);
    drop(trace);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(version(&path), 1);
}

#[test]
fn writing_to_an_older_file_brings_it_up_to_date_and_keeps_everything() {
    let (directory, path) = version_1();
    let before = answers(&path);
    open(&path).unwrap().finish(&end()).unwrap();
    assert_eq!(version(&path), SCHEMA_VERSION);
    assert_eq!(answers(&path), before);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(integrity(&path), "ok");
    let sql = "SELECT op, count, estimate, variance FROM call_stats GROUP BY op ORDER BY op";
    assert_eq!(lines(&path, sql), ["cuLaunchKernel 10 10 0.0", "cuMemAlloc_v2 1 1 0.0"]);
    assert_eq!(number(&path, "SELECT count(*) FROM call_stats WHERE estimate <> count OR variance <> 0"), 0);
    assert_eq!(lines(&path, "SELECT tracer_ns FROM thread_times"), ["0"; 3]);
    assert_eq!(lines(&path, "SELECT budget, is_virtual_machine FROM sessions"), ["null null", "null 0"]);
}

#[test]
fn a_session_added_to_an_older_file_stands_beside_the_first() {
    let (_directory, path) = version_1();
    let session = Session { calibrations: vec![calibration("counted call", 210.5)], ..session() };
    let mut writer = Writer::open(&path, &session, &Options { max_size: Some(2 << 20) }).unwrap();
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [cast.call(10_000_000_000)]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT session_id, count(*) FROM cuda_events GROUP BY 1"), ["1 33", "2 1"]);
    assert_eq!(lines(&path, "SELECT session_id, what, ns FROM calibrations"), ["2 counted call 210.5"]);
    // Functions known to version 1 keep their ids.
    assert_eq!(number(&path, "SELECT count(*) FROM ops WHERE name = 'cuLaunchKernel'"), 1);
}

#[test]
fn a_migrated_file_is_laid_out_and_describes_itself_like_a_new_one() {
    let (_directory, migrated) = version_1();
    let (_other_directory, new) = temporary();
    for path in [&migrated, &new] {
        open(path).unwrap().finish(&end()).unwrap();
    }
    let other = [
        "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' ORDER BY name",
        "SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name",
        "SELECT * FROM schema_tables",
        "SELECT * FROM schema_columns",
    ];
    for sql in other.iter().chain([&LAYOUT]) {
        assert_eq!(lines(&migrated, sql), lines(&new, sql), "{sql}");
    }
}

#[test]
fn a_migration_that_fails_leaves_the_file_as_it_was() {
    let in_the_way = [
        ("CREATE TABLE rungs (mine)", "rungs"),
        ("CREATE VIEW agent_usage AS SELECT 1 AS mine", "agent_usage"),
        ("CREATE INDEX rung_changes_time ON warnings (at_ns)", "rung_changes_time"),
    ];
    for (sql, name) in in_the_way {
        let (directory, path) = version_1();
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).err().expect(name);
        assert!(matches!(error, StoreError::NotMigrated { found: 1, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("schema version 1") && message.contains(name), "{message}");
        assert!(!message.contains("CREATE"), "{message}");
        assert!(error.hint().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(number(&path, "SELECT count(*) FROM cuda_events"), 33);
    }
}

#[test]
fn a_file_that_somebody_reads_is_not_migrated_under_them() {
    let (_directory, path) = version_1();
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT COUNT(*) FROM calls", [], |_| Ok(())).unwrap();
    let error = open(&path).err().expect("in use");
    assert!(error.to_string().contains("another program has it open"), "{error}");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(version(&path), 1);
    open(&path).unwrap().finish(&end()).unwrap();
    assert_eq!(version(&path), SCHEMA_VERSION);
}

#[test]
fn a_full_file_is_not_migrated_beyond_its_size_cap() {
    let (_directory, path) = version_1();
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
    let (_directory, path) = version_1();
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
    let (_directory, path) = version_1();
    let trace = Trace::open(&path).unwrap();
    let count = |sql| line(&trace.query(sql, &Limits::default()).unwrap().rows[0]);
    assert_eq!(count("SELECT sum(count) FROM call_stats"), "33");
    let writer = open(&path).unwrap();
    assert_eq!(count("SELECT sum(estimate) FROM call_stats"), "33");
    drop(writer);
}
