//! `query --folded` prints what flame graph tools read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::Path;

use gpuwhy_model::{
    Call, CallClass, Frame, FrameKind, Layer, Process, Session, SessionEnd, Stack, StandsFor, Stretch, WaitReason,
    WalkEnd,
};
use gpuwhy_store::{Options, Writer};
use support::{gpuwhy, output, small_trace};

const START_NS: u64 = 1_790_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn python(function: &str, line: u32) -> Frame {
    let file = Some("/home/me/train.py".to_owned());
    Frame { kind: FrameKind::Python, function: function.into(), file, line: Some(line), ..Frame::default() }
}

/// Two calls, ten seconds apart and from two lines, and a wait, each of the same native function.
fn write(path: &Path) {
    let session = Session { started_ns: START_NS, ..Session::default() };
    let mut writer = Writer::open(path, &session, &Options::default()).unwrap();
    let process = writer.process(&Process { pid: 100, ..Process::default() }).unwrap();
    let thread = writer.thread(process, 101, "python").unwrap();
    let launch = writer.op("cuLaunchKernel", Layer::Driver, CallClass::Launch, None).unwrap();
    let alloc = writer.op("cuMemAlloc", Layer::Driver, CallClass::Alloc, None).unwrap();
    let stacks = [("forward", 12), ("backward; 9\n", 34), ("next", 56)].map(|(function, line)| {
        let inner = Frame { function: "run".into(), ..Frame::default() };
        let frames = vec![inner, python(function, line), python("<module>", 7)];
        let id = writer.reserve_stack().unwrap();
        writer.stack(id, &Stack { frames, end: WalkEnd::Complete, ..Stack::default() }).unwrap();
        Some(id)
    });
    let call =
        |second: u64, op, stack_id| Call { stack_id, ..Call::new(thread, op, START_NS + second * SECOND, 2_000_000) };
    writer.calls(&mut [call(0, launch, stacks[0]), call(10, alloc, stacks[1]), call(11, alloc, None)]).unwrap();
    let wait = Stretch {
        start_ns: START_NS,
        thread,
        blocked_ns: 3_000_000,
        runqueue_ns: 500_000,
        is_throttled: false,
        reason: Some(WaitReason::Futex),
        op: None,
        target: None,
        woken_by: None,
        taken_by: [None; 2],
        all: StandsFor { count: 1, blocked_ns: 3_000_000, runqueue_ns: 500_000 },
        stack: stacks[2],
        waker_stack: None,
    };
    writer.stretches(&[wait]).unwrap();
    let end = SessionEnd { ended_ns: START_NS + 12 * SECOND, seen: 3, reason: "finished".into(), ..Default::default() };
    writer.finish(&end).unwrap();
}

fn folded(path: &Path, arguments: &[&str]) -> (i32, String, String) {
    output(gpuwhy(&[&["query", "--db", path.to_str().unwrap(), "--folded"], arguments].concat()))
}

#[test]
fn stacks_of_calls_and_of_waits_are_folded_with_their_microseconds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    write(&path);
    let forward = "<module> (train.py:7);forward (train.py:12);run 2000\n";
    let backward = "<module> (train.py:7);backward: 9 (train.py:34);run 2000\n";
    assert_eq!(folded(&path, &[]).1, format!("{backward}{forward}"));
    assert_eq!(folded(&path, &["--op", "cuMemAlloc_v2"]).1, backward);
    assert_eq!(folded(&path, &["--since", "3s"]).1, backward);
    assert_eq!(folded(&path, &["--waits"]).1, "<module> (train.py:7);next (train.py:56);run 3000\n");
    let (code, stdout, stderr) = folded(&path, &["--limit", "1"]);
    assert_eq!((code, stdout.as_str()), (0, forward));
    assert!(stderr.contains("raise --limit"), "{stderr}");
}

#[test]
fn a_question_without_an_answer_is_a_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let [path, without] = ["trace.db", "without.db"].map(|name| directory.path().join(name));
    write(&path);
    small_trace::write(&without);
    let fails = |path: &Path, arguments: &[&str], words: &str| {
        let (code, stdout, stderr) = folded(path, arguments);
        assert_eq!((code, stdout.as_str()), (if words.contains("cannot be used") { 2 } else { 1 }, ""), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    };
    fails(&without, &[], "there are no stacks in");
    fails(&without, &["--waits"], "there are no stacks in");
    fails(&path, &["--op", "cuMemFree"], "no calls that match have a stack");
    fails(&path, &["--waits", "--pid", "7"], "no waits that match have a stack");
    fails(&path, &["SELECT 1"], "--folded is for questions without SQL");
    fails(&path, &["--json"], "cannot be used with");
    fails(&path, &["--waits", "--op", "cuMemAlloc"], "cannot be used with");
}

#[test]
fn the_lines_that_make_calls_are_one_statement_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    write(&path);
    let sql = "SELECT op, function, line, calls, total_ns FROM call_sites ORDER BY line";
    let (_, stdout, stderr) = output(gpuwhy(&["query", path.to_str().unwrap(), sql, "--csv"]));
    let expected = "op,function,line,calls,total_ns\ncuLaunchKernel,forward,12,1,2000000\n\
        cuMemAlloc,\"backward; 9\n\",34,1,2000000\n";
    assert_eq!(stdout, expected, "{stderr}");
}
