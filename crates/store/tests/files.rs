//! Whose file it is, who may read it and when, and what a killed tracer leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuwhy_store::{Limits, Options, SCHEMA_VERSION, StoreError, Trace, Writer};
use support::*;

/// Tells this test binary, started again, which file to work on.
const FILE: &str = "GPUWHY_TEST_FILE";

fn finished(path: &Path) {
    let mut writer = writer(path);
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [cast.call(0)]).unwrap();
    writer.finish(&end()).unwrap();
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_finished_trace_is_one_file() {
    let (_directory, path) = temporary();
    finished(&path);
    assert_eq!(names(&path), ["trace.db"]);
}

#[test]
fn a_file_that_is_not_a_trace_is_refused_and_untouched() {
    let (directory, path) = temporary();
    let database = directory.path().join("other.db");
    rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    std::fs::write(&path, "a diary, not a trace").unwrap();
    for path in [&path, &database] {
        let before = std::fs::read(path).unwrap();
        let writing = Writer::open(path, &session(), &Options::default()).err().unwrap();
        assert!(matches!(writing, StoreError::NotATrace { .. }), "{writing}");
        let reading = Trace::open(path).err().unwrap();
        assert!(matches!(reading, StoreError::NotATrace { .. }), "{reading}");
        assert_eq!(std::fs::read(path).unwrap(), before);
    }
    let folder = Writer::open(directory.path(), &session(), &Options::default()).err().unwrap();
    assert!(matches!(folder, StoreError::NotATrace { .. }), "{folder}");
    assert_eq!(names(&path).len(), 2);
}

#[test]
fn a_newer_schema_is_refused_and_untouched() {
    let (_directory, path) = temporary();
    finished(&path);
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    let before = std::fs::read(&path).unwrap();
    let errors =
        [Writer::open(&path, &session(), &Options::default()).err().unwrap(), Trace::open(&path).err().unwrap()];
    for error in errors {
        let StoreError::Newer { found, supported, .. } = error else { panic!("{error}") };
        assert_eq!((found, supported), (SCHEMA_VERSION + 1, SCHEMA_VERSION));
        assert!(error.hint().is_some());
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_missing_file_or_directory_is_named() {
    let (directory, path) = temporary();
    assert!(matches!(Trace::open(&path), Err(StoreError::NotFound { .. })));
    let nowhere = directory.path().join("nowhere/trace.db");
    let error = Writer::open(&nowhere, &session(), &Options::default()).err().unwrap();
    assert!(error.to_string().contains("nowhere: "), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_and_not_a_panic() {
    let (_directory, path) = temporary();
    finished(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    assert!(Trace::open(&path).is_err());
    assert!(Writer::open(&path, &session(), &Options::default()).is_err());
}

#[test]
fn a_file_has_one_writer_at_a_time() {
    let (_directory, path) = temporary();
    let first = writer(&path);
    assert!(matches!(Writer::open(&path, &session(), &Options::default()), Err(StoreError::Busy { .. })));
    let other_process = again("child_tries_to_write", &path).output().unwrap();
    assert!(String::from_utf8_lossy(&other_process.stdout).contains("another tracer"), "{other_process:?}");
    drop(first);
    writer(&path).finish(&end()).unwrap();
}

#[test]
fn what_is_committed_can_be_read_while_more_is_written() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.commit(START_NS).unwrap();
    let trace = Trace::open(&path).unwrap();
    let count = || line(&trace.query("SELECT COUNT(*) FROM cuda_events", &Limits::default()).unwrap().rows[0]);
    for batch in 0..5u64 {
        writer.calls(&mut (0..100).map(|at| cast.call(batch * 1000 + at)).collect::<Vec<_>>()).unwrap();
        assert_eq!(count(), (batch * 100).to_string());
        writer.commit(START_NS).unwrap();
        assert_eq!(count(), ((batch + 1) * 100).to_string());
    }
    writer.finish(&end()).unwrap();
    assert_eq!(count(), "500");
    drop(trace);
    assert_eq!(number(&path, "SELECT stored FROM sessions"), 500);
}

#[test]
fn a_reader_at_the_end_leaves_a_file_that_is_complete_by_itself() {
    let (directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [cast.call(0)]).unwrap();
    writer.commit(START_NS).unwrap();
    let trace = Trace::open(&path).unwrap();
    trace.query("SELECT 1 FROM calls", &Limits::default()).unwrap();
    writer.finish(&end()).unwrap();
    let copy = directory.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(lines(&copy, "SELECT stored, end_reason FROM sessions"), ["1 finished"]);
    drop(trace);
}

#[test]
fn a_killed_tracer_loses_no_more_than_its_last_batch() {
    let (_directory, path) = temporary();
    let mut child = again("child_writes_for_ever", &path).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let committed =
        output.lines().map_while(Result::ok).filter_map(|line| line.strip_prefix("committed ")?.parse().ok());
    let committed: i64 = committed.take(20).last().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Read first as it was left, with its log, and then checked in full.
    let stored = number(&path, "SELECT COUNT(*) FROM cuda_events");
    assert!(stored >= committed, "{stored} of {committed}");
    assert_eq!(number(&path, "SELECT stored FROM sessions"), stored);
    assert_eq!(lines(&path, "SELECT ended_ns FROM sessions"), ["null"]);
    assert_eq!(integrity(&path), "ok");
    finished(&path);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM cuda_events"), stored + 1);
}

#[test]
fn root_an_ordinary_user_reads_a_trace_in_a_directory_that_is_not_theirs() {
    let (directory, path) = temporary();
    let owner = directory.path().metadata().map(|found| std::os::unix::fs::MetadataExt::uid(&found)).unwrap();
    assert_eq!(owner, 0, "this test becomes another user and needs root; -E 'not test(root_)' leaves out all that do");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.calls(&mut [cast.call(0)]).unwrap();
    writer.commit(START_NS).unwrap();
    assert_eq!(read_as_nobody(&path), "read 1", "while it is written");
    writer.finish(&end()).unwrap();
    assert_eq!(read_as_nobody(&path), "read 1", "when it is finished");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "journal_mode", "WAL").unwrap();
    assert_eq!(names(&path), ["trace.db"]);
    assert_eq!(read_as_nobody(&path), "read 1", "left in WAL mode without a log");
    let mut child = again("child_writes_for_ever", &path).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    output.lines().map_while(Result::ok).find(|line| line.starts_with("committed"));
    child.kill().unwrap();
    child.wait().unwrap();
    let stored: u64 = read_as_nobody(&path).strip_prefix("read ").unwrap().parse().unwrap();
    assert!(stored > 1000, "left by a killed tracer");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(read_as_nobody(&path).contains("no permission"), "{}", read_as_nobody(&path));
}

fn read_as_nobody(path: &Path) -> String {
    let output = again("child_reads", path).uid(65534).gid(65534).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    output.lines().find(|line| line.starts_with("read")).unwrap_or(&output).to_owned()
}

/// One test of this binary, in a process of its own.
fn again(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(FILE, path).stderr(Stdio::inherit());
    command
}

fn file_of_child() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

#[test]
fn child_writes_for_ever() {
    let Some(path) = file_of_child() else { return };
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    for batch in 0.. {
        writer.calls(&mut (0..1000).map(|at| cast.call((batch * 1000 + at) * 100)).collect::<Vec<_>>()).unwrap();
        writer.commit(START_NS).unwrap();
        println!("committed {}", (batch + 1) * 1000);
    }
}

#[test]
fn child_tries_to_write() {
    let Some(path) = file_of_child() else { return };
    println!("{}", Writer::open(&path, &session(), &Options::default()).err().unwrap());
}

#[test]
fn child_reads() {
    let Some(path) = file_of_child() else { return };
    let trace = Trace::open(&path).map(|trace| trace.query("SELECT COUNT(*) FROM cuda_events", &Limits::default()));
    match trace {
        Ok(answer) => println!("\nread {}", line(&answer.unwrap().rows[0])),
        Err(error) => println!("\nread not: {error}"),
    }
}
