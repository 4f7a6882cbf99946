//! The sections of an ELF file, read piece by piece and never mapped.
//!
//! The file belongs to somebody else, who may cut it short at any time: a read of what is gone fails, whereas a look at a
//! mapping of it would kill us. Nothing the file claims is believed before it is compared with its real length.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};
use object::elf::{
    ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, NT_GNU_BUILD_ID, SHF_COMPRESSED, SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE,
};
use object::read::{CompressedData, CompressionFormat};

const HEADER_SIZE: usize = 64;
const SECTION_HEADER_SIZE: usize = 64;
const COMPRESSION_HEADER_SIZE: usize = 24;

/// Section names take a few hundred bytes, notes a few dozen.
const SMALL_SECTION_LIMIT: u64 = 1 << 20;

/// Files have a handful of sections with notes.
const MOST_NOTES: usize = 32;

#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    pub kind: u32,
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    /// The index of the section that this one belongs together with.
    pub link: u32,
}

impl Section {
    pub fn has_bytes(&self) -> bool {
        self.kind != SHT_NOBITS.0 && self.size > 0
    }

    pub fn is_code(&self) -> bool {
        self.flags & SHF_EXECINSTR.0 != 0
    }

    fn is_compressed(&self) -> bool {
        self.flags & SHF_COMPRESSED.0 != 0
    }
}

/// The sections of a 64-bit little-endian ELF file, the only kind there is on the machines we run on.
pub fn sections(file: &File) -> Result<Vec<Section>> {
    let mut header = [0; HEADER_SIZE];
    file.read_exact_at(&mut header, 0).context("read the ELF header")?;
    ensure!(header.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let table_offset = u64_at(&header, 40);
    let count = usize::from(u16_at(&header, 60));
    let names_index = usize::from(u16_at(&header, 62));
    ensure!(usize::from(u16_at(&header, 58)) == SECTION_HEADER_SIZE || count == 0, "odd section headers");

    let table = bytes(file, table_offset, (count * SECTION_HEADER_SIZE) as u64).context("read the section headers")?;
    let mut sections: Vec<_> = table.as_chunks::<SECTION_HEADER_SIZE>().0.iter().map(unnamed).collect();
    if let Some(names) = sections.get(names_index).filter(|names| names.has_bytes()) {
        ensure!(names.size <= SMALL_SECTION_LIMIT, "the section names are too long");
        let names = bytes(file, names.offset, names.size).context("read the section names")?;
        for (section, header) in sections.iter_mut().zip(table.as_chunks::<SECTION_HEADER_SIZE>().0) {
            section.name = text_at(&names, u32_at(header, 0) as usize);
        }
    }
    Ok(sections)
}

/// The bytes of a section, decompressed, if there are at most so many.
pub fn contents(file: &File, section: &Section, limit: u64) -> Result<Vec<u8>> {
    ensure!(section.has_bytes(), "{} is empty", section.name);
    ensure!(section.size <= limit, "{} has {} bytes, more than {limit}", section.name, section.size);
    let raw = bytes(file, section.offset, section.size).with_context(|| format!("read {}", section.name))?;
    if !section.is_compressed() {
        return Ok(raw);
    }
    ensure!(raw.len() >= COMPRESSION_HEADER_SIZE, "{} is too short", section.name);
    let size = u64_at(&raw, 8);
    ensure!(size <= limit, "{} has {size} bytes, more than {limit}", section.name);
    let format = match u32_at(&raw, 0) {
        kind if kind == ELFCOMPRESS_ZLIB.0 => CompressionFormat::Zlib,
        kind if kind == ELFCOMPRESS_ZSTD.0 => CompressionFormat::Zstandard,
        kind => bail!("{} is compressed in an unknown way ({kind})", section.name),
    };
    // Whatever the bytes expand to, no more is written than what the header claims.
    let data = CompressedData { format, data: &raw[COMPRESSION_HEADER_SIZE..], uncompressed_size: size };
    Ok(data.decompress().with_context(|| format!("decompress {}", section.name))?.into_owned())
}

/// How many bytes a section has once it is decompressed, as far as it says.
pub fn full_size(file: &File, section: &Section) -> u64 {
    let mut header = [0; COMPRESSION_HEADER_SIZE];
    if section.is_compressed() && file.read_exact_at(&mut header, section.offset).is_ok() {
        u64_at(&header, 8)
    } else {
        section.size
    }
}

/// What the linker wrote into the file to tell it from all others.
pub fn build_id(file: &File, sections: &[Section]) -> Option<Vec<u8>> {
    let notes = sections.iter().filter(|section| section.kind == SHT_NOTE.0).take(MOST_NOTES);
    notes
        .filter_map(|section| contents(file, section, SMALL_SECTION_LIMIT).ok())
        .find_map(|notes| build_id_note(&notes))
}

fn build_id_note(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let name_size = u32_at(header, 0) as usize;
        let (name, rest) = rest.split_at_checked(name_size.next_multiple_of(4))?;
        let id_size = u32_at(header, 4) as usize;
        let id = rest.get(..id_size)?;
        if name == b"GNU\0" && u32_at(header, 8) == NT_GNU_BUILD_ID.0 && !id.is_empty() {
            return Some(id.to_vec());
        }
        notes = rest.get(id_size.next_multiple_of(4)..)?;
    }
}

/// The name and the checksum of the file that the debug information was moved to.
pub fn debug_link(file: &File, sections: &[Section]) -> Option<(String, u32)> {
    let section = sections.iter().find(|section| section.name == ".gnu_debuglink")?;
    let link = contents(file, section, SMALL_SECTION_LIMIT).ok()?;
    let end = link.iter().position(|byte| *byte == 0)?;
    let name = String::from_utf8(link[..end].to_vec()).ok().filter(|name| !name.is_empty() && !name.contains('/'))?;
    let checksum = link.get((end + 1).next_multiple_of(4)..)?.get(..4)?;
    Some((name, u32_at(checksum, 0)))
}

fn bytes(file: &File, offset: u64, size: u64) -> Result<Vec<u8>> {
    let length = file.metadata()?.len();
    ensure!(offset.checked_add(size).is_some_and(|end| end <= length), "it lies outside of the file");
    let mut bytes = vec![0; usize::try_from(size)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn unnamed(header: &[u8; SECTION_HEADER_SIZE]) -> Section {
    Section {
        name: String::new(),
        kind: u32_at(header, 4),
        flags: u64_at(header, 8),
        address: u64_at(header, 16),
        offset: u64_at(header, 24),
        size: u64_at(header, 32),
        link: u32_at(header, 40),
    }
}

fn text_at(bytes: &[u8], start: usize) -> String {
    let text = bytes.get(start..).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end.min(64)]).into_owned()
}

pub fn u16_at(bytes: &[u8], start: usize) -> u16 {
    u16::from_le_bytes([bytes[start], bytes[start + 1]])
}

pub fn u32_at(bytes: &[u8], start: usize) -> u32 {
    u32::from(u16_at(bytes, start)) | u32::from(u16_at(bytes, start + 2)) << 16
}

pub fn u64_at(bytes: &[u8], start: usize) -> u64 {
    u64::from(u32_at(bytes, start)) | u64::from(u32_at(bytes, start + 4)) << 32
}
