//! Stacks of real programs, walked in the kernel: every frame is what the program itself says it is.
#![allow(clippy::unwrap_used, reason = "tests end that way")]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use gpuwhy_model::{Stack, WalkEnd};
use gpuwhy_testbed::stacks::{Program, Python, Score, Witness, Witnesses};
use gpuwhy_testbed::{Behaviour, Workload};
use gpuwhy_window::{LoadedStack, Scope};
use support::{Finished, Place, Tracing, gpuwhy, needs_root, number_so_far, wait_until};

/// Situations for each program; `./dev accuracy stacks` takes a thousand.
const SITUATIONS: u32 = 200;

/// Traces a witness that calls nothing before its code's tables are there.
fn traced(program: Program, python: Option<&Path>) -> (Score, Finished) {
    let dir = tempfile::tempdir().unwrap();
    let witnesses = Witnesses::unpack(dir.path()).unwrap();
    let mut witness = Witness::new(&witnesses, program).situations(SITUATIONS);
    if let Some(python) = python {
        witness = witness.python(python);
    }
    let running = witness.start().unwrap();
    let (pid, file) = (running.pid().to_string(), dir.path().join("trace.db"));
    let out = file.to_str().unwrap();
    let mut command = gpuwhy(&["trace", "--out", out, "--budget", "0", "--stacks", "all", "-p", &pid]);
    command.env("GPUWHY_LOG", "gpuwhy_agent=info");
    let mut tracing = Tracing::start(command, file);
    tracing.wait_ready().wait_for(&format!("process {pid} has all its unwind tables"));
    let testimony = running.finish().unwrap();
    let (_, finished) = tracing.wait_finished();
    (Score::of(&testimony, &stacks_by_stream(&finished)).unwrap(), finished)
}

/// The witness passes its sequence number as the stream.
fn stacks_by_stream(finished: &Finished) -> HashMap<u64, Stack> {
    let window = finished.trace.window(&Scope::default()).unwrap();
    let stack = |loaded: &LoadedStack| Stack {
        frames: loaded.frames.iter().map(|frame| frame.as_ref().clone()).collect(),
        end: loaded.end,
        python_end: loaded.python_end,
    };
    let of_call = |call: &gpuwhy_model::Call| Some((call.stream?, stack(window.stacks.get(&call.stack_id?)?)));
    window.calls.rows.iter().filter_map(of_call).collect()
}

fn at_least(share: f64, part: usize, score: &Score, what: &str) {
    assert!(part as f64 >= share * score.calls as f64, "{what}: {score:#?}");
}

#[test]
fn root_native_stacks_are_those_of_the_reference_unwinder() {
    needs_root();
    for program in [Program::C, Program::Cpp, Program::Rust] {
        let (score, finished) = traced(program, None);
        assert_eq!(score.calls, SITUATIONS as usize);
        at_least(0.95, score.native_right, &score, program.file_name());
        finished.check();
    }
}

#[test]
fn root_a_build_with_frame_pointers_is_walked_by_them() {
    needs_root();
    let (score, _) = traced(Program::CFramePointers, None);
    at_least(0.99, score.native_right, &score, "frame pointers");
}

#[test]
fn root_python_stacks_have_every_function_and_executing_line_on_every_version() {
    needs_root();
    for python in Python::supported().unwrap() {
        let (score, _) = traced(Program::Python, Some(&python.path));
        let name = python.path.display().to_string();
        at_least(0.99, score.python_right, &score, &name);
        at_least(0.95, score.native_right, &score, &name);
    }
}

#[test]
fn root_python_and_native_frames_stand_in_the_order_of_calls() {
    needs_root();
    let (score, finished) = traced(Program::Mixed, None);
    at_least(0.99, score.python_right, &score, "Python in between");
    at_least(0.95, score.native_right, &score, "C++ in between");
    let of_calls = "FROM cuda_events JOIN stacks ON stacks.id = stack_id";
    let unknown = finished.number(&format!("SELECT count(*) {of_calls} WHERE end = '{}'", WalkEnd::NoProcess));
    assert_eq!((unknown, finished.number(&format!("SELECT count(*) {of_calls}"))), (0, SITUATIONS.into()));
    let walked = "SELECT sum(count) FROM stack_stats WHERE moment = 'call' AND walking_ns > 0";
    assert_eq!(finished.number(walked), i64::from(SITUATIONS), "every walk is counted");
}

#[test]
fn root_a_user_who_wants_no_stacks_gets_none() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).op("cuStreamSynchronize", Behaviour::Sleep, Duration::from_millis(2));
    let (_, finished) = support::traced(&place, workload.calls(100), &["--stacks", "none"]);
    finished.check();
    assert_eq!(finished.number("SELECT count(*) FROM stacks"), 0);
    assert_eq!(finished.number("SELECT coalesce(sum(count), 0) FROM stack_stats"), 0);
}

/// Launches an object of the driver's as drivers lay it out, and one that is laid out otherwise. It begins and ends
/// when it is told to.
const LAUNCHES: &str = r#"
import ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
driver.cuInit(0)
name = ctypes.create_string_buffer(b"_Z3addPfS_")
function = (ctypes.c_void_p * 4)(None, ctypes.addressof(name))
other = (ctypes.c_void_p * 4)(None, 12345)
sys.stdin.readline()
for _ in range(50):
    for launched in (function, other):
        driver.cuLaunchKernel(ctypes.c_void_p(ctypes.addressof(launched)), 1, 1, 1, 1, 1, 1, 0, None, None, None)
sys.stdin.readline()
"#;

#[test]
fn root_a_launch_says_which_kernel_it_launches() {
    needs_root();
    let place = Place::new();
    let driver = place.testbed.dir().join("libcuda.so.1");
    let script = place.dir.path().join("launches.py");
    std::fs::write(&script, LAUNCHES).unwrap();
    let file = place.file();
    let mut command = gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--budget", "0", "--", "python3"]);
    command.arg(&script).arg(&driver);
    let mut tracing = Tracing::start_with_input(command, file.clone());
    tracing.wait_for(&format!("attached {}", driver.display()));
    tracing.say("go");
    // The name of a kernel is read from the memory of a program that lives.
    let named = "SELECT count(*) FROM cuda_events WHERE kernel IS NOT NULL";
    wait_until("a kernel has a name", || number_so_far(&file, named).filter(|calls| *calls > 0));
    tracing.say("end");
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{:#?}", finished.log);
    let of = |kernel: &str| finished.number(&format!("SELECT count(*) FROM cuda_events WHERE kernel IS {kernel}"));
    assert_eq!((of("'add(float*, float*)'"), of("NULL AND class = 'launch'")), (50, 50));
}
