//! What compilers and linkers make: realigned stacks, jump tables, start-up code, and code with frame pointers or without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_stacks::table::{FramePointer, Kind, Rule, Table};
use object::{Object, ObjectSection, ObjectSymbol};
use tempfile::TempDir;

const REALIGNED: &str = r#"
void use(void *, void *);
int realigned(int n) {
    int array[32] __attribute__((aligned(64)));
    use(array, __builtin_alloca(n));
    return array[n];
}
"#;

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int leaf(int *values, int n) { int sum = 0; while (n--) sum += values[n] * n; return sum; }
__attribute__((noinline)) int middle(int n) {
    if (n < 3) return n;
    int *values = malloc(n * sizeof(int));
    for (int i = 0; i < n; i++) values[i] = rand();
    int sum = leaf(values, n) + middle(n / 2);
    free(values);
    return sum;
}
int tail(int n) { return middle(n + 1); }
int main(int argc, char **argv) { printf("%d\n", tail(argc)); return middle(argc); }
"#;

const CPP: &str = r#"
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
struct Shape { virtual ~Shape() {} virtual int area(int) const = 0; };
struct Square : Shape { int area(int side) const override { if (side < 0) throw std::runtime_error("no"); return side * side; } };
int all(const std::map<std::string, Shape *> &shapes) {
    int sum = 0;
    for (auto &[name, shape] : shapes) try { sum += shape->area(name.size()); } catch (std::exception &e) { std::cout << e.what(); }
    return sum;
}
int main() { Square square; std::map<std::string, Shape *> shapes{{"one", &square}}; std::cout << all(shapes) << "\n"; }
"#;

struct Compiled {
    _directory: TempDir,
    path: PathBuf,
    table: Table,
}

fn compile(name: &str, source: &str, flags: &[&str]) -> Compiled {
    let directory = tempfile::tempdir().unwrap();
    let (input, path) = (directory.path().join(name), directory.path().join("out"));
    std::fs::write(&input, source).unwrap();
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    let output = Command::new(compiler).arg("-o").arg(&path).arg(&input).args(flags).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = Table::of_file(&File::open(&path).unwrap()).unwrap();
    Compiled { _directory: directory, path, table }
}

/// The address and size of a function or a section.
fn extent(path: &Path, name: &str) -> (u64, u64) {
    let bytes = std::fs::read(path).unwrap();
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    if let Some(section) = elf.section_by_name(name) {
        return (section.address(), section.size());
    }
    let symbol = elf.symbols().chain(elf.dynamic_symbols()).find(|symbol| symbol.name() == Ok(name)).expect(name);
    (symbol.address(), symbol.size())
}

fn rules(table: &Table, (address, size): (u64, u64)) -> Vec<Rule> {
    let mut rules: Vec<_> = (address..address + size).map(|address| table.rule_at(address)).collect();
    rules.dedup();
    rules
}

fn libc() -> PathBuf {
    let output = Command::new("gcc").arg("-print-file-name=libc.so.6").output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

#[test]
fn a_realigned_stack_is_found_again_through_its_frame_pointer() {
    let compiled = compile("realigned.c", REALIGNED, &["-O2", "-shared", "-fPIC"]);
    let rules = rules(&compiled.table, extent(&compiled.path, "realigned"));
    let realigned = |rule: &Rule| rule.kind() == Kind::DerefBp && rule.frame_pointer() == FramePointer::AtBp(0);
    assert!(rules.iter().any(realigned), "{rules:?}");
}

#[test]
fn the_linkers_jump_table_has_its_own_kind() {
    let compiled = compile("program.c", C, &["-O2", "-Wl,-z,lazy", "-fcf-protection=none"]);
    let (plt, _) = extent(&compiled.path, ".plt");
    assert_eq!(compiled.table.rule_at(plt + 16).kind(), Kind::Plt);
    assert_eq!(compiled.table.rule_at(plt).kind(), Kind::Sp);
}

#[test]
fn a_jump_table_for_branch_tracking_pushes_at_another_place() {
    let compiled = compile("program.c", C, &["-O2", "-Wl,-z,lazy,-z,ibtplt", "-fcf-protection=full"]);
    let (plt, _) = extent(&compiled.path, ".plt");
    let offsets = [16, 20, 25, 31, 32].map(|offset| compiled.table.rule_at(plt + offset).cfa_offset());
    assert_eq!(offsets, [8, 8, 16, 16, 8]);
}

#[test]
fn a_program_starts_at_an_end() {
    let compiled = compile("program.c", C, &["-O2"]);
    assert_eq!(rules(&compiled.table, extent(&compiled.path, "_start")), [Rule::END]);
    let main = compiled.table.rule_at(extent(&compiled.path, "main").0);
    assert_eq!(main, Rule::new(Kind::Sp, 8, FramePointer::Unchanged).unwrap());
}

#[test]
fn threads_start_at_an_end_and_signal_handlers_return_to_the_kernels_frame() {
    let bytes = std::fs::read(libc()).unwrap();
    let table = Table::of_bytes(&bytes).unwrap();
    assert!(rules(&table, extent(&libc(), "clone")).contains(&Rule::END));
    let sigreturn = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let offset = bytes.windows(sigreturn.len()).position(|bytes| bytes == sigreturn).unwrap() as u64;
    let segment =
        table.segments.iter().find(|segment| offset.wrapping_sub(segment.file_offset) < segment.size).unwrap();
    let address = offset - segment.file_offset + segment.address;
    assert_eq!(rules(&table, (address, 9)), [Rule::SIGNAL]);
    assert!(!table.trusts_frame_pointers);
}

#[test]
fn frame_pointers_are_trusted_where_all_code_was_built_with_them() {
    let check = |name: &str, source: &str, more: &[&str]| {
        let flags = [&["-fno-omit-frame-pointer"], more].concat();
        assert!(compile(name, source, &flags).table.trusts_frame_pointers, "{name} {flags:?}");
    };
    for optimization in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        check("program.c", C, &[optimization]);
        check("program.c", C, &[optimization, "-momit-leaf-frame-pointer", "-fPIC", "-shared"]);
    }
    check("program.c", C, &["-O2", "-g", "-no-pie", "-Wl,-z,lazy"]);
    check("program.cpp", CPP, &["-O2", "-mno-omit-leaf-frame-pointer"]);
    check("program.cpp", CPP, &["-O1", "-momit-leaf-frame-pointer", "-fPIC", "-shared"]);
    let realigned = compile("realigned.c", REALIGNED, &["-O2", "-shared", "-fPIC", "-fno-omit-frame-pointer"]);
    assert!(realigned.table.trusts_frame_pointers);
}

#[test]
fn frame_pointers_are_not_trusted_in_ordinary_code() {
    let check = |name: &str, source: &str, flags: &[&str]| {
        assert!(!compile(name, source, flags).table.trusts_frame_pointers, "{name} {flags:?}");
    };
    for optimization in ["-O1", "-O2", "-O3", "-Os"] {
        check("program.c", C, &[optimization]);
        check("program.c", C, &[optimization, "-fPIC", "-shared"]);
    }
    check("program.cpp", CPP, &["-O2"]);
    assert!(!Table::of_file(&File::open(libc()).unwrap()).unwrap().trusts_frame_pointers);
}

#[test]
fn one_function_without_a_frame_that_calls_is_enough_not_to_trust() {
    const ONE: &str =
        r#"__attribute__((noinline, optimize("omit-frame-pointer"))) int hidden(int n) { return tail(n) + 1; }"#;
    let flags = ["-O2", "-fno-omit-frame-pointer", "-shared", "-fPIC"];
    assert!(!compile("program.c", &format!("{C}\n{ONE}"), &flags).table.trusts_frame_pointers);
    const WITHOUT_UNWIND: &str =
        r#"__asm__(".text\nhidden: sub $8, %rsp\ncall tail@plt\ncall tail@plt\ncall tail@plt\nadd $8, %rsp\nret");"#;
    assert!(!compile("program.c", &format!("{C}\n{WITHOUT_UNWIND}"), &flags).table.trusts_frame_pointers);
}

#[test]
fn without_sections_the_rows_are_the_same() {
    let compiled = compile("program.cpp", CPP, &["-O2"]);
    let mut bytes = std::fs::read(&compiled.path).unwrap();
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    let stripped = Table::of_bytes(&bytes).unwrap();
    assert!(stripped.rows.len() > 100);
    assert_eq!(stripped.rows, compiled.table.rows);
}

#[test]
fn the_build_id_is_the_one_that_the_linker_was_told() {
    let compiled = compile("program.c", C, &["-Wl,--build-id=0x0123456789abcdef"]);
    assert_eq!(compiled.table.build_id, Some(vec![0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]));
    assert_eq!(compile("program.c", C, &["-Wl,--build-id=none"]).table.build_id, None);
}

#[test]
fn a_file_that_cannot_be_used_says_why() {
    let check = |bytes: &[u8], why: &str| {
        let error = format!("{:#}", Table::of_bytes(bytes).unwrap_err());
        assert!(error.contains(why), "{error}");
    };
    check(b"", "too short");
    check(&[b'#'; 100], "not a 64-bit little-endian ELF file");
    let compiled = compile("program.c", C, &[]);
    let bytes = std::fs::read(&compiled.path).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        bytes
    };
    check(&with(4, 1), "not a 64-bit little-endian ELF file");
    check(&with(18, 183), "its code is not for x86-64 (ELF machine 183)");
    check(&with(16, 1), "neither a program nor a shared library (ELF type 1)");
    check(&bytes[..100], "program headers are not there");
}
