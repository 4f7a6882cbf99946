//! Operations of several ranks: what a trace says of each, against what the rank itself says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_store::Value;
use gpuwhy_testbed::{Operation, Ranks, Undisturbed, left_out};
use support::{Finished, Place, gpuwhy, needs_root, output, stolen_ns, wait_until};

/// Runs a job under a tracer that starts it.
fn traced(place: &Place, program: &Path, job: &Ranks, options: &[&str]) -> (Vec<Operation>, Finished) {
    let file = place.file();
    let mut command = gpuwhy(&[&["trace", "--out", file.to_str().unwrap()], options].concat());
    command.arg("--").arg(program).args(job.arguments()).env("LD_LIBRARY_PATH", place.testbed.dir());
    let (code, said, log) = output(command);
    assert_eq!(code, 0, "{log}");
    let finished = Finished::open(&file, vec![log]);
    assert_eq!(finished.number("SELECT count(*) FROM warnings WHERE kind = 'not-attached'"), 0);
    (Ranks::operations(&said).unwrap(), finished)
}

/// The operations that a trace has, in the words of the ranks.
fn operations(finished: &Finished) -> Vec<Operation> {
    let rows = finished.rows(
        "SELECT pid, op, comm_id_hash, rank, nranks, seq, bytes, datatype, reduce_op, peer, stream, group_id
         FROM nccl_events WHERE op NOT LIKE 'COMM%'",
    );
    let number = |value: &Value| match value {
        Value::Integer(number) => *number,
        Value::Null => -1,
        other => panic!("{other:?}"),
    };
    let word = |value: &Value| match value {
        Value::Text(word) => word.clone(),
        Value::Null => String::new(),
        other => panic!("{other:?}"),
    };
    let operation = |row: &Vec<Value>| Operation {
        pid: number(&row[0]),
        op: word(&row[1]),
        comm: number(&row[2]),
        rank: number(&row[3]),
        nranks: number(&row[4]),
        seq: number(&row[5]),
        bytes: number(&row[6]),
        datatype: word(&row[7]),
        reduce_op: word(&row[8]),
        peer: number(&row[9]),
        stream: number(&row[10]),
        group: number(&row[11]),
    };
    rows.iter().map(operation).collect()
}

fn agree(mut said: Vec<Operation>, mut seen: Vec<Operation>) {
    said.sort();
    seen.sort();
    let missing: Vec<&Operation> = said.iter().filter(|one| seen.binary_search(one).is_err()).collect();
    let wrong: Vec<&Operation> = seen.iter().filter(|one| said.binary_search(one).is_err()).collect();
    assert!(
        missing.is_empty() && wrong.is_empty() && said.len() == seen.len(),
        "of {} operations {} are missing, as {:?}; {} are wrong, as {:?}",
        said.len(),
        missing.len(),
        missing.first(),
        wrong.len(),
        wrong.first()
    );
}

#[test]
fn root_every_operation_of_every_rank_is_seen_with_its_communicator_rank_and_number() {
    needs_root();
    for ranks in [2, 5, 16] {
        let place = Place::new();
        let job = Ranks { ranks, rounds: 40, ..Ranks::default() };
        let (said, finished) = traced(&place, &place.testbed.ranks(), &job, &["--budget", "0"]);
        finished.check();
        // In each round 10 operations, of which one is a send and a receive; in the end one of all ranks, and one of all but one.
        assert_eq!(said.len() as u32, ranks * (5 * (40 + 4) + 2) - 1);
        agree(said, operations(&finished));
        let made =
            "SELECT count(*) FROM nccl_events WHERE op = 'COMM_INIT' AND rank < nranks AND comm_id_hash IS NOT NULL";
        assert_eq!(finished.number(made) as u32, 4 * ranks);
        assert_eq!(finished.number("SELECT count(*) FROM nccl_events WHERE op = 'COMM_SPLIT'") as u32, 2 * ranks);
        assert_eq!(finished.number("SELECT count(*) FROM nccl_events WHERE op = 'COMM_END'") as u32, 7 * ranks - 1);
    }
}

/// The caller's code decides where its arguments lie: the unique id is 128 bytes by value. In the eleventh round reductions
/// take a configuration, too, which lies on the stack behind the stream.
#[test]
fn root_a_caller_that_another_compiler_built_is_read_the_same_way() {
    needs_root();
    for (compiler, level) in [("cc", "-O0"), (clang(), "-O0"), (clang(), "-O3")] {
        let place = Place::new();
        let program = built(&place, compiler, level);
        let (said, finished) =
            traced(&place, &program, &Ranks { ranks: 3, rounds: 20, ..Ranks::default() }, &["--budget", "0"]);
        agree(said, operations(&finished));
    }
}

fn clang() -> &'static str {
    const NAMES: &[&str] = &["clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang"];
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|done| done.status.success());
    NAMES.iter().find(works).copied().unwrap()
}

fn built(place: &Place, compiler: &str, level: &str) -> PathBuf {
    let program = place.dir.path().join("built");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/c/ranks.c");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu17", level]).arg(source).arg(place.testbed.libnccl()).arg("-o").arg(&program);
    assert!(command.status().unwrap().success(), "{compiler}");
    program
}

/// The order of operations is known only if every one of them is seen, whatever the budget.
#[test]
fn root_operations_are_numbered_without_a_gap_within_a_budget() {
    needs_root();
    let place = Place::new();
    let job = Ranks { ranks: 2, rounds: 2000, ..Ranks::default() };
    let (mut said, finished) = traced(&place, &place.testbed.ranks(), &job, &[]);
    said.sort();
    let seen = operations(&finished);
    for operation in &seen {
        assert!(said.binary_search(operation).is_ok(), "{operation:?}");
    }
    assert_eq!(seen.len() as i64 + finished.lost_calls(), said.len() as i64);
}

#[test]
fn root_a_communicator_from_before_the_trace_is_unknown_and_never_rank_0() {
    needs_root();
    let place = Place::new();
    let gate = place.dir.path().join("gate");
    let job = Ranks { ranks: 2, rounds: 10, gate: Some(gate.clone()), ..Ranks::default() };
    let command = job.command(&place.testbed, &place.testbed.ranks());
    let job = std::thread::spawn(move || output(command));
    let is_made = |rank: u32| place.dir.path().join(format!("gate.{rank}")).exists();
    wait_until("communicators are made", || (is_made(0) && is_made(1)).then_some(()));
    let mut tracing = place.trace(&[]);
    tracing.wait_ready();
    std::fs::write(&gate, "").unwrap();
    let (code, said, log) = job.join().unwrap();
    assert_eq!(code, 0, "{log}");
    let finished = tracing.stop();
    let mut said = Ranks::operations(&said).unwrap();
    // Each rank makes another one at its end, which is known, and one of them one without the other.
    let is_known = |operation: &Operation| said.iter().filter(|one| one.comm == operation.comm).count() <= 2;
    let unknown = |mut one: Operation| {
        (one.comm, one.rank, one.nranks, one.seq) = (-1, -1, -1, -1);
        one
    };
    said = said.iter().map(|one| if is_known(one) { one.clone() } else { unknown(one.clone()) }).collect();
    agree(said, operations(&finished));
    let (_, answer, _) = output(gpuwhy(&["ask", "--db", place.file().to_str().unwrap(), "collectives", "--json"]));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let communicators = answer["ranks"].as_array().unwrap().iter().map(|rank| &rank["communicator"]);
    assert_eq!(communicators.filter(|communicator| communicator.is_null()).count(), 2, "{answer:#}");
}

/// 27 collective operations of each communicator in 30 rounds, each 30 ms late.
const LATE_NS: u64 = 27 * 30_000_000;

#[test]
fn root_the_rank_that_comes_last_is_told_with_how_late_it_was() {
    needs_root();
    let place = Place::new();
    let job = Ranks { ranks: 4, rounds: 30, late_ms: 30, ..Ranks::default() };
    let before = stolen_ns();
    let (said, _) = traced(&place, &place.testbed.ranks(), &job, &["--budget", "0"]);
    if stolen_ns() - before > LATE_NS as f64 / 2.0 {
        return left_out(
            "the rank that comes last: the host of this machine takes longer from the others than it is late",
        );
    }
    let file = place.file();
    let (code, answer, log) = output(gpuwhy(&["ask", "--db", file.to_str().unwrap(), "collectives", "--json"]));
    assert_eq!(code, 0, "{log}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let ranks = answer["ranks"].as_array().unwrap();
    // In one communicator of four, ranks are in reverse order.
    let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
    said.iter().filter(|one| one.nranks == 4).for_each(|one| *sums.entry(one.pid).or_default() += one.rank);
    let (&late, _) = sums.iter().max_by_key(|(_, sum)| **sum).unwrap();
    let of_late = |rank: &&serde_json::Value| rank["pid"] == late;
    let worst = ranks.first().unwrap();
    assert_eq!(worst["pid"], late, "{worst:#}");
    // It sleeps before each of them, and nobody else waits for anything but a CPU.
    let (last, complete) = (worst["last"].as_u64().unwrap(), worst["complete"].as_u64().unwrap());
    assert!(complete == 27 && last * 2 > complete, "last in {last} of {complete}: {worst:#}");
    assert!(worst["late_ns"].as_u64().unwrap() >= LATE_NS / 2, "{worst:#}");
    for rank in ranks.iter().filter(|rank| !of_late(rank) && rank["communicator"] == worst["communicator"]) {
        assert!(rank["waited_ns"].as_u64().unwrap() >= LATE_NS / 2, "{rank:#}");
        assert!(rank["late_ns"].as_u64() < worst["late_ns"].as_u64(), "{rank:#}");
    }
}

/// No rank can be done with an operation before the last one has asked for it.
#[test]
fn root_each_operation_has_the_wait_that_covers_it() {
    needs_root();
    let place = Place::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ranks.py");
    let (file, driver, nccl) = (place.file(), place.testbed.libcuda(), place.testbed.libnccl());
    let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--", "python3", "-B"]);
    command.arg(program).arg(driver).arg("4").arg(nccl).args(["healthy", "3"]);
    let (code, _, log) = output(command);
    assert_eq!(code, 0, "{log}");
    let finished = Finished::open(&file, vec![log]);
    let asked = "SELECT count(*) FROM nccl_events WHERE op = 'ALL_REDUCE'";
    let (asked, waited) = (finished.number(asked), finished.number(&format!("{asked} AND wait_ns > 0")));
    // The end of it cuts waits off.
    assert!(asked > 100 && waited * 100 >= asked * 98, "{waited} of {asked}");
    let early = finished.number(
        "SELECT count(*) FROM (
           SELECT max(timestamp_ns) AS asked_ns, min(done_ns) AS done_ns FROM nccl_events
           WHERE op = 'ALL_REDUCE' GROUP BY comm_id_hash, seq HAVING count(*) = 3)
         WHERE done_ns < asked_ns",
    );
    assert_eq!(early, 0);
}

/// Launches of a graph in each of which the second of three ranks is late.
const LAUNCHES: i64 = 100;

/// A call that is captured asks for nothing. Each launch of its graph does.
#[test]
fn root_operations_in_a_graph_are_told_with_each_launch_of_it_and_who_is_late_to_that() {
    needs_root();
    let (place, machine) = (Place::new(), Undisturbed::since_now());
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/graph_ranks.py");
    let (file, driver, nccl) = (place.file(), place.testbed.libcuda(), place.testbed.libnccl());
    let mut command = gpuwhy(&["trace", "--budget", "0", "--out", file.to_str().unwrap(), "--", "python3", "-B"]);
    command.arg(&program).arg(driver).arg(LAUNCHES.to_string()).arg(nccl).args(["3", "20"]);
    let (code, _, log) = output(command);
    assert_eq!(code, 0, "{log}");
    let finished = Finished::open(&file, vec![log]);
    let captured =
        "SELECT count(*), count(DISTINCT capture_began_ns) FROM nccl_events WHERE capture_began_ns IS NOT NULL";
    assert_eq!(finished.rows(captured), [[Value::Integer(6), Value::Integer(3)]]);
    let of_ranks = "SELECT rank, nranks, count(*), count(DISTINCT replay), max(replay), min(operations), max(bytes), sum(wait_ns > 0)
        FROM nccl_replays GROUP BY rank, nranks, seq, comm_id_hash ORDER BY rank";
    let known = [3, LAUNCHES, LAUNCHES, LAUNCHES - 1, 2, 8 << 20, LAUNCHES];
    let wanted =
        [0, 1, 2].map(|rank| [&[rank], &known[..]].concat().into_iter().map(Value::Integer).collect::<Vec<_>>());
    assert_eq!(finished.rows(of_ranks), wanted);
    let early = finished.number(
        "SELECT count(*) FROM (SELECT max(timestamp_ns) AS asked_ns, min(done_ns) AS done_ns FROM nccl_replays GROUP BY replay)
         WHERE done_ns < asked_ns",
    );
    assert_eq!(early, 0);
    let late = finished.number("SELECT DISTINCT pid FROM nccl_replays WHERE rank = 1");
    let source = std::fs::read_to_string(&program).unwrap();
    let line = 1 + source.lines().position(|line| line.ends_with("# late")).unwrap();
    let (_, said, _) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let first = &said["findings"][0];
    let is_line = |place: &serde_json::Value| {
        place["line"] == line && place["file"].as_str().unwrap().ends_with("graph_ranks.py")
    };
    let is_so = first["cause"] == "straggler"
        && first["culprit"]["pid"] == late
        && first["where"].as_array().is_some_and(|places| places.iter().any(is_line));
    machine.expect("who is late to a graph", is_so.then_some(()).ok_or_else(|| format!("{said:#}")));
    let (_, said, _) = output(gpuwhy(&["ask", "--db", file.to_str().unwrap(), "collectives", "--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let (worst, sum) = (&said["ranks"][0], 1 + 2 * LAUNCHES);
    assert_eq!((&worst["operations"], &worst["complete"]), (&sum.into(), &(1 + LAUNCHES).into()), "{said:#}");
    assert_eq!(worst["pid"], late, "{said:#}");
}
