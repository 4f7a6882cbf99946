//! The table of layouts, compared with the headers of every interpreter of this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "python/target.rs"]
#[allow(dead_code)]
mod target;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_stacks::python::{CurrentFrame, Entry, Layout, Tags};
use target::{Python, Target, supported};

/// Bits of a string's state that are the same in all versions.
const STATE: &[(&str, u64)] = &[("state.kind", 7 << 2), ("state.compact", 1 << 5), ("state.ascii", 1 << 6)];

#[test]
fn layouts_are_what_the_headers_say() {
    let mut compared = 0;
    for python in supported() {
        let Some(said) = compile(&python) else {
            eprintln!("no headers for {}", python.path.display());
            continue;
        };
        let target = Target::start(&python.path, "plain", 1);
        assert_eq!(flat(&target.interpreter().layout), said, "{python:?}");
        compared += 1;
    }
    assert!(compared > 0, "no interpreter with headers to compare with");
}

#[test]
fn only_the_versions_with_tagged_references_have_their_tags_removed() {
    for python in supported() {
        let target = Target::start(&python.path, "plain", 1);
        let tags = if python.minor >= 14 { Tags::LowBits } else { Tags::None };
        assert_eq!(target.interpreter().layout.frame.tags, tags, "{python:?}");
    }
}

/// What `offsets.c` prints with an interpreter's headers.
fn compile(python: &Python) -> Option<BTreeMap<String, u64>> {
    let include = PathBuf::from(Python::ask(&python.path, "import sysconfig; print(sysconfig.get_path('include'))")?);
    if !include.join("internal/pycore_runtime.h").exists() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("offsets");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/offsets.c");
    let mut compiler = Command::new("cc");
    // Debian's headers include others of the folder above.
    for folder in [include.as_path(), &include.join("internal"), include.parent().unwrap()] {
        compiler.arg("-I").arg(folder);
    }
    let status = compiler.arg("-w").arg(source).arg("-o").arg(&program).status().unwrap();
    assert!(status.success(), "offsets.c does not compile for {python:?}");
    let output = Command::new(&program).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let values = lines.lines().map(|line| line.split_once(' ').unwrap());
    Some(values.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect())
}

/// A layout in the words of `offsets.c`.
fn flat(layout: &Layout) -> BTreeMap<String, u64> {
    let fields = [
        ("runtime.interpreters_head", Some(layout.runtime.interpreters_head)),
        ("interpreter.next", Some(layout.interpreter.next)),
        ("interpreter.threads_head", Some(layout.interpreter.threads_head)),
        ("thread.next", Some(layout.thread.next)),
        ("thread.thread_id", Some(layout.thread.thread_id)),
        ("thread.frame", Some(layout.thread.frame)),
        ("cframe.current_frame", cframe(layout)),
        ("frame.code", Some(layout.frame.code)),
        ("frame.previous", Some(layout.frame.previous)),
        ("frame.instruction", Some(layout.frame.instruction)),
        ("code.first_line", Some(layout.code.first_line)),
        ("code.file", Some(layout.code.file)),
        ("code.name", Some(layout.code.name)),
        ("code.qualified_name", layout.code.qualified_name),
        ("code.instructions", layout.code.instructions),
        ("code.line_table", Some(layout.code.line_table)),
        ("object.type", Some(layout.object_type)),
        ("unicode.length", Some(layout.unicode.length)),
        ("unicode.state", Some(layout.unicode.state)),
        ("unicode.ascii_characters", Some(layout.unicode.ascii_characters)),
        ("unicode.other_characters", Some(layout.unicode.other_characters)),
        ("bytes.size", Some(layout.bytes.size)),
        ("bytes.content", Some(layout.bytes.content)),
    ];
    let offsets = fields.iter().filter_map(|(name, offset)| Some((*name, u64::from((*offset)?))));
    let all = offsets.chain(entry(layout)).chain(STATE.iter().copied());
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn cframe(layout: &Layout) -> Option<u16> {
    match layout.thread.current {
        CurrentFrame::Direct => None,
        CurrentFrame::ThroughCframe(offset) => Some(offset),
    }
}

fn entry(layout: &Layout) -> Vec<(&'static str, u64)> {
    match layout.frame.entry {
        Entry::EveryFrame => vec![],
        Entry::Flag(offset) => vec![("frame.is_entry", offset.into())],
        Entry::Shim { owner } => vec![("frame.owner", owner.into()), ("owner.first_shim", 3)],
    }
}
