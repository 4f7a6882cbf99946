//! Our own copy of a file's debug information, as an ELF file in memory that nobody else can change.
//!
//! blazesym maps what it reads. A mapping of a file that its owner cuts short kills the reader (SIGBUS), and ownership
//! tells nothing: in a container everybody may be root. So a file is only ever read, and what blazesym gets to map is a
//! sealed memory file with the sections it needs. That is also far less than the file: most of a CUDA library is code.
//! Compressed sections are decompressed on the way, with a bound.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use anyhow::{Context, Result, ensure};
use object::elf::{SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, STT_FUNC};

use super::elf::{self, Section};

/// What it takes to tell lines and inlined functions.
const DEBUG_SECTIONS: [&str; 11] = [
    ".debug_abbrev",
    ".debug_addr",
    ".debug_aranges",
    ".debug_info",
    ".debug_line",
    ".debug_line_str",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_str",
    ".debug_str_offsets",
    ".debug_types",
];

/// How many sections of code are told apart. Programs have a handful.
const MOST_CODE_SECTIONS: usize = 64;

const SYMBOL_SIZE: usize = 24;
const HEADER_SIZE: u64 = 64;
const SECTION_HEADER_SIZE: u16 = 64;
const ALIGNMENT: usize = 16;

/// A file together with its sections.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub file: &'a File,
    pub sections: &'a [Section],
}

impl<'a> Source<'a> {
    pub fn section(self, name: &str) -> Option<&'a Section> {
        self.sections.iter().find(|section| section.name == name && section.has_bytes())
    }
}

/// An ELF file in memory.
pub struct Image {
    pub file: File,
    pub size: u64,
}

/// The source that has debug information, if one has.
pub fn debug_source<'a>(sources: &[Source<'a>]) -> Option<Source<'a>> {
    sources.iter().copied().find(|source| source.section(".debug_info").is_some())
}

/// The debug information of a source, if it has no more than `limit` bytes.
pub fn build(source: Source<'_>, limit: u64) -> Result<Image> {
    let sections = DEBUG_SECTIONS.iter().filter_map(|name| source.section(name)).collect::<Vec<_>>();
    let size = sections.iter().fold(0_u64, |sum, section| sum.saturating_add(elf::full_size(source.file, section)));
    ensure!(size <= limit, "its debug information has {size} bytes, more than {limit}");
    let mut writer = Writer::new(limit)?;
    writer.add_nameless_code(source)?;
    for section in sections {
        let bytes = elf::contents(source.file, section, writer.left())?;
        writer.add(&section.name, SHT_PROGBITS.0, 0, &bytes)?;
    }
    writer.finish()
}

struct Writer {
    file: File,
    position: u64,
    limit: u64,
    /// The headers of sections, the first of which stands for none.
    headers: Vec<u8>,
    names: Vec<u8>,
}

impl Writer {
    fn new(limit: u64) -> Result<Self> {
        // SAFETY: the name is a string that outlives the call.
        let descriptor =
            unsafe { libc::memfd_create(c"symbols".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        ensure!(descriptor >= 0, "create a memory file: {}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made this descriptor for us.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let mut writer =
            Self { file, position: 0, limit, headers: vec![0; SECTION_HEADER_SIZE.into()], names: vec![0] };
        writer.write(&[0; HEADER_SIZE as usize])?;
        Ok(writer)
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.position)
    }

    /// Adds a function without a name for each section of code: blazesym tells lines only where there is a function, and
    /// not every function is in the debug information.
    fn add_nameless_code(&mut self, source: Source<'_>) -> Result<()> {
        let code = source.sections.iter().filter(|section| section.is_code());
        let mut symbols = vec![0; SYMBOL_SIZE];
        for (section, _) in code.zip(0..MOST_CODE_SECTIONS) {
            symbols.extend([0, 0, 0, 0, STT_FUNC.0, 0, 1, 0]);
            symbols.extend(section.address.to_le_bytes());
            symbols.extend(section.size.min(u64::MAX - section.address).to_le_bytes());
        }
        self.add(".symtab", SHT_SYMTAB.0, 2, &symbols)?;
        self.add(".strtab", SHT_STRTAB.0, 0, &[0])
    }

    fn add(&mut self, name: &str, kind: u32, link: u32, bytes: &[u8]) -> Result<()> {
        let name_offset = self.names.len() as u32;
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
        let entry_size = if link == 0 { 0 } else { SYMBOL_SIZE as u64 };
        self.push_header(name_offset, kind, link, bytes.len() as u64, entry_size);
        self.write(bytes)
    }

    /// Describes the section that is written next.
    fn push_header(&mut self, name: u32, kind: u32, link: u32, size: u64, entry_size: u64) {
        let header = &mut self.headers;
        header.extend(name.to_le_bytes());
        header.extend(kind.to_le_bytes());
        header.extend([0; 16]);
        header.extend(self.position.to_le_bytes());
        header.extend(size.to_le_bytes());
        header.extend(link.to_le_bytes());
        header.extend([0; 4]);
        header.extend((ALIGNMENT as u64).to_le_bytes());
        header.extend(entry_size.to_le_bytes());
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let padding = bytes.len().next_multiple_of(ALIGNMENT) - bytes.len();
        self.file.write_all(bytes).context("write to a memory file")?;
        self.file.write_all(&[0; ALIGNMENT][..padding]).context("write to a memory file")?;
        self.position += (bytes.len() + padding) as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<Image> {
        let names_index = (self.headers.len() / usize::from(SECTION_HEADER_SIZE)) as u16;
        let mut names = std::mem::take(&mut self.names);
        let name_offset = names.len() as u32;
        names.extend(b".shstrtab\0");
        self.push_header(name_offset, SHT_STRTAB.0, 0, names.len() as u64, 0);
        self.write(&names)?;
        let table_offset = self.position;
        let headers = std::mem::take(&mut self.headers);
        self.write(&headers)?;
        write_header(&self.file, table_offset, names_index)?;
        seal(&self.file)?;
        Ok(Image { file: self.file, size: self.position })
    }
}

fn write_header(file: &File, table_offset: u64, names_index: u16) -> Result<()> {
    const DYNAMIC: u16 = 3;
    const X86_64: u16 = 62;
    let mut header = Vec::with_capacity(HEADER_SIZE as usize);
    header.extend(b"\x7fELF\x02\x01\x01");
    header.extend([0; 9]);
    header.extend(DYNAMIC.to_le_bytes());
    header.extend(X86_64.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    header.extend([0; 16]);
    header.extend(table_offset.to_le_bytes());
    header.extend([0; 4]);
    for field in [HEADER_SIZE as u16, 56, 0, SECTION_HEADER_SIZE, names_index + 1, names_index] {
        header.extend(field.to_le_bytes());
    }
    std::os::unix::fs::FileExt::write_all_at(file, &header, 0).context("write to a memory file")
}

fn seal(file: &File) -> Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open, and the call takes a number.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    ensure!(result == 0, "seal a memory file: {}", std::io::Error::last_os_error());
    Ok(())
}
