//! Damaged files give an error or rows that say nothing: no panic, no endless loop, rows that are in order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;
use std::process::Command;
use std::sync::LazyLock;

use gpuwhy_stacks::table::{Table, load_bias};
use object::{Object, ObjectSection};
use proptest::prelude::*;

/// A small library, and where its unwind information is.
static LIBRARY: LazyLock<(Vec<u8>, Range<usize>)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let (input, path) = (directory.path().join("library.c"), directory.path().join("library.so"));
    std::fs::write(&input, "int printf(const char *, ...);\nint f(int n) { return n ? f(n - 1) + printf(\"\") : 0; }")
        .unwrap();
    let flags = ["-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC", "-o"];
    assert!(Command::new("gcc").args(flags).arg(&path).arg(&input).status().unwrap().success());
    let bytes = std::fs::read(path).unwrap();
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let (offset, size) = elf.section_by_name(".eh_frame").unwrap().file_range().unwrap();
    (bytes.clone(), offset as usize..(offset + size) as usize)
});

fn check(bytes: &[u8]) {
    let Ok(table) = Table::of_bytes(bytes) else { return };
    assert!(table.rows.is_sorted_by(|row, next| row.address < next.address && row.rule != next.rule));
    assert!(table.rows.len() <= 1 + bytes.len() * 2);
    for row in &table.rows {
        assert_eq!(table.rule_at(u64::from(row.address)), row.rule);
    }
    load_bias(&table.segments, 0x7f00_0000_1000, 0x1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bytes_changed_in_the_headers(changes in proptest::collection::vec((0..0x400_usize, any::<u8>()), 1..8)) {
        let mut bytes = LIBRARY.0.clone();
        changes.iter().for_each(|(at, value)| bytes[*at] = *value);
        check(&bytes);
    }

    #[test]
    fn bytes_changed_in_the_section_headers(changes in proptest::collection::vec((0..0x800_usize, any::<u8>()), 1..8)) {
        let mut bytes = LIBRARY.0.clone();
        let end = bytes.len();
        changes.iter().for_each(|(at, value)| bytes[end - 1 - at] = *value);
        check(&bytes);
    }

    #[test]
    fn bytes_changed_in_the_unwind_information(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..16)) {
        let (mut bytes, unwind) = LIBRARY.clone();
        changes.iter().for_each(|(at, value)| bytes[unwind.start + at % unwind.len()] = *value);
        check(&bytes);
    }

    #[test]
    fn instructions_that_nobody_wrote(instructions in proptest::collection::vec(any::<u8>(), 64)) {
        let (mut bytes, unwind) = LIBRARY.clone();
        let (start, end) = (unwind.start + 0x30, unwind.end.min(unwind.start + 0x30 + instructions.len()));
        bytes[start..end].copy_from_slice(&instructions[..end - start]);
        check(&bytes);
    }

    #[test]
    fn files_cut_short(end in any::<usize>()) {
        check(&LIBRARY.0[..end % LIBRARY.0.len()]);
    }
}

#[test]
fn a_file_that_is_cut_short_while_open_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut &file, &LIBRARY.0).unwrap();
    assert!(Table::of_file(&file).is_ok());
    file.set_len(LIBRARY.1.start as u64 + 10).unwrap();
    let _ = Table::of_file(&file);
    file.set_len(100).unwrap();
    assert!(Table::of_file(&file).is_err());
}
