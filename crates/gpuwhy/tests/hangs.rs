//! Ranks that hang, each kind of hang on real processes, and ranks that become late, told while they do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gpuwhy_store::{Limits, Trace, Value};
use gpuwhy_testbed::{Ranks, Undisturbed};
use serde_json::Value as Json;
use support::{Place, Tracing, gpuwhy, needs_root, number_so_far, output, wait_until};

const RANKS: usize = 3;
const HANG: &str = "collective-hang";

/// Ends the ranks of a job, also those that are stopped, when a test is over.
struct EndOfRanks(Vec<i32>);

impl Drop for EndOfRanks {
    fn drop(&mut self) {
        // SAFETY: a plain system call. The job has not ended, so the numbers are still its own.
        self.0.iter().for_each(|&pid| _ = unsafe { libc::kill(pid, libc::SIGKILL) });
    }
}

/// The processes that have asked for operations, once each of them has asked for many.
fn ranks_at_work(file: &Path) -> Option<Vec<i32>> {
    let trace = Trace::open(file).ok()?;
    let sql = "SELECT pid FROM nccl_events WHERE seq > 20 GROUP BY pid ORDER BY pid";
    let answer = trace.query(sql, &Limits::default()).ok()?;
    let pid = |row: &Vec<Value>| if let Value::Integer(pid) = row[0] { pid as i32 } else { 0 };
    Some(answer.rows.iter().map(pid).collect::<Vec<_>>()).filter(|pids| pids.len() == RANKS)
}

/// A hang is told with all that there is to say when it is this old.
const TOLD_WITHIN_NS: u64 = 10_000_000_000;

fn is_hang(finding: &Json) -> bool {
    finding["cause"] == HANG
}

/// The finding that is wanted of a job, told while it runs, once it is whole or late, and its second rank's process.
fn told(
    place: &Place,
    job: &Command,
    is_wanted: impl Fn(&Json) -> bool,
    is_whole: impl Fn(&Json) -> bool,
) -> (Json, i32) {
    let file = place.file();
    let mut command = gpuwhy(&["trace", "--live", "never", "--out", file.to_str().unwrap(), "--"]);
    command.arg(job.get_program()).args(job.get_args()).env("LD_LIBRARY_PATH", place.testbed.dir());
    command.stdout(Stdio::null());
    let mut tracing = Tracing::start(command, file.clone());
    let ranks = EndOfRanks(wait_until("ranks work together", || ranks_at_work(&file)));
    let second = ranks.0[1];
    let found = wait_until("it is told", || {
        std::thread::sleep(Duration::from_millis(500));
        let (_, said, _) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--json"]));
        let explanation: Json = serde_json::from_str(&said).ok()?;
        let findings = explanation["findings"].as_array()?;
        let found = findings.iter().find(|&finding| is_wanted(finding))?;
        let is_late = found["impact"]["lost_ns"].as_u64()? > TOLD_WITHIN_NS;
        (is_whole(found) || is_late).then(|| found.clone())
    });
    drop(ranks);
    tracing.wait_exit();
    (found, second)
}

#[test]
fn root_a_rank_that_stops_leaves_the_others_hanging_and_is_named() {
    needs_root();
    let place = Place::new();
    let job = Ranks { ranks: RANKS as u32, rounds: 100_000, late_ms: 1, stops_at: 30, ..Ranks::default() };
    let (hang, stopped) = told(&place, &job.command(&place.testbed, &place.testbed.ranks()), is_hang, |_| true);
    assert_eq!((&hang["culprit"]["pid"], &hang["severity"]), (&stopped.into(), &"high".into()), "{hang:#}");
    assert_ne!(hang["victim"]["pid"], stopped, "{hang:#}");
}

fn python_job(place: &Place, arguments: &[&str]) -> Command {
    let mut job = Command::new("python3");
    job.arg("-B").arg(program()).arg(place.testbed.libcuda()).arg("120").arg(place.testbed.libnccl()).args(arguments);
    job
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ranks.py")
}

/// A program in Python of which one rank breaks the rules in some way.
fn hangs(kind: &str, summary: &str, has_culprit: bool) {
    needs_root();
    let (place, machine) = (Place::new(), Undisturbed::since_now());
    let job = python_job(&place, &[kind, &RANKS.to_string()]);
    let source = std::fs::read_to_string(program()).unwrap();
    let line = 1 + source.lines().position(|line| line.ends_with(&format!("# {kind}"))).unwrap();
    let (hang, second) = told(&place, &job, is_hang, |hang| has_line_of_each_rank(hang, line));
    let (said, culprit) = (hang["summary"].as_str().unwrap(), &hang["culprit"]["pid"]);
    assert!(said.contains(summary), "{hang:#}");
    assert_eq!(culprit, &if has_culprit { Json::from(second) } else { Json::Null }, "{hang:#}");
    eprintln!("told after {} ms: {said}", hang["impact"]["lost_ns"].as_u64().unwrap() / 1_000_000);
    // Walks that take too long are left out.
    let has_lines = has_line_of_each_rank(&hang, line).then_some(()).ok_or_else(|| format!("{hang:#}"));
    machine.expect("lines of ranks that hang", has_lines);
}

/// Every rank with its line, and the second one with the one that breaks the rules.
fn has_line_of_each_rank(hang: &Json, line: usize) -> bool {
    let steps = hang["chain"].as_array().unwrap().iter().map(|edge| edge["what"].as_str().unwrap());
    let of_ranks: Vec<&str> = steps.filter(|what| what.starts_with("rank ") && what.contains("ranks.py:")).collect();
    let is_second = |what: &&str| what.starts_with("rank 1,") && what.ends_with(&format!("ranks.py:{line}"));
    of_ranks.len() == RANKS && of_ranks.iter().any(is_second)
}

#[test]
fn root_a_rank_that_does_something_else_is_named_with_its_line() {
    hangs("never_entered", "Rank 1 of 3 does not take part", true);
}

#[test]
fn root_a_rank_that_asks_for_another_size_is_named_with_its_line() {
    hangs("mismatch", "Rank 1 of 3 asks for something else", true);
}

#[test]
fn root_ranks_that_wait_for_each_other_in_two_communicators_are_told() {
    hangs("circle", "in another communicator for those who wait for it", true);
}

#[test]
fn root_a_rank_that_does_not_come_out_of_an_operation_is_named() {
    hangs("never_left", "Rank 1 of 3 does not come out", true);
}

#[test]
fn root_ranks_that_are_all_stuck_in_an_operation_are_told_and_nobody_is_blamed() {
    hangs("all_stuck", "All 3 ranks have asked for ncclAllReduce, and none is done", false);
}

#[test]
fn root_a_rank_that_gives_a_communicator_up_while_others_wait_in_it_is_named_with_its_line() {
    hangs("aborts", "Rank 1 of 3 has given the communicator up", true);
}

/// As a job does after a failure. Operations that were in flight are over, and nobody hangs or is late in them.
#[test]
fn root_ranks_that_all_abort_and_start_anew_do_not_hang() {
    needs_root();
    let (place, machine) = (Place::new(), Undisturbed::since_now());
    let file = place.file();
    let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--", "python3", "-B"]);
    command.arg(program()).arg(place.testbed.libcuda()).arg("10").arg(place.testbed.libnccl());
    command.args(["starts_anew", &RANKS.to_string()]);
    let (code, _, log) = output(command);
    assert_eq!(code, 0, "{log}");
    let count = |sql: &str| number_so_far(&file, sql).unwrap();
    let ended = "SELECT count(*) FROM nccl_events WHERE op = 'COMM_END' AND function = 'ncclCommAbort'";
    assert_eq!(count(ended), RANKS as i64);
    let after = "SELECT count(DISTINCT comm_id_hash) FROM nccl_events WHERE op = 'ALL_REDUCE' AND seq > 60";
    assert_eq!(count(after), 2);
    let (_, said, _) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--phase", "all", "--json"]));
    let explanation: Json = serde_json::from_str(&said).unwrap();
    let is_wrong =
        |finding: &&Json| is_hang(finding) || (finding["cause"] == "straggler" && finding["severity"] != "low");
    let wrong = explanation["findings"].as_array().unwrap().iter().find(is_wrong);
    machine.expect("nobody is blamed for an abort", wrong.map_or(Ok(()), |wrong| Err(format!("{wrong:#}"))));
}

/// Ranks come together for 300 steps of 20 ms. From then on one of them is 30 ms late.
#[test]
fn root_a_rank_that_becomes_late_is_told_while_the_job_runs() {
    needs_root();
    let (place, machine) = (Place::new(), Undisturbed::since_now());
    let job = python_job(&place, &["sleeps", &RANKS.to_string(), "30", "4000", "300"]);
    let since = "SELECT min(timestamp_ns) FROM nccl_events WHERE rank = 1 AND seq = 300";
    let since_ns = || number_so_far(&place.file(), since);
    // Whoever is late before that is so for want of a CPU.
    let told_after_ns = |late: &Json| Some(late["during"]["to_ns"].as_i64()? - since_ns()?);
    let is_wanted = |late: &Json| late["cause"] == "straggler" && told_after_ns(late).is_some_and(|after| after > 0);
    let (late, second) = told(&place, &job, is_wanted, |late| late["severity"] != "low");
    let is_so = late["culprit"]["pid"] == second && late["severity"] != "low";
    machine.expect("who becomes late", is_so.then_some(()).ok_or_else(|| format!("{late:#}")));
    eprintln!("told {} ms after: {}", told_after_ns(&late).unwrap() / 1_000_000, late["summary"]);
}
