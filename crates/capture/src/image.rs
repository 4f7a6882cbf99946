//! A file that processes map as code: which traced functions it exports, and where to probe them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use memmap2::Mmap;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Sym, SymbolTable};
use object::{Endianness, Object, ObjectSection, elf};

use crate::apis::{LIBRARIES, Library};
use crate::site;
use crate::wire::rows;

type Elf<'data> = ElfFile64<'data, Endianness>;
type Symbols<'data> = SymbolTable<'data, FileHeader64<Endianness>>;

/// What a file means to the tracer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The library the file is a copy of.
    pub library: Option<&'static str>,
    /// One per function and offset, aliases merged.
    pub probes: Vec<Probe>,
    /// Whether the file carries a CUDA runtime: a copy of libcudart, or a program with a static one.
    pub has_runtime: bool,
}

/// One place to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Position of the function's row in the call table.
    pub row: usize,
    pub symbol: String,
    pub file_offset: u64,
    /// Whether the kernel emulates the instruction there, which is ten times cheaper.
    pub emulated: bool,
}

impl Image {
    /// Reads a file. `Ok` with no library for any well-formed file that is none of ours.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        if file.metadata().with_context(|| format!("stat {}", path.display()))?.len() == 0 {
            bail!("{} is empty", path.display());
        }
        // SAFETY: the mapping is read-only and private; a file truncated meanwhile raises SIGBUS, which libraries in
        // use do not do (they are replaced by rename).
        let data = unsafe { Mmap::map(&file) }.with_context(|| format!("map {}", path.display()))?;
        Self::parse(&data).with_context(|| format!("read {}", path.display()))
    }

    pub fn parse(data: &[u8]) -> Result<Self> {
        let elf = Elf::parse(data).context("not a 64-bit ELF file")?;
        let machine = elf.elf_header().e_machine(elf.endian());
        if machine != elf::EM_X86_64 {
            bail!("its code is not for x86-64 (ELF machine {machine})");
        }
        let library = LIBRARIES.iter().find(|library| exports_all(&elf, library.markers));
        Ok(Self {
            library: library.map(|library| library.name),
            probes: library.map(|library| probes(&elf, data, library)).unwrap_or_default(),
            has_runtime: Table::EXPORTED.defines(&elf, RUNTIME_MARKER) || Table::LOCAL.defines(&elf, RUNTIME_MARKER),
        })
    }
}

/// Whoever carries this function carries a CUDA runtime.
const RUNTIME_MARKER: &str = "cudaLaunchKernel";

fn exports_all(elf: &Elf, markers: &[&str]) -> bool {
    !markers.is_empty() && markers.iter().all(|marker| Table::EXPORTED.defines(elf, marker))
}

/// A symbol table and the section with its names.
struct Table {
    symbols: for<'a, 'data> fn(&'a Elf<'data>) -> &'a Symbols<'data>,
    names: &'static str,
}

impl Table {
    const EXPORTED: Self = Self { symbols: |elf| elf.elf_dynamic_symbol_table(), names: ".dynstr" };
    const LOCAL: Self = Self { symbols: |elf| elf.elf_symbol_table(), names: ".strtab" };

    fn defines(&self, elf: &Elf, name: &str) -> bool {
        self.mentions(elf, name) && self.functions(elf).any(|(defined, _)| defined == name)
    }

    /// A fast no for the thousands of files that have nothing to do with us. Linkers let a name share the end of a
    /// longer one (`__cudaLaunchKernel`), so only its end is looked for.
    fn mentions(&self, elf: &Elf, name: &str) -> bool {
        let names = elf.section_by_name(self.names).and_then(|section| section.data().ok()).unwrap_or_default();
        memchr::memmem::find(names, &[name.as_bytes(), b"\0"].concat()).is_some()
    }

    /// Names and addresses of the functions that the table defines.
    fn functions<'a, 'data>(&self, elf: &'a Elf<'data>) -> impl Iterator<Item = (&'data str, u64)> + 'a {
        let endian = elf.endian();
        let symbols = (self.symbols)(elf);
        symbols.iter().filter_map(move |symbol| {
            let is_function = symbol.st_type() == elf::STT_FUNC && symbol.st_shndx(endian) != elf::SHN_UNDEF;
            let name = symbols.symbol_name(endian, symbol).ok()?;
            is_function.then_some((std::str::from_utf8(name).ok()?, symbol.st_value(endian)))
        })
    }
}

/// Which rows a symbol stands for.
fn rows_by_symbol() -> &'static HashMap<&'static str, usize> {
    static BY_SYMBOL: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    BY_SYMBOL.get_or_init(|| {
        rows().enumerate().flat_map(|(index, row)| row.api.symbols.iter().map(move |&symbol| (symbol, index))).collect()
    })
}

fn probes(elf: &Elf, data: &[u8], library: &Library) -> Vec<Probe> {
    // Aliases share an address: the first name wins, each offset is probed once.
    let mut by_offset = BTreeMap::new();
    for (name, address) in Table::EXPORTED.functions(elf) {
        let Some(&row) = rows_by_symbol().get(name) else { continue };
        if !library.apis.iter().any(|api| api.symbols.contains(&name)) {
            continue;
        }
        let Some(entry) = file_offset(elf, address) else { continue };
        let code = data.get(entry as usize..).unwrap_or_default();
        let site = site::choose(code);
        let probe = Probe { row, symbol: name.to_owned(), file_offset: entry + site.offset, emulated: site.emulated };
        by_offset.entry(probe.file_offset).or_insert(probe);
    }
    by_offset.into_values().collect()
}

fn file_offset(elf: &Elf, address: u64) -> Option<u64> {
    let endian = elf.endian();
    elf.elf_program_headers().iter().find_map(|segment| {
        let start = segment.p_vaddr(endian);
        let is_code = segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian).contains(elf::PF_X);
        let inside = (start..start + segment.p_filesz(endian)).contains(&address);
        (is_code && inside).then(|| address - start + segment.p_offset(endian))
    })
}

/// Where in a file's bytes a function of the running program lies, from `/proc/self/maps`.
pub fn file_offset_of(address: usize) -> Result<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("read /proc/self/maps")?;
    maps.lines()
        .find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let start = usize::from_str_radix(start, 16).ok()?;
            let end = usize::from_str_radix(end, 16).ok()?;
            let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
            (start..end).contains(&address).then(|| offset + (address - start) as u64)
        })
        .context("the function is not mapped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_elf_are_refused() {
        assert!(Image::parse(b"").is_err());
        assert!(Image::parse(b"#!/bin/sh\n").is_err());
        assert!(Image::parse(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0]).is_err());
    }

    #[test]
    fn an_ordinary_program_is_read_and_has_nothing_to_probe() {
        let image = Image::read(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(image.library, None);
        assert!(image.probes.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_file_never_panics_the_reader(at in 0usize..4096, value: u8) {
            let mut data = std::fs::read("/bin/true").unwrap();
            if let Some(byte) = data.get_mut(at) { *byte = value; }
            let _ = Image::parse(&data);
        }
    }
}
