//! Rows say what gimli's own evaluation of `.eh_frame` says, for every entry of real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, Encoding, EndianSlice, EvaluationResult, Format, FrameDescriptionEntry,
    LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
    Value,
};
use gpuwhy_stacks::table::{FramePointer, Kind, Rule, Table};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

const BP: Register = Register(6);
const SP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// Asked of the compiler, which knows where they are.
const LIBRARIES: [&str; 5] = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];
/// Looked for on the path; large, and by different compilers and linkers.
const PROGRAMS: [&str; 4] = ["node", "python3", "bash", "cargo"];

#[test]
fn the_rows_of_libraries_say_what_gimli_says() {
    let libraries: Vec<_> = LIBRARIES.iter().filter_map(|name| library(name)).collect();
    assert!(libraries.len() >= 3, "{libraries:?}");
    libraries.iter().for_each(|path| check(path));
}

#[test]
fn the_rows_of_each_python_say_what_gimli_says() {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    for version in std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten() {
        for file in std::fs::read_dir(version.path().join("lib")).into_iter().flatten().flatten() {
            let name = file.file_name().into_string().unwrap_or_default();
            if name.starts_with("libpython") && name.contains(".so.") {
                check(&file.path());
            }
        }
    }
}

#[test]
fn the_rows_of_programs_say_what_gimli_says() {
    check(&std::env::current_exe().unwrap());
    PROGRAMS.iter().filter_map(|name| program(name)).for_each(|path| check(&path));
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_elf = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(is_elf)
}

fn library(name: &str) -> Option<PathBuf> {
    let output = Command::new("gcc").arg(format!("-print-file-name={name}")).output().unwrap();
    let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    path.is_absolute().then_some(path)
}

fn check(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let table = Table::of_bytes(&bytes).unwrap();
    assert_eq!(table.build_id.as_deref(), elf.build_id().unwrap(), "{}", path.display());
    let Some(section) = elf.section_by_name(".eh_frame") else { return };
    let oracle = Oracle::new(section.data().unwrap(), section.address());
    let places = oracle.check(&table, path);
    println!("{}: {places} places, {} rows", path.display(), table.rows.len());
}

struct Oracle<'a> {
    section: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
}

impl<'a> Oracle<'a> {
    fn new(bytes: &'a [u8], address: u64) -> Self {
        let section = EhFrame::new(bytes, LittleEndian);
        Self { section, bases: BaseAddresses::default().set_eh_frame(address) }
    }

    fn entries(&self) -> Vec<FrameDescriptionEntry<Bytes<'a>>> {
        let mut found = Vec::new();
        let mut entries = self.section.entries(&self.bases);
        while let Some(entry) = entries.next().unwrap() {
            if let CieOrFde::Fde(partial) = entry {
                let entry = partial.parse(EhFrame::cie_from_offset).unwrap();
                found.extend((entry.len() > 0).then_some(entry));
            }
        }
        found.sort_by_key(FrameDescriptionEntry::initial_address);
        found
    }

    /// Entries that overlap say different things about the same place.
    fn check(&self, table: &Table, path: &Path) -> usize {
        let entries = self.entries();
        let mut context = UnwindContext::new();
        let (mut places, mut overlaps) = (0, 0);
        for (at, entry) in entries.iter().enumerate() {
            let begins_after = |next: &FrameDescriptionEntry<_>| next.initial_address() >= entry.end_address();
            let ends_before = |last: &FrameDescriptionEntry<_>| last.initial_address() < entry.initial_address();
            if !entries.get(at + 1).is_none_or(begins_after) || !(at == 0 || ends_before(&entries[at - 1])) {
                overlaps += 1;
                continue;
            }
            let mut rows = entry.rows(&self.section, &self.bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().unwrap() {
                let (start, end) = (row.start_address(), row.end_address().min(entry.end_address()));
                for address in [start, start + (end - start) / 2, end - 1] {
                    self.check_place(table.rule_at(address), row, address, path);
                    places += 1;
                }
            }
            let is_gap = entries.get(at + 1).is_none_or(|next| next.initial_address() > entry.end_address());
            assert!(!is_gap || table.rule_at(entry.end_address()) == Rule::NONE);
        }
        assert!(overlaps * 100 <= entries.len(), "{}: {overlaps} overlaps", path.display());
        places
    }

    fn check_place(&self, rule: Rule, row: &UnwindTableRow<usize>, address: u64, path: &Path) {
        let place = format!("{} at {address:#x}: {rule:?}, but {row:?}", path.display());
        let expected = self.caller(row, address);
        match (rule.kind(), expected) {
            (Kind::None, _) => assert!(!is_plain(row), "{place}"),
            (Kind::End, expected) => assert_eq!(expected, Expected::End, "{place}"),
            (_, Expected::Caller { cfa, ip, bp }) => {
                let caller = caller(rule, address);
                assert_eq!((caller.cfa, caller.ip), (cfa, ip), "{place}");
                match caller.bp {
                    Some(found) => assert_eq!(Some(found), bp, "{place}"),
                    None => assert!(!is_plain_bp(row), "{place}"),
                }
            }
            (_, other) => panic!("{place}: {other:?}"),
        }
    }

    fn caller(&self, row: &UnwindTableRow<usize>, address: u64) -> Expected {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                register_value(*register, address).wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None, address),
        };
        let value = |rule: RegisterRule<usize>, own: Register| match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => Some(register_value(own, address)),
            RegisterRule::Offset(offset) => Some(memory(cfa.wrapping_add_signed(offset))),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(register) => Some(register_value(register, address)),
            RegisterRule::Expression(expression) => Some(memory(self.evaluate(&expression, Some(cfa), address))),
            RegisterRule::ValExpression(expression) => Some(self.evaluate(&expression, Some(cfa), address)),
            other => panic!("{other:?}"),
        };
        let bp = value(row.register(BP).unwrap_or(RegisterRule::SameValue), BP);
        match row.register(RETURN_ADDRESS) {
            None => Expected::Nothing,
            Some(rule) => match value(rule, RETURN_ADDRESS) {
                None => Expected::End,
                Some(ip) => Expected::Caller { cfa, ip, bp },
            },
        }
    }

    fn evaluate(&self, expression: &UnwindExpression<usize>, initial: Option<u64>, address: u64) -> u64 {
        let encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: 8 };
        let mut evaluation = expression.get(&self.section).unwrap().evaluation(encoding);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(register_value(register, address))).unwrap()
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(memory(address))).unwrap()
                }
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result()[0].location {
            Location::Address { address } => address,
            ref other => panic!("{other:?}"),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Expected {
    Nothing,
    End,
    Caller { cfa: u64, ip: u64, bp: Option<u64> },
}

struct Caller {
    cfa: u64,
    ip: u64,
    bp: Option<u64>,
}

/// What the kernel side makes of a rule.
fn caller(rule: Rule, address: u64) -> Caller {
    let (sp, bp) = (register_value(SP, address), register_value(BP, address));
    if rule.kind() == Kind::Signal {
        return Caller { cfa: memory(sp + 160), ip: memory(sp + 168), bp: Some(memory(sp + 120)) };
    }
    let cfa = match rule.kind() {
        Kind::Sp => sp.wrapping_add_signed(rule.cfa_offset()),
        Kind::Bp => bp.wrapping_add_signed(rule.cfa_offset()),
        Kind::Plt => sp + 8 + if address & 15 >= 11 { 8 } else { 0 },
        Kind::DerefBp => memory(bp.wrapping_add_signed(rule.cfa_offset())),
        Kind::DerefSp => memory(sp.wrapping_add_signed(rule.cfa_offset())),
        other => panic!("{other:?}"),
    };
    let bp = match rule.frame_pointer() {
        FramePointer::Unchanged => Some(bp),
        FramePointer::AtCfa(offset) => Some(memory(cfa.wrapping_add_signed(offset))),
        FramePointer::AtBp(offset) => Some(memory(bp.wrapping_add_signed(offset))),
        FramePointer::Unknown => None,
    };
    Caller { cfa, ip: memory(cfa - 8), bp }
}

/// Registers and memory of a made-up machine in which no two values are alike.
fn register_value(register: Register, address: u64) -> u64 {
    match register {
        RETURN_ADDRESS => address,
        Register(number) => 0x7ffd_0000_0000 + u64::from(number) * 0x10_0000,
    }
}

fn memory(address: u64) -> u64 {
    (address ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether it is something that a row has to be able to say.
fn is_plain(row: &UnwindTableRow<usize>) -> bool {
    let fits = |offset: i64, units: i64| offset % 8 == 0 && (-units..units).contains(&(offset / 8));
    let is_plain_cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => [BP, SP].contains(register) && fits(*offset, 1 << 15),
        CfaRule::Expression(_) => false,
    };
    let is_plain_bp = match row.register(BP) {
        Some(RegisterRule::Offset(offset)) => fits(offset, 1 << 9),
        _ => true,
    };
    is_plain_cfa && is_plain_bp && row.register(RETURN_ADDRESS) == Some(RegisterRule::Offset(-8))
}

fn is_plain_bp(row: &UnwindTableRow<usize>) -> bool {
    matches!(row.register(BP), None | Some(RegisterRule::SameValue | RegisterRule::Offset(_)))
}
