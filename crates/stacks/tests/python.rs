//! Walks over the stacks of real interpreters, compared with what Python itself says of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "python/target.rs"]
mod target;

use gpuwhy_model::PythonEnd;
use gpuwhy_stacks::memory::Memory;
use gpuwhy_stacks::python::{CodeObject, Entry, Interpreter, MOST_FRAMES, RawFrame, Refusal, walk};
use target::{Python, Target, Told, supported};

/// Scenarios of `frames.py` with one thread.
const SCENARIOS: &[&str] = &[
    "plain",
    "decorated",
    "multi_line_call",
    "in_a_comprehension",
    "in_a_generator_expression",
    "generator",
    "coroutine",
    "callbacks",
    "non_ascii",
    "exec_code",
    "initializer",
    "attributes",
    "warmed_up",
    "far_away",
    "interpreters",
];

#[test]
fn every_frame_has_the_function_and_the_line_that_python_says() {
    for python in supported() {
        for scenario in SCENARIOS {
            let target = Target::start(&python.path, scenario, 1);
            let (id, told) = &target.threads[0];
            check(&python, scenario, &target, *id, told);
        }
    }
}

#[test]
fn threads_are_told_apart_whether_they_hold_the_lock_or_wait() {
    for python in supported() {
        let target = Target::start(&python.path, "threads", 3);
        for (id, told) in &target.threads {
            check(&python, "threads", &target, *id, told);
        }
    }
}

#[test]
fn a_thread_without_python_state_has_no_frames() {
    for python in supported() {
        let target = Target::start(&python.path, "plain", 1);
        let walked = walk(&target.memory(), &target.interpreter(), 0x1000);
        assert_eq!((walked.end, walked.frames.len()), (PythonEnd::NoThread, 0), "{python:?}");
    }
}

#[test]
fn a_deep_recursion_is_cut_at_the_outer_end_and_says_so() {
    for python in supported() {
        let target = Target::start(&python.path, "recursion", 1);
        let (id, told) = &target.threads[0];
        let interpreter = target.interpreter();
        let walked = walk(&target.memory(), &interpreter, *id);
        assert_eq!(walked.end, PythonEnd::TooDeep, "{python:?}");
        assert_eq!(resolve(&target, &interpreter, &walked.frames), told[..MOST_FRAMES], "{python:?}");
    }
}

#[test]
fn entries_are_the_frames_that_c_code_called() {
    for python in supported() {
        let target = Target::start(&python.path, "callbacks", 1);
        let (id, told) = &target.threads[0];
        let interpreter = target.interpreter();
        let walked = walk(&target.memory(), &interpreter, *id);
        for (frame, told) in walked.frames.iter().zip(told) {
            let is_called_by_c = told.function.starts_with("entered_by_") || told.function == "<module>";
            let expected = is_called_by_c || interpreter.layout.frame.entry == Entry::EveryFrame;
            assert_eq!(frame.is_entry, expected, "{python:?} {told:?}");
        }
    }
}

#[test]
fn the_evaluation_loop_is_found_with_the_parts_that_lie_elsewhere() {
    const LEAST_BYTES: u64 = 16 * 1024;
    for python in supported() {
        let target = Target::start(&python.path, "plain", 1);
        let interpreter = target.interpreter();
        let bytes: u64 = interpreter.eval.iter().map(|part| part.end - part.start).sum();
        assert!(interpreter.is_tail_calling || bytes > LEAST_BYTES, "{python:?} {:x?}", interpreter.eval);
    }
}

#[test]
fn an_interpreter_of_a_virtual_environment_is_found() {
    for python in supported() {
        let folder = tempfile::tempdir().unwrap();
        let home = python.path.parent().unwrap().display();
        std::fs::write(folder.path().join("pyvenv.cfg"), format!("home = {home}\n")).unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        let link = folder.path().join("bin/python");
        std::os::unix::fs::symlink(&python.path, &link).unwrap();
        let target = Target::start(&link, "plain", 1);
        let (id, told) = &target.threads[0];
        check(&python, "plain in a virtual environment", &target, *id, told);
    }
}

#[test]
fn a_version_that_is_too_old_is_refused_with_a_reason_or_has_no_interpreter_to_find() {
    for python in Python::too_old() {
        let target = Target::start(&python.path, "plain", 1);
        match target.find() {
            Ok(found) => assert_eq!(found, None, "{python:?}"),
            Err(Refusal::Unsupported(why)) => assert!(why.contains("before 3.9"), "{why}"),
            Err(other) => panic!("{python:?}: {other}"),
        }
    }
}

#[test]
fn a_layout_of_another_version_is_refused() {
    for python in supported() {
        let target = Target::start(&python.path, "plain", 1);
        let interpreter = target.interpreter();
        for (minor, layout) in gpuwhy_stacks::python::LAYOUTS {
            let wrong = Interpreter { layout: *layout, ..interpreter.clone() };
            let accepted = wrong.validate(&target.memory()).is_ok();
            // 3.9 and 3.10 differ in what frames say of their instruction only.
            let alike = [9, 10].contains(minor) && [9, 10].contains(&python.minor);
            assert_eq!(accepted, *minor == python.minor || alike, "3.{minor} for {python:?}");
        }
    }
}

#[test]
fn a_frame_whose_code_object_is_none_is_broken_and_not_guessed() {
    for python in supported() {
        let target = Target::start(&python.path, "plain", 1);
        let (id, _) = target.threads[0];
        let interpreter = Interpreter { code_type: 0x1234, ..target.interpreter() };
        assert_eq!(walk(&target.memory(), &interpreter, id).end, PythonEnd::Broken);
        let refusal = interpreter.validate(&target.memory()).unwrap_err().to_string();
        assert!(refusal.contains("no code object"), "{refusal}");
    }
}

/// The walk gives exactly what was told.
fn check(python: &Python, scenario: &str, target: &Target, id: u64, told: &[Told]) {
    let interpreter = target.interpreter();
    assert_eq!(interpreter.version.minor, python.minor);
    interpreter.validate(&target.memory()).unwrap_or_else(|refusal| panic!("{python:?} {scenario}: {refusal}"));
    let walked = walk(&target.memory(), &interpreter, id);
    assert_eq!(walked.end, PythonEnd::Complete, "{python:?} {scenario}");
    assert_eq!(resolve(target, &interpreter, &walked.frames), told, "{python:?} {scenario}");
    assert!(walked.frames.last().is_some_and(|frame| frame.is_entry), "{python:?} {scenario}");
}

fn resolve(target: &Target, interpreter: &Interpreter, frames: &[RawFrame]) -> Vec<Told> {
    frames.iter().map(|frame| resolve_one(&target.memory(), interpreter, frame)).collect()
}

fn resolve_one(memory: &impl Memory, interpreter: &Interpreter, frame: &RawFrame) -> Told {
    let code = CodeObject::read(memory, interpreter, frame.code).unwrap();
    assert_eq!(code.fingerprint, frame.fingerprint);
    Told { line: code.line(frame.instruction), function: code.qualified_name, file: code.file }
}
