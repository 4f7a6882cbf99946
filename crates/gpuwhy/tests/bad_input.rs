//! Whatever is wrong, gpuwhy says what and what to do about it, and loses nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpuwhy_testbed::Workload;
use support::mounts::Mount;
use support::{Finished, Place, Tracing, gpuwhy, integrity, needs_root, output, small_trace, traced};

/// A command that fails with these words, and a hint.
fn fails(command: Command, words: &str, hint: &str) {
    let (code, stdout, stderr) = output(command);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("error: ") && line.contains(words)), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("hint: ") && line.contains(hint)), "{stderr}");
}

/// The same, inside a mount namespace in which something was changed before.
fn in_namespace(change: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("{change} && exec \"$0\" \"$@\"");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_gpuwhy")]).args(arguments);
    command
}

/// The same as a user without any privilege, by a binary that such a user can reach.
fn as_nobody(place: &Place, arguments: &[&str]) -> Command {
    let binary = place.dir.path().join("gpuwhy");
    if !binary.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_gpuwhy"), &binary).unwrap();
    }
    std::fs::set_permissions(place.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary).args(arguments);
    command
}

#[test]
fn root_without_privilege_it_says_so() {
    needs_root();
    let place = Place::new();
    fails(as_nobody(&place, &["trace"]), "not enough privilege", "sudo");
    let (code, stdout, _) = output(as_nobody(&place, &["check", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &report["can_trace"]), (0, &serde_json::Value::Bool(false)));
    let (code, stdout, _) = output(as_nobody(&place, &["check", "--exit-code"]));
    assert_eq!(code, 3);
    assert!(stdout.contains("FAIL privilege"), "{stdout}");
}

#[test]
fn root_a_kernel_without_type_information_is_named() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let command = in_namespace("mount -t tmpfs none /sys/kernel/btf", &["trace", "--out", file.to_str().unwrap()]);
    fails(command, "/sys/kernel/btf/vmlinux is missing", "CONFIG_DEBUG_INFO_BTF");
    assert!(!file.exists());
}

#[test]
fn root_tracefs_is_mounted_where_nobody_has() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let arguments = ["trace", "--out", file.to_str().unwrap(), "--duration", "10ms"];
    let (code, _, stderr) = output(in_namespace("umount /sys/kernel/tracing", &arguments));
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn root_a_process_that_is_not_there_is_named() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let (code, _, stderr) = output(gpuwhy(&["trace", "--out", file.to_str().unwrap(), "-p", "1073741800"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("error: there is no process 1073741800"), "{stderr}");
    assert!(!file.exists());
}

#[test]
fn root_a_full_disk_ends_the_trace_and_keeps_what_is_there() {
    needs_root();
    let place = Place::new();
    let disk = Mount::tmpfs("size=4m", &place.dir.path().join("disk"));
    let file = disk.path().join("trace.db");
    // Slow enough for some commits to fit.
    let workload = Workload::new(&place.testbed).threads(2).rate(10_000.0).duration(Duration::from_secs(30));
    let mut running = workload.start().unwrap();
    running.wait_ready().unwrap();
    let pid = running.pid().to_string();
    let mut tracing =
        Tracing::start(gpuwhy(&["trace", "--budget", "0", "--out", file.to_str().unwrap(), "-p", &pid]), file.clone());
    tracing.wait_ready();
    running.go().unwrap();
    let status = tracing.wait_exit();
    assert_eq!(status.code(), Some(1));
    let said = |words: &str| tracing.log.iter().any(|line| line.contains(words));
    assert!(said("error: the disk is full") && said("hint: free some space"), "{:#?}", tracing.log);
    let finished = Finished::open(&file, tracing.log.clone());
    let stored = finished.number("SELECT count(*) FROM cuda_events");
    assert!(stored > 0);
    assert_eq!(finished.number("SELECT stored FROM sessions"), stored);
    // There was room for the last words.
    assert!(finished.text("SELECT end_reason FROM sessions").contains("the disk is full"));
    assert!(finished.loss("not_written") > 0);
    assert_eq!(finished.number("SELECT seen FROM sessions"), stored + finished.lost_calls());
}

#[test]
fn root_a_full_disk_does_not_end_the_users_command() {
    needs_root();
    let place = Place::new();
    let disk = Mount::tmpfs("size=2m", &place.dir.path().join("disk"));
    let file = disk.path().join("trace.db");
    // The command goes on when it is told to, after the trace has ended: which of them is faster does not matter.
    let script = "\"$0\" --calls 500000 --threads 2 </dev/null >&2; read line; echo went on >&2";
    let workload = place.testbed.workload();
    let arguments = ["trace", "--budget", "0", "--out", file.to_str().unwrap(), "--", "sh", "-c", script];
    let mut command = gpuwhy(&arguments);
    command.arg(workload).env("LD_LIBRARY_PATH", place.testbed.dir());
    let mut tracing = Tracing::start_with_input(command, file.clone());
    tracing.wait_for("the trace ends here: the disk is full");
    tracing.say("go on");
    assert_eq!(tracing.wait_exit().code(), Some(1), "{:#?}", tracing.log);
    let at = |words: &str| tracing.log.iter().position(|line| line.contains(words)).unwrap();
    assert!(at("went on") < at("error: the disk is full"), "{:#?}", tracing.log);
}

#[test]
fn root_a_read_only_place_is_named() {
    needs_root();
    let place = Place::new();
    let disk = Mount::tmpfs("size=1m,ro", &place.dir.path().join("disk"));
    let file = disk.path().join("trace.db");
    fails(gpuwhy(&["trace", "--out", file.to_str().unwrap()]), "is read-only", "choose a writable place");
    let missing = place.dir.path().join("missing").join("trace.db");
    let (code, _, stderr) = output(gpuwhy(&["trace", "--out", missing.to_str().unwrap()]));
    assert_eq!(code, 1);
    assert!(stderr.contains("error: ") && stderr.contains("missing: No such file or directory"), "{stderr}");
}

#[test]
fn root_a_finished_trace_is_read_by_a_user_who_may_not_write_there() {
    needs_root();
    let place = Place::new();
    let (_, finished) = traced(&place, Workload::new(&place.testbed).calls(90), &[]);
    let expected = finished.number("SELECT count(*) FROM cuda_events");
    let file = place.file();
    let arguments = ["query", file.to_str().unwrap(), "SELECT count(*) AS calls FROM cuda_events", "--csv"];
    let (code, stdout, stderr) = output(as_nobody(&place, &arguments));
    assert_eq!((code, stdout), (0, format!("calls\n{expected}\n")), "{stderr}");
}

/// Nobody can write this file, and `trace` and `query` leave it as it is.
fn is_left_alone(file: &Path, words: &str, hint: &str) {
    let before = std::fs::read(file).unwrap();
    needs_root();
    fails(gpuwhy(&["trace", "--out", file.to_str().unwrap()]), words, hint);
    fails(gpuwhy(&["query", file.to_str().unwrap(), "SELECT 1"]), words, hint);
    assert!(std::fs::read(file).unwrap() == before);
    let names: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(names, [file]);
}

#[test]
fn root_a_file_that_is_not_a_trace_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thesis.txt");
    std::fs::write(&file, "my only copy\n".repeat(100)).unwrap();
    is_left_alone(&file, "thesis.txt is not a gpuwhy trace", "left as it is");
    std::fs::remove_file(&file).unwrap();
    let database = dir.path().join("other.db");
    rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE theirs (x); ").unwrap();
    is_left_alone(&database, "other.db is not a gpuwhy trace", "left as it is");
}

#[test]
fn root_a_newer_trace_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.db");
    small_trace::write(&file);
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 999).unwrap();
    is_left_alone(&file, "has schema version 999", "a newer one");
}

#[test]
fn root_a_size_cap_holds_while_calls_come_at_full_speed() {
    needs_root();
    const CAP: u64 = 3_000_000;
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("launch").threads(2).duration(Duration::from_secs(3));
    let mut running = workload.start().unwrap();
    running.wait_ready().unwrap();
    let pid = running.pid().to_string();
    let mut tracing = place.trace(&["-p", &pid, "--max-size", "3MB"]);
    tracing.wait_ready();
    running.go().unwrap();
    let log = place.dir.path().join("trace.db-wal");
    let size = || [place.file(), log.clone()].iter().map(|file| file.metadata().map_or(0, |file| file.len())).sum();
    let is_over = AtomicBool::new(false);
    let (largest, (status, finished)) = std::thread::scope(|scope| {
        // Until all is written, which takes longer than the calls where the machine is busy.
        let watching = scope.spawn(|| {
            let mut largest: u64 = 0;
            while !is_over.load(Ordering::Relaxed) {
                largest = largest.max(size());
                std::thread::sleep(Duration::from_millis(5));
            }
            largest
        });
        running.finish().unwrap();
        let finished = tracing.wait_finished();
        is_over.store(true, Ordering::Relaxed);
        (watching.join().unwrap(), finished)
    });
    assert!(status.success());
    assert!(largest <= CAP && largest > CAP / 2, "{largest} bytes");
    assert!(size() <= CAP);
    assert!(finished.loss("expired") > 0);
    finished.check();
    assert_eq!(integrity(&place.file()), "ok");
}

#[test]
fn values_that_make_no_sense_are_wrong_usage() {
    for (option, value, words) in [
        ("--duration", "5parsecs", "is no unit of time"),
        ("--duration", "soon", "does not start with a number"),
        ("--max-size", "many", "does not start with a number"),
        ("--max-size", "5 parsecs", "is no unit of size"),
        ("--pid", "init", "invalid digit"),
        ("--layer", "top", "possible values"),
        ("--keep-min", "-3s", ""),
        ("--budget", "1", "use a percentage such as 1%"),
        ("--budget", "150%", "is more than everything"),
        ("--budget", "little", "does not start with a number"),
    ] {
        let (code, stdout, stderr) = output(gpuwhy(&["trace", option, value]));
        assert_eq!((code, stdout.as_str()), (2, ""), "{option} {value}");
        assert!(stderr.contains("error: ") && stderr.contains(words), "{option} {value}: {stderr}");
    }
    let (code, _, stderr) = output(gpuwhy(&["trace", "--user", "nobody-of-this-name"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("error: there is no user \"nobody-of-this-name\""), "{stderr}");
}

#[test]
fn root_a_cap_that_no_trace_fits_into_is_refused() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--max-size", "10kB"]);
    fails(command, "a size cap of 10000 bytes is too small", "raise the size cap");
    assert!(!file.exists());
}

#[test]
fn a_query_can_only_read_and_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.db");
    small_trace::write(&file);
    let before = std::fs::read(&file).unwrap();
    let query = |sql| gpuwhy(&["query", file.to_str().unwrap(), sql, "--timeout", "1s"]);
    fails(query("DELETE FROM calls"), "only reading is allowed", "copy the file");
    fails(query("ATTACH '/tmp/x.db' AS x"), "only reading is allowed", "copy the file");
    fails(query("PRAGMA user_version = 1"), "only reading is allowed", "copy the file");
    fails(query("SELECT * FROM nowhere"), "no such table", "schema_tables");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let start = Instant::now();
    fails(query(endless), "stopped after 1 s", "narrow it down");
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(std::fs::read(&file).unwrap() == before);
}
