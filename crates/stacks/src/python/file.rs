//! What the file of an interpreter exports.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader, Sym, SymbolTable};
use object::read::{ReadCache, ReadRef};

use super::parts::elsewhere;
use super::version::Version;

/// Addresses in the file's own numbering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    pub runtime: Option<Range<u64>>,
    pub code_type: Option<u64>,
    pub unicode_type: Option<u64>,
    pub bytes_type: Option<u64>,
    /// `Py_Version`, since 3.11.
    pub version: Option<u64>,
    pub eval: Vec<Range<u64>>,
    has_module_add_type: bool,
    has_iter_send: bool,
}

/// What a file claims to hold is read into memory: it must be there, compressed at most.
const MOST_BYTES: u64 = 8 << 30;
const MOST_COMPRESSION: u64 = 16;
const BLOCK: u64 = 512;

/// Longer lists of names are read one by one.
const MOST_NAME_BYTES: u64 = 256 << 20;

const RUNTIME: &[u8] = b"_PyRuntime";
const EVAL: &str = "_PyEval_EvalFrameDefault";

/// Where a file has `_PyRuntime`, in which every CPython since 3.7 keeps the state of its interpreters, their locks among
/// it. An address in the file's own numbering.
pub fn runtime(path: &Path) -> Result<Option<Range<u64>>> {
    let data = open(path)?;
    let file = parse(&data).with_context(|| format!("read {}", path.display()))?;
    let mut symbols = Symbols::default();
    if !may_hold_runtime(&file) {
        return Ok(None);
    }
    symbols.take_all(file.endian(), file.elf_dynamic_symbol_table());
    if symbols.runtime.is_none() {
        symbols.take_all(file.endian(), file.elf_symbol_table());
    }
    Ok(symbols.runtime)
}

/// Opens a file to be read piece by piece. It is not mapped: its owner may cut it short at any moment.
fn open(path: &Path) -> Result<ReadCache<File>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let metadata = file.metadata().with_context(|| format!("stat {}", path.display()))?;
    if metadata.len() > MOST_BYTES || metadata.len() > metadata.blocks() * BLOCK * MOST_COMPRESSION {
        bail!("{} is too large or full of holes", path.display());
    }
    Ok(ReadCache::new(file))
}

fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<ElfFile64<'data, Endianness, R>> {
    let file = ElfFile64::<Endianness, _>::parse(data).context("not a 64-bit ELF file")?;
    let machine = file.elf_header().e_machine(file.endian());
    if machine != elf::EM_X86_64 {
        bail!("its code is not for x86-64 (ELF machine {machine})");
    }
    Ok(file)
}

/// Names are read one by one, which takes long where there are many. Nearly no file has this one, which shows at once.
fn may_hold_runtime<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> bool {
    [file.elf_dynamic_symbol_table(), file.elf_symbol_table()].into_iter().any(|table| {
        let section = file.elf_section_table().section(table.string_section());
        let names = section.ok().filter(|names| names.sh_size.get(file.endian()) <= MOST_NAME_BYTES);
        let Some(names) = names else { return !table.is_empty() };
        let names = names.data(file.endian(), file.data()).unwrap_or_default();
        // A name may be the end of a longer one.
        names.split(|&byte| byte == 0).any(|name| name.ends_with(RUNTIME))
    })
}

impl Symbols {
    pub fn read(path: &Path) -> Result<Self> {
        Self::of(&open(path)?).with_context(|| format!("read {}", path.display()))
    }

    fn of<'data>(data: impl ReadRef<'data>) -> Result<Self> {
        let file = parse(data)?;
        let mut symbols = Self::default();
        if !may_hold_runtime(&file) {
            return Ok(symbols);
        }
        symbols.take_all(file.endian(), file.elf_dynamic_symbol_table());
        // An interpreter that is part of a program may export nothing, and parts of the evaluation loop never are.
        symbols.take_all(file.endian(), file.elf_symbol_table());
        if symbols.runtime.is_some() {
            let parts: Vec<_> = symbols.eval.iter().flat_map(|part| elsewhere(&file, part)).collect();
            parts.into_iter().for_each(|part| symbols.take_eval(part));
        }
        Ok(symbols)
    }

    /// The version, from functions of the stable interface that it was the first to have.
    pub fn version_by_functions(&self) -> Option<Version> {
        let minor = match (self.has_module_add_type, self.has_iter_send) {
            (true, true) => 10,
            (true, false) => 9,
            (false, _) => return None,
        };
        Some(Version { minor, micro: None })
    }

    fn take_all<'data, R: ReadRef<'data>>(
        &mut self,
        endian: Endianness,
        table: &SymbolTable<'data, FileHeader64<Endianness>, R>,
    ) {
        for symbol in table.iter().filter(|symbol| symbol.st_shndx(endian) != elf::SHN_UNDEF) {
            let Ok(name) = table.symbol_name(endian, symbol) else { continue };
            // Nearly all names are of no interest, and all that are begin alike.
            if name.starts_with(b"Py") || name.starts_with(b"_Py") {
                let start = symbol.st_value(endian);
                self.take(name, start..start.saturating_add(symbol.st_size(endian)));
            }
        }
    }

    fn take(&mut self, name: &[u8], range: Range<u64>) {
        let start = range.start;
        match name {
            RUNTIME => self.runtime = self.runtime.take().or(Some(range)),
            b"PyCode_Type" => self.code_type = self.code_type.or(Some(start)),
            b"PyUnicode_Type" => self.unicode_type = self.unicode_type.or(Some(start)),
            b"PyBytes_Type" => self.bytes_type = self.bytes_type.or(Some(start)),
            b"Py_Version" => self.version = self.version.or(Some(start)),
            b"PyModule_AddType" => self.has_module_add_type = true,
            b"PyIter_Send" => self.has_iter_send = true,
            name if is_eval(name) => self.take_eval(range),
            _ => {}
        }
    }

    fn take_eval(&mut self, range: Range<u64>) {
        let is_known = self.eval.iter().any(|known| known.start <= range.start && range.end <= known.end);
        if !range.is_empty() && !is_known {
            self.eval.push(range);
        }
    }
}

/// The evaluation loop, or a part of it such as `_PyEval_EvalFrameDefault.cold`.
fn is_eval(name: &[u8]) -> bool {
    name.strip_prefix(EVAL.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_has_no_interpreter() {
        assert_eq!(Symbols::read(Path::new("/proc/self/exe")).unwrap().runtime, None);
        assert_eq!(runtime(Path::new("/proc/self/exe")).unwrap(), None);
    }

    #[test]
    fn files_that_are_not_elf_or_full_of_holes_are_refused() {
        assert!(Symbols::of(&b"#!/bin/sh\n"[..]).is_err());
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let error = Symbols::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("too large or full of holes"), "{error}");
    }

    #[test]
    fn parts_of_the_evaluation_loop_belong_to_it_and_look_alikes_do_not() {
        assert!(is_eval(b"_PyEval_EvalFrameDefault"));
        assert!(is_eval(b"_PyEval_EvalFrameDefault.cold"));
        assert!(!is_eval(b"_PyEval_EvalFrameDefaultX"));
        assert!(!is_eval(b"_PyEval_EvalFrame"));
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_file_never_panics_the_reader(at in 0usize..4096, value: u8) {
            let mut data = std::fs::read("/bin/true").unwrap();
            if let Some(byte) = data.get_mut(at) { *byte = value; }
            let _ = Symbols::of(data.as_slice());
        }
    }
}
