//! However a trace ends, the file is whole, the workload unharmed, and nothing is left in the kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpuwhy_testbed::{Running, Workload};
use libbpf_rs::query::ProgInfoIter;
use support::{Finished, Place, Queued, gpuwhy, integrity, needs_root, number_so_far, output, wait_until};

/// Two threads that call as fast as they can, ready to start. They share a CPU, so that one is left for the tracer of
/// this build, which is not optimized.
fn full_speed(place: &Place, seconds: u64) -> Running {
    let workload = Workload::new(&place.testbed).mix("launch").threads(2).duration(Duration::from_secs(seconds));
    let mut running = workload.through(&["taskset", "-c", "0"]).start().unwrap();
    running.wait_ready().unwrap();
    running
}

/// Waits until so many calls of a session are in the file, read while it is written.
fn wait_stored(file: &Path, session: u32, calls: i64) {
    let stored = format!("SELECT stored FROM sessions WHERE id = {session}");
    wait_until("calls are stored", || number_so_far(file, &stored).filter(|stored| *stored >= calls));
}

/// When the newest call of a file began.
const NEWEST: &str = "SELECT timestamp_ns FROM cuda_events ORDER BY timestamp_ns DESC LIMIT 1";
/// A second, and what a slow disk and a slow CPU may take beside the time that the tracer waits for a CPU.
const MOST_MISSING: Duration = Duration::from_secs(3);

/// Programs of the call tracer in the kernel, by id. Ids are never used again.
fn call_programs() -> BTreeSet<u32> {
    let is_ours = |name: &[u8]| name.starts_with(b"call_session") || name.starts_with(b"call_enter");
    let programs = ProgInfoIter::default().filter(|program| is_ours(program.name.as_encoded_bytes()));
    programs.map(|program| program.id).collect()
}

#[test]
fn root_a_killed_tracer_loses_a_second_at_most_and_leaves_nothing_in_the_kernel() {
    needs_root();
    let place = Place::new();
    // Longer than two tracers in turn take, also where everybody waits for a CPU. It is killed when they are done.
    let mut running = full_speed(&place, 120);
    let pid = running.pid().to_string();
    let before = call_programs();
    let mut tracing = place.trace(&["-p", &pid]);
    tracing.wait_ready();
    let ours: BTreeSet<u32> = call_programs().difference(&before).copied().collect();
    assert!(!ours.is_empty());
    running.go().unwrap();
    wait_stored(&place.file(), 1, 300_000);
    let mut queued = Queued::since_now(tracing.pid());
    std::thread::sleep(Duration::from_secs(1));
    let committed_ns = wait_until("the newest call is read", || number_so_far(&place.file(), NEWEST));
    queued.look();
    let killed_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    tracing.signal(libc::SIGKILL);
    tracing.wait_exit();

    let after = Finished::open(&place.file(), Vec::new());
    let newest_ns = after.number(NEWEST);
    assert!(newest_ns >= committed_ns, "what was in the file is gone");
    let missing = Duration::from_nanos((killed_ns - newest_ns).max(0) as u64);
    let late = queued.total();
    eprintln!("the last {missing:?} are missing; it waited {late:?} for a CPU meanwhile");
    assert!(missing.saturating_sub(late) < MOST_MISSING, "{missing:?} are missing, {late:?} for want of a CPU");
    assert_eq!(after.number("SELECT count(*) FROM sessions WHERE ended_ns IS NULL"), 1);
    drop(after);
    wait_until("the kernel forgets the programs", || call_programs().is_disjoint(&ours).then_some(()));

    // The next trace goes on in the same file, with the same process.
    let mut tracing = place.trace(&["-p", &pid]);
    tracing.wait_ready();
    assert_eq!(integrity(&place.file()), "ok");
    wait_stored(&place.file(), 2, 1000);
    let finished = tracing.stop();
    // The workload goes on as if nobody had looked.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(!stat.contains(") Z "), "{stat}");
    drop(running);
    assert_eq!(finished.number("SELECT count(*) FROM cuda_events WHERE ret_code <> 0"), 0);
    assert_eq!(finished.number("SELECT count(*) FROM sessions"), 2);
    let stored = finished.number("SELECT count(*) FROM cuda_events WHERE session_id = 2");
    let lost = finished.number(
        "SELECT coalesce(sum(count), 0) FROM losses \
         WHERE session_id = 2 AND reason IN ('ring_full', 'malformed', 'expired', 'not_written')",
    );
    assert!(stored > 0);
    assert_eq!(finished.number("SELECT seen FROM sessions WHERE id = 2"), stored + lost);
    assert_eq!(integrity(&place.file()), "ok");
}

/// It takes well below a second, and longer where the disk or the CPU is slow.
const SOON: Duration = Duration::from_secs(5);

fn stops_soon(running: &mut Running, place: &Place, calls: i64, signal: i32) {
    let mut tracing = place.trace(&[]);
    tracing.wait_ready();
    running.go().unwrap();
    wait_stored(&place.file(), 1, calls);
    let (took, status) = tracing.end_by(signal);
    assert!(status.success(), "{status}");
    eprintln!("it took {took:?} to stop");
    assert!(took < SOON, "it took {took:?} to stop");
    let finished = Finished::open(&place.file(), Vec::new());
    finished.check();
    assert_eq!(finished.text("SELECT end_reason FROM sessions"), "interrupted");
}

#[test]
fn root_ctrl_c_stops_it_soon_at_full_speed() {
    needs_root();
    let place = Place::new();
    stops_soon(&mut full_speed(&place, 30), &place, 10_000, libc::SIGINT);
}

#[test]
fn root_sigterm_stops_it_soon() {
    needs_root();
    let place = Place::new();
    // Beside busy programs, Linux 6.18 lets others wait for as long as somebody wakes up more than some hundred times a
    // second, also without a tracer.
    let workload = Workload::new(&place.testbed).threads(4).rate(50.0).duration(Duration::from_secs(30));
    stops_soon(&mut workload.start().unwrap(), &place, 200, libc::SIGTERM);
}

#[test]
fn root_a_trace_of_a_given_length_ends_by_itself() {
    needs_root();
    let place = Place::new();
    let (status, finished) = place.trace(&["--duration", "1s"]).wait_finished();
    assert!(status.success());
    let took = finished.number("SELECT ended_ns - started_ns FROM sessions");
    assert!((1_000_000_000..4_000_000_000).contains(&took), "{took}");
    assert_eq!(finished.text("SELECT end_reason FROM sessions"), "duration over");
    // It has no other file beside it.
    let names: Vec<_> = std::fs::read_dir(place.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with("trace.db-")), "{names:?}");
}

#[test]
fn root_a_trace_ends_with_its_last_target_even_if_nobody_has_asked_for_its_exit_code() {
    needs_root();
    let place = Place::new();
    let mut target = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let mut tracing = place.trace(&["-p", &target.id().to_string()]);
    tracing.wait_ready();
    target.kill().unwrap();
    let (status, finished) = tracing.wait_finished();
    target.wait().unwrap();
    assert!(status.success());
    assert_eq!(finished.text("SELECT end_reason FROM sessions"), "targets gone");
}

#[test]
fn root_a_target_that_dies_while_it_is_attached_is_no_trouble() {
    needs_root();
    let place = Place::new();
    for attempt in 0..12 {
        let mut running = Workload::new(&place.testbed).start().unwrap();
        running.wait_ready().unwrap();
        let mut tracing = place.trace(&["-p", &running.pid().to_string()]);
        let moment = std::time::Instant::now() + Duration::from_millis(attempt * 25);
        while std::time::Instant::now() < moment {
            std::hint::spin_loop();
        }
        drop(running);
        let status = tracing.wait_exit();
        let gone = tracing.log.iter().any(|line| line.contains("there is no process"));
        assert!(status.success() || gone && status.code() == Some(1), "{status}: {:#?}", tracing.log);
        let bad = tracing.log.iter().find(|line| line.contains("panicked") || line.contains("not attached"));
        assert_eq!(bad, None, "{:#?}", tracing.log);
    }
}

/// `gpuwhy trace` of a shell command.
fn trace_shell(place: &Place, arguments: &[&str], command: &str) -> (i32, String, String) {
    let file = place.file();
    let all = [&["trace", "--out", file.to_str().unwrap()], arguments, &["--", "sh", "-c", command]].concat();
    let mut gpuwhy = gpuwhy(&all);
    gpuwhy.env("LD_LIBRARY_PATH", place.testbed.dir()).env("PATH_TO_WORKLOAD", place.testbed.workload());
    output(gpuwhy)
}

#[test]
fn root_the_commands_exit_code_is_passed_on() {
    needs_root();
    let place = Place::new();
    for (command, expected) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let (code, _, stderr) = trace_shell(&place, &[], command);
        assert_eq!(code, expected, "{command}: {stderr}");
    }
    let finished = Finished::open(&place.file(), Vec::new());
    assert_eq!(finished.number("SELECT count(*) FROM sessions WHERE end_reason = 'command ended'"), 4);
}

#[test]
fn root_a_command_that_does_not_exist_is_a_clear_error_and_the_file_is_whole() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let (code, stdout, stderr) = output(gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--", "/no/such/command"]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("error: start /no/such/command: No such file or directory"), "{stderr}");
    let finished = Finished::open(&file, Vec::new());
    assert_eq!(finished.text("SELECT end_reason FROM sessions"), "failed");
    assert_eq!(integrity(&file), "ok");
}

#[test]
fn root_json_lines_are_alone_on_stdout() {
    needs_root();
    let place = Place::new();
    let command = "echo hello from the command; \"$PATH_TO_WORKLOAD\" --mix launch --calls 50";
    let (code, stdout, stderr) = trace_shell(&place, &["--json"], command);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("hello from the command"));
    let lines: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let launches = lines.iter().filter(|line| line["type"] == "call" && line["op"] == "cuLaunchKernel");
    assert_eq!(launches.count(), 50);
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "summary");
    assert_eq!(last["seen"], lines.len() - 1);
    assert_eq!(last["stored"], lines.len() - 1);
}

#[test]
fn root_a_reader_that_goes_away_ends_the_tracer_quietly() {
    needs_root();
    let place = Place::new();
    let pipe = format!(
        "{} trace --json --out {} -- {} --mix launch --calls 300000 | head -1",
        env!("CARGO_BIN_EXE_gpuwhy"),
        place.file().display(),
        place.testbed.workload().display()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &pipe]).env("LD_LIBRARY_PATH", place.testbed.dir());
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, 0);
    assert_eq!(stdout.lines().count(), 1);
    assert!(!stderr.contains("panicked") && !stderr.contains("error:"), "{stderr}");
    assert_eq!(integrity(&place.file()), "ok");
}
