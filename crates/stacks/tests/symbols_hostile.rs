//! Files that are damaged, crafted, or change while they are used.

#![allow(clippy::unwrap_used)]

mod symbols_support;

use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gpuwhy_stacks::symbols::{Limits, Symbolizer};
use proptest::prelude::*;
use symbols_support::{CPP, Program, symbolizer};

#[test]
fn a_file_that_is_cut_short_after_it_was_read_keeps_its_names() {
    let program = Program::c(&["-g", "-O2"]);
    let (start, size) = program.function("inner");
    let (mut symbolizer, file) = symbolizer(&program.path);
    symbolizer.native(file, start, false);
    OpenOptions::new().write(true).open(&program.path).unwrap().set_len(0).unwrap();
    for address in start..start + size {
        let frame = symbolizer.native(file, address, false).pop().unwrap();
        assert_eq!(frame.function, "inner");
        assert!(frame.line.is_some());
    }
}

#[test]
fn a_file_that_has_changed_before_it_was_read_gets_no_names() {
    let program = Program::c(&["-g", "-O2"]);
    let (start, _) = program.function("inner");
    let (mut symbolizer, file) = symbolizer(&program.path);
    let file_on_disk = OpenOptions::new().write(true).open(&program.path).unwrap();
    file_on_disk.set_len(fs::metadata(&program.path).unwrap().len() + 1).unwrap();
    let frames = symbolizer.native(file, start, false);
    assert_eq!((frames.len(), frames[0].function.as_str()), (1, ""));
    assert_eq!(frames[0].module.as_deref(), program.path.to_str());
    assert_eq!((symbolizer.failures().files, symbolizer.failures().debug_information), (1, 1));
}

#[test]
fn a_file_that_changes_all_the_time_does_no_harm() {
    let program = Program::c(&["-g", "-O2"]);
    let (start, _) = program.function("inner");
    let contents = fs::read(&program.path).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                fs::write(&program.path, &contents[..contents.len() / 2]).unwrap();
                fs::write(&program.path, &contents).unwrap();
            }
        });
        for _ in 0..500 {
            let (mut symbolizer, file) = symbolizer(&program.path);
            let name = symbolizer.native(file, start, false).pop().unwrap().function;
            assert!(["inner", ""].contains(&name.as_str()), "{name}");
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn inlined_functions_nested_without_end_cost_the_lines_and_nothing_else() {
    const NESTED: &str = r#"
        .text
        .globl inner
        .type inner, @function
        .file 1 "program.s"
inner:  .loc 1 7
        ret
.Lend:  .size inner, . - inner
        .globl main
main:   ret
        .section .debug_line,"",@progbits
.Lline:
        .section .debug_abbrev,"",@progbits
        .byte 1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, 0, 0
        .byte 2, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0
        .byte 3, 0x1d, 1, 0, 0
        .byte 0
        .section .debug_info,"",@progbits
        .long .Linfo_end - .Linfo
.Linfo: .short 4
        .long 0
        .byte 8
        .byte 1
        .quad inner
        .quad .Lend - inner
        .long .Lline
        .byte 2
        .string "inner"
        .quad inner
        .quad .Lend - inner
        .fill DEPTH, 1, 3
        .fill DEPTH + 2, 1, 0
.Linfo_end:
        .section .note.GNU-stack,"",@progbits
"#;
    for (depth, line, failures) in [(100, Some(7), 0), (4_000_000, None, 1)] {
        let depth = format!("-Wa,--defsym,DEPTH={depth}");
        let program = Program::build("gcc", "program.s", NESTED, &["-no-pie", &depth]);
        let (start, _) = program.function("inner");
        let (mut symbolizer, file) = symbolizer(&program.path);
        let frame = symbolizer.native(file, start, false).pop().unwrap();
        assert_eq!((frame.function.as_str(), frame.line), ("inner", line));
        assert_eq!(symbolizer.failures().debug_information, failures);
    }
}

#[test]
fn what_is_no_program_has_frames_without_names() {
    let directory = tempfile::tempdir().unwrap();
    for contents in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01\x01", &[0x7f; 4096], b"#!/bin/sh\n"] {
        let path = directory.path().join("file");
        fs::write(&path, contents).unwrap();
        let (mut symbolizer, file) = symbolizer(&path);
        assert_eq!(symbolizer.native(file, 0x1000, true).len(), 1);
        assert_eq!(symbolizer.failures().files, 1);
    }
}

#[test]
fn what_is_no_file_is_an_error_that_names_it() {
    let mut symbolizer = Symbolizer::new(Limits::default());
    for path in ["/", "/dev/zero", "/no/such/file"] {
        let error = symbolizer.file(path.as_ref(), "/lib/seen.so".as_ref()).unwrap_err();
        assert!(format!("{error:#}").contains("/lib/seen.so") && format!("{error:#}").contains(path), "{error:#}");
    }
}

#[test]
fn files_beyond_the_limit_are_forgotten_and_counted() {
    let programs = [Program::c(&[]), Program::c(&["-O1"]), Program::c(&["-O2"])];
    let mut symbolizer = Symbolizer::new(Limits { files: 2, ..Limits::default() });
    let files: Vec<_> = programs.iter().map(|program| symbolizer.file(&program.path, &program.path).unwrap()).collect();
    assert_eq!(files.iter().map(|file| symbolizer.is_kept(*file)).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(symbolizer.native(files[0], 0x1000, false).len(), 1);
    assert_eq!(symbolizer.failures().forgotten, 1);
    let again = symbolizer.file(&programs[0].path, &programs[0].path).unwrap();
    let (start, _) = programs[0].function("inner");
    assert_eq!(symbolizer.native(again, start, false)[0].function, "inner");
}

#[test]
fn where_memory_is_short_lines_go_first_and_then_names() {
    let program = Program::build("g++", "program.cpp", CPP, &["-g", "-O2"]);
    let (start, _) = program.function("area");
    for (bytes, has_name, has_line) in [(1 << 24, true, true), (20_000, true, false), (10, false, false)] {
        let mut symbolizer = Symbolizer::new(Limits { bytes, ..Limits::default() });
        let file = symbolizer.file(&program.path, &program.path).unwrap();
        let frame = symbolizer.native(file, start, false).pop().unwrap();
        assert_eq!((!frame.function.is_empty(), frame.line.is_some()), (has_name, has_line), "{bytes} bytes");
        assert!(symbolizer.memory() <= bytes, "{} of {bytes}", symbolizer.memory());
    }
}

#[test]
fn what_is_not_used_between_trims_gives_its_memory_back_and_works_again() {
    let program = Program::c(&["-g", "-O2"]);
    let (start, _) = program.function("inner");
    let (mut symbolizer, file) = symbolizer(&program.path);
    symbolizer.native(file, start, false);
    assert!(symbolizer.memory() > 0);
    (0..5).for_each(|_| symbolizer.trim());
    assert_eq!(symbolizer.memory(), 0);
    assert_eq!(symbolizer.native(file, start + 1, false).pop().unwrap().function, "inner");
}

fn survives(program: &Program, contents: &[u8], addresses: &[u64]) {
    let path = program.directory.path().join("damaged");
    fs::write(&path, contents).unwrap();
    let (mut symbolizer, file) = symbolizer(&path);
    for address in addresses {
        let frames = symbolizer.native(file, *address, false);
        assert!(!frames.is_empty() && frames.iter().all(|frame| frame.function.len() <= 1024));
    }
}

#[test]
fn a_damaged_file_never_ends_us() {
    let program = Program::c(&["-g", "-O2"]);
    let contents = fs::read(&program.path).unwrap();
    let addresses: Vec<_> =
        program.functions().iter().flat_map(|(_, start, size)| [*start, start + size / 2]).collect();
    let damages = prop::collection::vec((0..contents.len(), prop_oneof![any::<u8>(), Just(0), Just(0xff)]), 1..40);
    // Damages are tried in a stretch of the file too, since most of it is code.
    let damages = (damages, 0..contents.len(), 1..4000_usize, 0..10_u8);
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) }, |((damages, start, length, kind) in damages)| {
        let mut damaged = contents.clone();
        for (position, byte) in damages {
            let position = if kind < 7 { (start + position % length) % contents.len() } else { position };
            damaged[position] = byte;
        }
        if kind == 9 {
            damaged.truncate(start);
        }
        survives(&program, &damaged, &addresses);
    });
}
