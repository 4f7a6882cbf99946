//! Several traces become one file: every row of each, with ids and times of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use gpuwhy_model::Session;
use gpuwhy_store::{Options, Part, SCHEMA_VERSION, StoreError, Trace, Writer, merge};
use gpuwhy_window::Scope;
use support::*;

/// A trace of a host that has ten launches, each with a call inside, and as many waits.
fn trace(dir: &Path, host: &str) -> PathBuf {
    let path = dir.join(format!("{host}.db"));
    let session = Session { host: host.into(), boot_id: format!("boot of {host}"), ..session() };
    let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
    let cast = Cast::new(&mut writer);
    let target = writer.target(&cast.target("0x7f12")).unwrap();
    let mut calls = Vec::new();
    let mut waits = Vec::new();
    for at in 0..10 {
        let mut outer = cast.call(at * 1_000);
        outer.op = cast.runtime_launch;
        let mut inner = cast.call(at * 1_000 + 1);
        inner.parent_start_ns = Some(outer.start_ns);
        calls.extend([outer, inner]);
        let mut wait = cast.stretch(at * 1_000);
        (wait.target, wait.woken_by) = (Some(target), Some(cast.other_thread));
        waits.push(wait);
    }
    writer.calls(&mut calls).unwrap();
    writer.stretches(&waits).unwrap();
    writer.finish(&end()).unwrap();
    path
}

fn part(path: &Path, shift_ns: i64) -> Part {
    Part { path: path.into(), shift_ns, error_ns: Some(7) }
}

fn merged(dir: &Path, parts: &[Part]) -> PathBuf {
    let out = dir.join("merged.db");
    let mut done = Vec::new();
    merge(parts, &out, |at| done.push(at)).unwrap();
    assert_eq!(done, (0..parts.len()).collect::<Vec<_>>());
    assert_eq!(integrity(&out), "ok");
    out
}

/// What a file says, without its ids and times.
const SAID: &[&str] = &[
    "SELECT duration_ns, pid, tid, comm, op, layer, class, device, caller, timestamp_ns - parent_id FROM cuda_events",
    "SELECT blocked_ns, pid, tid, blocked_on, target_kind, target, woken_by_tid, woken_by_comm FROM sched_events",
    "SELECT pid, comm, cgroup_id FROM processes",
    "SELECT tid, comm FROM threads",
    "SELECT version, host, boot_id, stored FROM sessions",
];

#[test]
fn every_row_of_each_trace_is_there_also_where_times_and_pids_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (trace(dir.path(), "one"), trace(dir.path(), "other"));
    let out = merged(dir.path(), &[part(&one, 0), part(&other, 0)]);
    for sql in SAID {
        let mut expected = [lines(&one, sql), lines(&other, sql)].concat();
        let mut found = lines(&out, sql);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{sql}");
    }
    // A function is the same one on all hosts.
    assert_eq!(number(&out, "SELECT count(*) FROM ops"), number(&one, "SELECT count(*) FROM ops"));
    let by_host = "SELECT count(DISTINCT session_id) || ' ' || count(*) FROM cuda_events GROUP BY session_id";
    assert_eq!(lines(&out, by_host), ["1 20", "1 20"]);
    // Those that had to get out of the way are still inside of their own.
    let inside = "SELECT count(*) FROM cuda_events AS i JOIN cuda_events AS o ON o.id = i.parent_id
        WHERE i.session_id = o.session_id AND o.op = 'cudaLaunchKernel' AND i.op = 'cuLaunchKernel'";
    assert_eq!(number(&out, inside), 20);
}

/// It was lost, or has expired.
#[test]
fn what_is_told_of_calls_that_are_not_there_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let parts = ["ada", "bob"].map(|host| part(&trace(dir.path(), host), 0));
    for part in &parts {
        let trace = rusqlite::Connection::open(&part.path).unwrap();
        trace.execute("INSERT INTO collective_waits (start_ns, done_ns, wait_ns) VALUES (77, 78, 1)", []).unwrap();
    }
    let out = merged(dir.path(), &parts);
    assert_eq!(number(&out, "SELECT count(*) FROM collective_waits"), 1);
    assert_eq!(number(&out, "SELECT count(*) FROM cuda_events"), 40);
}

#[test]
fn times_are_moved_and_the_file_says_by_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (trace(dir.path(), "one"), trace(dir.path(), "other"));
    let out = merged(dir.path(), &[part(&one, 0), part(&other, -2_500_000_000)]);
    let first = "SELECT min(timestamp_ns) FROM cuda_events GROUP BY session_id ORDER BY session_id";
    let start_ns = START_NS as i64;
    assert_eq!(lines(&out, first), [start_ns.to_string(), (start_ns - 2_500_000_000).to_string()]);
    let says = "SELECT host, clock_shift_ns, clock_error_ns FROM sessions ORDER BY id";
    assert_eq!(lines(&out, says), ["one 0 7", "other -2500000000 7"]);
    let window = Trace::open(&out).unwrap().window(&Scope::default()).unwrap();
    let hosts: Vec<_> = window.hosts.iter().map(|host| (host.name.as_str(), host.clock_error_ns)).collect();
    assert_eq!(hosts, [("one", Some(7)), ("other", Some(7))]);
    let of_processes: Vec<u16> = window.processes.keys().map(|&process| window.host_of(process)).collect();
    assert_eq!(of_processes, [0, 1]);
}

#[test]
fn hosts_of_the_same_name_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let parts: Vec<Part> = (0..3)
        .map(|at| {
            let path = trace(dir.path(), &format!("node{at}"));
            rusqlite::Connection::open(&path).unwrap().execute("UPDATE sessions SET host = 'node'", []).unwrap();
            part(&path, 0)
        })
        .collect();
    let window = Trace::open(merged(dir.path(), &parts)).unwrap().window(&Scope::default()).unwrap();
    let hosts: Vec<&str> = window.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["node", "node#2", "node#3"]);
}

/// Its clock is not in line with those that are there.
#[test]
fn what_is_traced_into_a_merged_file_later_is_another_host() {
    let dir = tempfile::tempdir().unwrap();
    let parts = ["one", "other"].map(|host| part(&trace(dir.path(), host), 0));
    let out = merged(dir.path(), &parts);
    let session = Session { host: "third".into(), boot_id: "boot of third".into(), ..session() };
    let mut writer = Writer::open(&out, &session, &Options::default()).unwrap();
    Cast::new(&mut writer);
    writer.finish(&end()).unwrap();
    let window = Trace::open(&out).unwrap().window(&Scope::default()).unwrap();
    let hosts: Vec<_> = window.hosts.iter().map(|host| (host.name.as_str(), host.clock_error_ns)).collect();
    assert_eq!(hosts, [("one", Some(7)), ("other", Some(7)), ("third", None)]);
}

#[test]
fn traces_of_earlier_versions_are_merged_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut parts = vec![part(&trace(dir.path(), "new"), 0)];
    for version in 1..SCHEMA_VERSION {
        let path = dir.path().join(format!("version-{version}.db"));
        std::fs::copy(data.join(format!("version-{version}.trace")), &path).unwrap();
        // The same run, in files of different versions.
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute("UPDATE sessions SET boot_id = ?", [format!("boot {version}")]).unwrap();
        parts.push(part(&path, 0));
    }
    let out = merged(dir.path(), &parts);
    let all: i64 = parts.iter().map(|part| number(&part.path, "SELECT count(*) FROM cuda_events")).sum();
    assert_eq!(number(&out, "SELECT count(*) FROM cuda_events"), all);
    let traces = lines(&out, "SELECT session_id, count(*) FROM call_stats GROUP BY session_id");
    assert_eq!(traces.len() as u32, SCHEMA_VERSION - 1, "{traces:?}");
}

#[test]
fn many_traces_become_one() {
    let dir = tempfile::tempdir().unwrap();
    let parts: Vec<Part> = (0..64).map(|at| part(&trace(dir.path(), &format!("node{at}")), at * 13)).collect();
    let out = merged(dir.path(), &parts);
    assert_eq!(number(&out, "SELECT count(*) FROM cuda_events"), 64 * 20);
    let inside = "SELECT count(*) FROM cuda_events AS i JOIN cuda_events AS o ON o.id = i.parent_id
        WHERE i.session_id = o.session_id AND i.op <> o.op";
    assert_eq!(number(&out, inside), 64 * 10);
    assert_eq!(Trace::open(&out).unwrap().window(&Scope::default()).unwrap().hosts.len(), 64);
}

#[test]
fn what_cannot_be_merged_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (one, out) = (trace(dir.path(), "one"), dir.path().join("merged.db"));
    let not_a_trace = dir.path().join("notes.txt");
    std::fs::write(&not_a_trace, "notes").unwrap();
    let wrong = |parts: &[Part]| {
        let error = merge(parts, &out, |_| {}).unwrap_err();
        assert!(!out.exists() && error.hint().is_some(), "{error}");
        error
    };
    assert!(matches!(wrong(&[part(&one, 0), part(&one, 0)]), StoreError::MergedTwice { host, .. } if host == "one"));
    assert!(matches!(wrong(&[part(&one, 0), part(&not_a_trace, 0)]), StoreError::NotATrace { .. }));
    assert!(matches!(wrong(&[part(&one, 0), part(&dir.path().join("none.db"), 0)]), StoreError::NotFound { .. }));
    let damaged = dir.path().join("damaged.db");
    let mut bytes = std::fs::read(trace(dir.path(), "damaged")).unwrap();
    bytes[8192..].fill(0xa5);
    std::fs::write(&damaged, bytes).unwrap();
    let StoreError::Damaged { path, .. } = wrong(&[part(&one, 0), part(&damaged, 0)]) else { panic!("it is not") };
    assert_eq!(path, damaged);
    let before = std::fs::read(&one).unwrap();
    assert!(matches!(merge(&[part(&one, 0)], &one, |_| {}), Err(StoreError::Exists { .. })));
    assert_eq!(std::fs::read(&one).unwrap(), before);
}
