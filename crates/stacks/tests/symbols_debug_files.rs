//! Debug information in files of its own, where distributions put it.

#![allow(clippy::unwrap_used)]

mod symbols_support;

use std::fs;
use std::path::Path;

use gpuwhy_model::Frame;
use gpuwhy_stacks::symbols::{Limits, Symbolizer};
use symbols_support::Program;
use tempfile::TempDir;

/// A stripped program whose debug information is in `program.debug`, with the address and the frame of its `inner`.
fn split(options: &[&str], compression: &str) -> (Program, u64, Frame) {
    let program = Program::c(&[&["-g", "-O2"], options].concat());
    let (start, _) = program.function("inner");
    let whole = inner(&program, start, Path::new("/"));
    assert!(whole.line.is_some());
    let compress = format!("--compress-debug-sections={compression}");
    program.run("objcopy", &["--only-keep-debug", &compress, "program", "program.debug"]);
    program.run("strip", &["program"]);
    (program, start, whole)
}

/// Puts the debug file into a root at a path.
fn root_with(program: &Program, path: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(program.directory.path().join("program.debug"), path).unwrap();
    root
}

fn inner(program: &Program, address: u64, root: &Path) -> Frame {
    let mut symbolizer = Symbolizer::new(Limits::default());
    let file = symbolizer.file_in(&program.path, Path::new("/app/program"), root).unwrap();
    symbolizer.native(file, address, false).pop().unwrap()
}

fn path_by_id(program: &Program) -> String {
    let mut symbolizer = Symbolizer::new(Limits::default());
    let file = symbolizer.file(&program.path, &program.path).unwrap();
    let id: String = symbolizer.build_id(file).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])
}

#[test]
fn names_and_lines_come_from_the_debug_file_with_the_same_build_id() {
    for compression in ["none", "zlib", "zstd"] {
        let (program, address, whole) = split(&[], compression);
        let nowhere = tempfile::tempdir().unwrap();
        let without = inner(&program, address, nowhere.path());
        assert_eq!((without.function.as_str(), without.line), ("", None));
        let root = root_with(&program, &path_by_id(&program));
        let with = inner(&program, address, root.path());
        assert_eq!(with, whole, "{compression}");
    }
}

#[test]
fn a_debug_file_of_another_build_is_not_used() {
    let (program, address, _) = split(&[], "none");
    let (other, _, _) = split(&["-DOTHER", "-fno-inline"], "none");
    let root = root_with(&other, &path_by_id(&program));
    assert_eq!(inner(&program, address, root.path()).function, "");
}

#[test]
fn without_a_build_id_the_name_and_the_checksum_lead_to_the_debug_file() {
    let (program, address, whole) = split(&["-Wl,--build-id=none"], "none");
    program.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    for path in ["/app/program.debug", "/app/.debug/program.debug", "/usr/lib/debug/app/program.debug"] {
        let root = root_with(&program, path);
        assert_eq!(inner(&program, address, root.path()), whole, "{path}");
        let path = root.path().join(path.trim_start_matches('/'));
        let mut changed = fs::read(&path).unwrap();
        changed.push(0);
        fs::write(&path, changed).unwrap();
        assert_eq!(inner(&program, address, root.path()).line, None, "the checksum is wrong");
    }
}
