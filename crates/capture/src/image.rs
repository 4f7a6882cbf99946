//! A file that processes map as code: which traced functions it exports, and where to probe them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use gpuwhy_apis::{LIBRARIES, Library, rows};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Sym, SymbolTable};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, Object, ObjectSection, elf};

use crate::site;

type Elf<'data, R> = ElfFile64<'data, Endianness, R>;
type Symbols<'data, R> = SymbolTable<'data, FileHeader64<Endianness>, R>;

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
    /// Reads a file. `Ok` with no library for any well-formed file that is none of ours. The file is not mapped: its
    /// owner may cut it short at any moment.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let metadata = file.metadata().with_context(|| format!("stat {}", path.display()))?;
        if metadata.len() == 0 {
            bail!("{} is empty", path.display());
        }
        if metadata.len() > MOST_BYTES || metadata.len() > metadata.blocks() * BLOCK * MOST_COMPRESSION {
            bail!("{} is too large or full of holes", path.display());
        }
        Self::parse(&ReadCache::new(file)).with_context(|| format!("read {}", path.display()))
    }

    fn parse<'data>(data: impl ReadRef<'data>) -> Result<Self> {
        let elf = Elf::parse(data).context("not a 64-bit ELF file")?;
        let machine = elf.elf_header().e_machine(elf.endian());
        if machine != elf::EM_X86_64 {
            bail!("its code is not for x86-64 (ELF machine {machine})");
        }
        let defines = |name| Table::Exported.defines(&elf, name) || Table::Local.defines(&elf, name);
        let library = LIBRARIES.iter().find(|library| exports_all(&elf, library.markers));
        Ok(Self {
            library: library.map(|library| library.name),
            probes: library.map(|library| probes(&elf, data, library)).unwrap_or_default(),
            has_runtime: LIBRARIES.iter().filter_map(|library| library.linked_in).any(defines),
        })
    }
}

/// The dynamic loader that a program asks for; none for a library, a program without one, and anything else.
pub fn interpreter(path: &Path) -> Option<PathBuf> {
    let file = ReadCache::new(File::open(path).ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&file).ok()?;
    let endian = elf.endian();
    let name = elf.elf_program_headers().iter().find_map(|header| header.interpreter(endian, &file).ok().flatten())?;
    Some(PathBuf::from(std::str::from_utf8(name).ok()?))
}

/// What a file claims to hold is read into memory: it must be there, compressed at most.
const MOST_BYTES: u64 = 8 << 30;
const MOST_COMPRESSION: u64 = 16;
const BLOCK: u64 = 512;

fn exports_all<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, markers: &[&str]) -> bool {
    !markers.is_empty() && markers.iter().all(|marker| Table::Exported.defines(elf, marker))
}

/// A symbol table.
#[derive(Clone, Copy)]
enum Table {
    Exported,
    Local,
}

impl Table {
    fn symbols<'a, 'data, R: ReadRef<'data>>(self, elf: &'a Elf<'data, R>) -> &'a Symbols<'data, R> {
        match self {
            Self::Exported => elf.elf_dynamic_symbol_table(),
            Self::Local => elf.elf_symbol_table(),
        }
    }

    fn defines<'data, R: ReadRef<'data>>(self, elf: &Elf<'data, R>, name: &str) -> bool {
        self.mentions(elf, name) && self.functions(elf).any(|(defined, _)| defined == name)
    }

    /// A fast no for the thousands of files that have nothing to do with us. Linkers let a name share the end of a
    /// longer one (`__cudaLaunchKernel`), so only its end is looked for.
    fn mentions<'data, R: ReadRef<'data>>(self, elf: &Elf<'data, R>, name: &str) -> bool {
        let section = match self {
            Self::Exported => ".dynstr",
            Self::Local => ".strtab",
        };
        let names = elf.section_by_name(section).and_then(|section| section.data().ok()).unwrap_or_default();
        memchr::memmem::find(names, &[name.as_bytes(), b"\0"].concat()).is_some()
    }

    /// Names and addresses of the functions that the table defines.
    fn functions<'a, 'data, R: ReadRef<'data>>(
        self,
        elf: &'a Elf<'data, R>,
    ) -> impl Iterator<Item = (&'data str, u64)> + use<'a, 'data, R> {
        let endian = elf.endian();
        let symbols = self.symbols(elf);
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

fn probes<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, data: R, library: &Library) -> Vec<Probe> {
    // Aliases share an address: the first name wins, each offset is probed once.
    let mut by_offset = BTreeMap::new();
    for (name, address) in Table::Exported.functions(elf) {
        let Some(&row) = rows_by_symbol().get(name) else { continue };
        if !library.apis.iter().any(|api| api.symbols.contains(&name)) {
            continue;
        }
        let Some(entry) = file_offset(elf, address) else { continue };
        let site = site::choose(data.read_bytes_at(entry, site::REACH as u64).unwrap_or_default());
        let probe = Probe { row, symbol: name.to_owned(), file_offset: entry + site.offset, emulated: site.emulated };
        by_offset.entry(probe.file_offset).or_insert(probe);
    }
    by_offset.into_values().collect()
}

fn file_offset<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, address: u64) -> Option<u64> {
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
        assert!(Image::parse(&b""[..]).is_err());
        assert!(Image::parse(&b"#!/bin/sh\n"[..]).is_err());
        assert!(Image::parse(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0][..]).is_err());
    }

    #[test]
    fn an_ordinary_program_is_read_and_has_nothing_to_probe() {
        let image = Image::read(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(image.library, None);
        assert!(image.probes.is_empty());
    }

    #[test]
    fn a_file_that_claims_more_than_it_has_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let error = Image::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("too large or full of holes"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_file_never_panics_the_reader(at in 0usize..4096, value: u8) {
            let mut data = std::fs::read("/bin/true").unwrap();
            if let Some(byte) = data.get_mut(at) { *byte = value; }
            let _ = Image::parse(data.as_slice());
        }
    }
}
