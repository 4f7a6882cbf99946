//! The programs with known stacks run, and what they write down is plausible: nothing here traces them.

#![allow(clippy::unwrap_used)]

use gpuwhy_testbed::stacks::{CodeAddress, PROGRAMS, Program, PythonFrame, Testimony, Witness, Witnesses};
use object::{Object, ObjectSymbol};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const SITUATIONS: u32 = 300;
const CALL: Duration = Duration::from_micros(10);

/// Interpreters that are looked for; those that are not there are not tested.
const PYTHONS: &[&str] =
    &["python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"];
const OLDEST_PYTHON: (u32, u32) = (3, 9);

fn unpacked() -> (TempDir, Witnesses) {
    let dir = tempfile::tempdir().unwrap();
    let witnesses = Witnesses::unpack(dir.path()).unwrap();
    (dir, witnesses)
}

fn run(witnesses: &Witnesses, program: Program) -> Testimony {
    let witness = Witness::new(witnesses, program).situations(SITUATIONS).call(CALL);
    let mut running = witness.start().unwrap();
    running.wait_done().unwrap();
    assert!(Path::new(&format!("/proc/{}", running.pid())).exists());
    running.finish().unwrap()
}

/// The functions of a file by their start, with their ends.
fn functions(path: &Path) -> BTreeMap<u64, (u64, String)> {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbols = file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.is_definition());
    symbols
        .map(|symbol| (symbol.address(), (symbol.address() + symbol.size(), symbol.name().unwrap().to_owned())))
        .collect()
}

/// The name of the function that made a call, by the address to which the call returns.
fn caller(functions: &BTreeMap<u64, (u64, String)>, return_address: u64) -> Option<&str> {
    let (_, (end, name)) = functions.range(..return_address).next_back()?;
    (return_address <= *end).then_some(name)
}

#[test]
fn every_program_witnesses_as_many_situations_as_it_is_told() {
    let (_dir, witnesses) = unpacked();
    for &program in PROGRAMS {
        let testimony = run(&witnesses, program);
        let log = &testimony.native;
        assert!((0..u64::from(SITUATIONS)).all(|sequence| log.stacks.contains_key(&sequence)), "{program:?}");
        assert_eq!(log.stacks.len(), SITUATIONS as usize, "{program:?}");
        assert!(different_stacks(&testimony) > SITUATIONS as usize * 3 / 5, "{program:?}");
        assert!(log.stacks.values().any(|stack| stack.ips.len() > 25), "{program:?}");
        let threads: HashSet<u32> = log.stacks.values().map(|stack| stack.tid).collect();
        assert!(threads.len() > 1, "{program:?}");
    }
}

/// Calls from Python to Python leave no trace in the native stack from 3.11 on.
fn different_stacks(testimony: &Testimony) -> usize {
    match &testimony.python {
        Some(python) => python.stacks.values().map(|stack| format!("{:?}", stack.frames)).collect::<HashSet<_>>().len(),
        None => testimony.native.stacks.values().map(|stack| &stack.ips).collect::<HashSet<_>>().len(),
    }
}

#[test]
fn every_address_is_in_the_code_of_a_file_and_none_in_libwitness() {
    let (_dir, witnesses) = unpacked();
    for &program in PROGRAMS {
        let log = run(&witnesses, program).native;
        let addresses = log.addresses().unwrap();
        for (sequence, stack) in &log.stacks {
            for ip in &stack.ips {
                let found = addresses.of(*ip).unwrap_or_else(|| panic!("{program:?} {sequence}: {ip:x}"));
                assert!(found.module != witnesses.libwitness(), "{program:?} {sequence}: {found:x?}");
            }
        }
    }
}

/// The reference did not give up in the middle.
#[test]
fn every_stack_of_c_ends_where_a_program_a_thread_or_a_coroutine_starts() {
    let (_dir, witnesses) = unpacked();
    for program in [Program::C, Program::CFramePointers] {
        let log = run(&witnesses, program).native;
        let addresses = log.addresses().unwrap();
        let path = witnesses.path(program);
        let own = functions(&path);
        let ends: Vec<CodeAddress> =
            log.stacks.values().map(|stack| addresses.of(*stack.ips.last().unwrap()).unwrap()).collect();
        let (program_starts, others): (Vec<_>, Vec<_>) = ends.iter().partition(|end| end.module == path);
        assert!(program_starts.iter().all(|end| caller(&own, end.address) == Some("_start")), "{program:?}");
        let starts_of_others: HashSet<_> = others.iter().collect();
        assert!(others.iter().all(|end| end.module.to_string_lossy().contains("libc")), "{others:x?}");
        assert!((1..=2).contains(&starts_of_others.len()), "a thread's and a coroutine's: {starts_of_others:x?}");
    }
}

#[test]
fn the_stack_of_a_recursion_is_as_deep_as_the_recursion() {
    let (_dir, witnesses) = unpacked();
    let log = run(&witnesses, Program::C).native;
    let addresses = log.addresses().unwrap();
    let own = functions(&witnesses.path(Program::C));
    for (sequence, stack) in log.stacks.iter().filter(|(sequence, _)| *sequence % 25 == 0) {
        let names = stack.ips.iter().map(|ip| addresses.of(*ip).unwrap().address);
        let names: Vec<_> = names.map(|address| caller(&own, address).unwrap_or_default()).collect();
        let depth = 1 + *sequence as usize * 7 % 90;
        assert_eq!(names.iter().filter(|name| **name == "recurse").count(), depth, "{sequence}: {names:?}");
        assert_eq!(names[depth], "in_recursion", "{sequence}: {names:?}");
    }
}

#[test]
fn python_writes_down_the_same_calls_and_threads_as_the_library() {
    let (_dir, witnesses) = unpacked();
    for program in [Program::Python, Program::Mixed] {
        let testimony = run(&witnesses, program);
        let python = testimony.python.unwrap();
        assert_eq!(python.stacks.len(), testimony.native.stacks.len());
        for (sequence, stack) in &python.stacks {
            assert_eq!(stack.tid, testimony.native.stacks[sequence].tid, "{sequence}");
            assert!(stack.frames.iter().all(|frame| frame.line > 0), "{stack:?}");
        }
    }
}

#[test]
fn every_innermost_line_of_python_is_the_one_with_the_call() {
    let (_dir, witnesses) = unpacked();
    for program in [Program::Python, Program::Mixed] {
        let source = std::fs::read_to_string(witnesses.path(program)).unwrap();
        let lines: Vec<&str> = source.lines().collect();
        let python = run(&witnesses, program).python.unwrap();
        let innermost = python.stacks.values().map(|stack| &stack.frames[0]);
        let in_file = |frame: &&PythonFrame| Path::new(&frame.file) == witnesses.path(program);
        let of_program: Vec<_> = innermost.filter(in_file).collect();
        assert!(of_program.len() > SITUATIONS as usize * 4 / 5);
        for frame in of_program {
            let line = lines[frame.line as usize - 1];
            assert!(line.contains("witness(record("), "{frame:?}: {line:?}");
        }
    }
}

#[test]
fn what_python_writes_down_before_the_call_holds_during_the_call() {
    let (_dir, witnesses) = unpacked();
    let interpreters = interpreters();
    assert!(!interpreters.is_empty());
    for python in interpreters {
        for program in [Program::Python, Program::Mixed] {
            let witness = Witness::new(&witnesses, program).situations(SITUATIONS).call(CALL).python(&python).check();
            let testimony = witness.start().unwrap().finish();
            let testimony = testimony.unwrap_or_else(|error| panic!("{}: {error:#}", python.display()));
            assert_eq!(testimony.python.unwrap().stacks.len(), SITUATIONS as usize);
        }
    }
}

/// The interpreters by their real paths, so that no wrapper is between a test and its process.
fn interpreters() -> Vec<PathBuf> {
    let ask = format!("import sys; print(sys.executable if sys.version_info >= {OLDEST_PYTHON:?} else '')");
    let answers = PYTHONS.iter().filter_map(|name| Command::new(name).args(["-c", &ask]).output().ok());
    let paths = answers.map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned());
    let paths: HashSet<String> = paths.filter(|path| !path.is_empty()).collect();
    paths.into_iter().map(PathBuf::from).collect()
}

#[test]
fn a_wrong_setting_is_refused() {
    let (_dir, witnesses) = unpacked();
    let error = Witness::new(&witnesses, Program::C).situations(0).start().unwrap_err();
    assert!(format!("{error:#}").contains("at least one situation"), "{error:#}");
    let error = Witness::new(&witnesses, Program::Rust).check().start().unwrap_err();
    assert!(format!("{error:#}").contains("only Python's"), "{error:#}");
    let error = Witness::new(&witnesses, Program::Python).python("no-such-python").start().unwrap_err();
    assert!(format!("{error:#}").contains("no-such-python"), "{error:#}");
}
