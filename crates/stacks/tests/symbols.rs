//! Functions and lines of real programs, with `addr2line` as the second witness.

#![allow(clippy::unwrap_used)]

mod symbols_support;

use std::fs;
use std::path::Path;

use gpuwhy_model::{Frame, FrameKind};
use gpuwhy_stacks::symbols::{Limits, Symbolizer};
use symbols_support::{CPP, Place, Program, RUST, addr2line, place, symbolizer};

/// Compares every address of the functions whose names contain one of the texts.
fn agrees_with_addr2line(program: &Program, names: &[&str]) {
    let functions = program.functions();
    let mut addresses: Vec<u64> = Vec::new();
    for name in names {
        let before = addresses.len();
        let meant = functions.iter().filter(|(symbol, _, _)| symbol.contains(name));
        addresses.extend(meant.flat_map(|(_, start, size)| *start..start + size));
        assert!(addresses.len() > before, "no function {name}");
    }
    let (mut symbolizer, file) = symbolizer(&program.path);
    for (address, expected) in addresses.iter().zip(addr2line(program, &addresses)) {
        let frames = symbolizer.native(file, *address, false);
        let found: Vec<Place> = frames.iter().map(place).collect();
        assert_eq!(found, expected, "at {address:#x}");
        assert!(frames.iter().all(|frame| frame.address == *address && frame.kind == FrameKind::Native));
        let (last, inlined) = frames.split_last().unwrap();
        assert!(!last.is_inlined && inlined.iter().all(|frame| frame.is_inlined));
    }
}

#[test]
fn c_agrees_with_addr2line() {
    for options in [["-g", "-O0"], ["-g", "-O2"], ["-gdwarf-4", "-O2"], ["-g1", "-O2"]] {
        agrees_with_addr2line(&Program::c(&options), &["inner", "outer"]);
    }
}

#[test]
fn cpp_templates_and_inlined_functions_agree_with_addr2line() {
    let program = Program::build("g++", "program.cpp", CPP, &["-g", "-O2"]);
    agrees_with_addr2line(&program, &["area", "repeat", "hidden"]);
    let (start, size) = program.function("area");
    let (mut symbolizer, file) = symbolizer(&program.path);
    let frames = (start..start + size).map(|address| symbolizer.native(file, address, false));
    let deepest = frames.max_by_key(Vec::len).unwrap();
    let names: Vec<_> = deepest.iter().map(|frame| frame.function.as_str()).collect();
    assert!(names.iter().any(|name| name.contains("shapes::sum<double>")), "{names:?}");
    assert!(names.last().unwrap().starts_with("shapes::Canvas::area(std::vector<double"), "{names:?}");
}

#[test]
fn rust_names_of_both_manglings_have_no_hash_and_lines_agree_with_addr2line() {
    for (mangling, name) in
        [("legacy", "program::shapes::largest"), ("v0", "program::shapes::largest::<program::shapes::Square>")]
    {
        let mangling = format!("symbol-mangling-version={mangling}");
        let options = ["-g", "-O", "-Z", "unstable-options", "-C", &mangling];
        let program = Program::build("rustc", "program.rs", RUST, &options);
        let (start, size) = program.function("largest");
        let addresses: Vec<_> = (start..start + size).collect();
        let (mut symbolizer, file) = symbolizer(&program.path);
        for (address, expected) in addresses.iter().zip(addr2line(&program, &addresses)) {
            let frames = symbolizer.native(file, *address, false);
            // binutils leaves parts of Rust's names out, so that only places are compared.
            let found: Vec<_> = frames.iter().map(place).map(|(_, file, line)| (file, line)).collect();
            let expected: Vec<_> = expected.into_iter().map(|(_, file, line)| (file, line)).collect();
            assert_eq!(found, expected, "at {address:#x}");
        }
        assert_eq!(symbolizer.native(file, start, false).pop().unwrap().function, name);
    }
}

#[test]
fn a_return_address_is_looked_up_in_the_call_before_it() {
    let program = Program::build(
        "gcc",
        "program.c",
        "void stop(void) __attribute__((noreturn));\n__attribute__((noinline)) void last(void) {\n  stop();\n}\n\
         __attribute__((noinline)) void next(void) { }\n__attribute__((noinline)) void stop(void) { __builtin_trap(); }\nint main(void) { last(); next(); }",
        &["-g", "-O1", "-fno-reorder-functions", "-falign-functions=1"],
    );
    let (start, size) = program.function("last");
    let (mut symbolizer, file) = symbolizer(&program.path);
    let frames = symbolizer.native(file, start + size, true);
    assert_eq!((frames[0].function.as_str(), frames[0].line), ("last", Some(3)));
    assert_eq!(frames[0].address, start + size);
    assert_ne!(symbolizer.native(file, start + size, false)[0].function, "last");
}

#[test]
fn without_debug_information_there_are_names_without_lines() {
    let program = Program::c(&["-O2"]);
    let (start, _) = program.function("inner");
    let (mut symbolizer, file) = symbolizer(&program.path);
    let expected = Frame {
        function: "inner".into(),
        module: Some(program.path.display().to_string()),
        address: start + 1,
        ..Frame::default()
    };
    assert_eq!(symbolizer.native(file, start + 1, false), [expected]);
}

#[test]
fn a_stripped_library_has_the_names_that_it_exports() {
    let program = Program::c(&["-O2", "-shared", "-fPIC", "-fno-semantic-interposition"]);
    let (start, _) = program.function("inner");
    program.run("strip", &["program"]);
    assert!(program.run("nm", &["-D", "program"]).contains("inner"));
    let (mut symbolizer, file) = symbolizer(&program.path);
    assert_eq!(symbolizer.native(file, start, false)[0].function, "inner");
}

#[test]
fn an_address_outside_of_all_functions_has_a_module_and_no_name() {
    let program = Program::c(&["-g"]);
    let (mut symbolizer, file) = symbolizer(&program.path);
    for address in [0, 0x7fff_ffff_ffff, u64::MAX] {
        let frames = symbolizer.native(file, address, true);
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].function.as_str(), frames[0].address), ("", address));
        assert_eq!(frames[0].module.as_deref(), program.path.to_str());
    }
}

#[test]
fn a_file_that_is_deleted_still_has_its_names() {
    let program = Program::c(&["-g", "-O2"]);
    let (start, _) = program.function("inner");
    let (mut symbolizer, file) = symbolizer(&program.path);
    fs::remove_file(&program.path).unwrap();
    let frames = symbolizer.native(file, start, false);
    assert_eq!(frames.last().unwrap().function, "inner");
    assert!(frames.last().unwrap().line.is_some());
}

#[test]
fn the_file_of_a_process_that_is_gone_still_has_its_names() {
    let program = Program::build(
        "gcc",
        "program.c",
        "int inner(void) { return 1; }\nint main(void) { for (;;) inner(); }",
        &["-g"],
    );
    let (start, _) = program.function("inner");
    let mut child = std::process::Command::new(&program.path).spawn().unwrap();
    let openable = format!("/proc/{}/exe", child.id());
    let mut symbolizer = Symbolizer::new(Limits::default());
    let file = symbolizer.file(Path::new(&openable), Path::new("/app/program")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let frames = symbolizer.native(file, start, false);
    assert_eq!((frames[0].function.as_str(), frames[0].line), ("inner", Some(1)));
    assert_eq!(frames[0].module.as_deref(), Some("/app/program"));
}

#[test]
fn the_same_file_has_the_same_id_under_any_name() {
    let program = Program::c(&[]);
    let (mut symbolizer, file) = symbolizer(&program.path);
    let other = program.directory.path().join("other");
    fs::hard_link(&program.path, &other).unwrap();
    assert_eq!(symbolizer.file(&other, &other).unwrap(), file);
    assert_eq!(symbolizer.build_id(file).map(|id| id.len()), Some(20));
    let copy = program.directory.path().join("copy");
    fs::copy(&program.path, &copy).unwrap();
    assert_ne!(symbolizer.file(&copy, &copy).unwrap(), file);
}

#[test]
fn a_kernel_function_is_found_by_its_address() {
    let text = fs::read_to_string("/proc/kallsyms").unwrap();
    let line = text.lines().find(|line| line.ends_with(" schedule")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    assert!(address > 0, "this test needs a kernel that shows its addresses to it");
    let frame = Symbolizer::new(Limits::default()).kernel(address + 3);
    let expected =
        Frame { kind: FrameKind::Kernel, function: "schedule".into(), address: address + 3, ..Frame::default() };
    assert_eq!(frame, expected);
    let unknown = Symbolizer::new(Limits::default()).kernel(0x1000);
    assert_eq!((unknown.function.as_str(), unknown.kind), ("", FrameKind::Kernel));
}

#[test]
fn code_that_a_process_made_is_found_in_its_own_map() {
    let path = format!("/tmp/perf-{}.map", std::process::id());
    fs::write(&path, "7f0000001000 40 py::train:/app/train.py\n").unwrap();
    let mut symbolizer = Symbolizer::new(Limits::default());
    let frame = symbolizer.jit(std::process::id(), 0x7f00_0000_1010);
    let unknown = symbolizer.jit(std::process::id(), 0x7f00_0000_2000);
    fs::remove_file(&path).unwrap();
    assert_eq!((frame.function.as_str(), frame.kind), ("py::train:/app/train.py", FrameKind::Jit));
    assert_eq!((unknown.function.as_str(), unknown.kind), ("", FrameKind::Jit));
}
