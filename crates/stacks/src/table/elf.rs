//! The few things of an ELF file that matter here, read piece by piece and without trust.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use object::elf;

use super::Segment;

/// Something that holds the bytes of a file.
pub trait Source {
    fn size(&self) -> u64;
    /// Fills `into` with the bytes at an offset, or says that they are not there.
    fn fill(&self, offset: u64, into: &mut [u8]) -> bool;
}

impl Source for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn fill(&self, offset: u64, into: &mut [u8]) -> bool {
        self.read_exact_at(into, offset).is_ok()
    }
}

impl Source for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, offset: u64, into: &mut [u8]) -> bool {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = offset.checked_add(into.len()).and_then(|end| self.get(offset..end));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

pub struct Image {
    pub segments: Vec<Segment>,
    /// Sections with code, except those that only the start and the end of the program run through. Empty when the file
    /// does not say where its sections are.
    pub code: Vec<Segment>,
    pub unwind: Unwind,
    pub build_id: Option<Vec<u8>>,
}

/// The contents of `.eh_frame`; empty when there is none.
#[derive(Default)]
pub struct Unwind {
    pub address: u64,
    pub bytes: Vec<u8>,
    /// Nobody says where it ends, so a length of zero does.
    pub ends_at_zero: bool,
}

/// More than any real file has: what a file claims beyond it is not believed, however large the file is.
const MOST_UNWIND_BYTES: u64 = 1 << 28;
const MOST_NAME_BYTES: u64 = 1 << 24;
const MOST_NOTE_BYTES: u64 = 1 << 16;
const MOST_NOTES: usize = 16;
const MOST_SEGMENTS: usize = 64;

impl Image {
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Self> {
        let header = Header::read(source)?;
        let programs = programs(source, &header)?;
        let segments = code_segments(&programs)?;
        let sections = sections(source, &header);
        let is_code = |section: &&Section| section.is_code() && !START_AND_END.contains(&section.name.as_slice());
        let code = sections.iter().filter(is_code).map(|section| section.bytes).collect();
        let unwind = unwind_of_section(source, &sections)?.or_else(|| unwind_of_program(source, &programs));
        Ok(Self { segments, code, unwind: unwind.unwrap_or_default(), build_id: build_id(source, &programs) })
    }
}

/// Where the code lies, without reading anything else.
pub fn segments(source: &(impl Source + ?Sized)) -> Result<Vec<Segment>> {
    code_segments(&programs(source, &Header::read(source)?)?)
}

fn code_segments(programs: &[Program]) -> Result<Vec<Segment>> {
    let is_code = |program: &&Program| program.is_loaded() && program.flags & elf::PF_X.0 != 0;
    let segments: Vec<_> = programs.iter().filter(is_code).map(|program| program.bytes).collect();
    if segments.len() > MOST_SEGMENTS {
        bail!("it has {} executable segments", segments.len());
    }
    Ok(segments)
}

/// They are assembled from pieces that have no unwind information, and call nothing that takes time.
const START_AND_END: [&[u8]; 2] = [b".init", b".fini"];

struct Header {
    programs: Range<u64>,
    sections: Range<u64>,
    names: usize,
}

const HEADER_BYTES: u64 = 64;
const PROGRAM_BYTES: u64 = 56;
const SECTION_BYTES: u64 = 64;

impl Header {
    fn read(source: &(impl Source + ?Sized)) -> Result<Self> {
        let bytes = read(source, 0, HEADER_BYTES, HEADER_BYTES).context("it is too short for an ELF file")?;
        let ident = [elf::ELFCLASS64.0, elf::ELFDATA2LSB.0];
        if !bytes.starts_with(&elf::ELFMAG) || bytes[4..6] != ident {
            bail!("not a 64-bit little-endian ELF file");
        }
        let half = |at| u64::from(u16_at(&bytes, at));
        let (kind, machine) = (u16_at(&bytes, 16), u16_at(&bytes, 18));
        if machine != elf::EM_X86_64.0 {
            bail!("its code is not for x86-64 (ELF machine {machine})");
        }
        if kind != elf::ET_EXEC.0 && kind != elf::ET_DYN.0 {
            bail!("neither a program nor a shared library (ELF type {kind})");
        }
        let programs = table(u64_at(&bytes, 32), half(54), half(56), PROGRAM_BYTES);
        let sections = table(u64_at(&bytes, 40), half(58), half(60), SECTION_BYTES);
        Ok(Self { programs, sections, names: usize::from(u16_at(&bytes, 62)) })
    }
}

/// Empty when the entries are not of the size that they have to be.
fn table(offset: u64, entry_bytes: u64, count: u64, expected_bytes: u64) -> Range<u64> {
    let count = if entry_bytes == expected_bytes { count } else { 0 };
    offset..offset.saturating_add(count * expected_bytes)
}

struct Program {
    kind: u32,
    flags: u32,
    bytes: Segment,
}

impl Program {
    fn is_loaded(&self) -> bool {
        self.kind == elf::PT_LOAD.0
    }
}

fn programs(source: &(impl Source + ?Sized), header: &Header) -> Result<Vec<Program>> {
    let Range { start, end } = header.programs;
    let bytes = read(source, start, end - start, u64::MAX).context("its program headers are not there")?;
    let program = |entry: &[u8]| Program {
        kind: u32_at(entry, 0),
        flags: u32_at(entry, 4),
        bytes: Segment { file_offset: u64_at(entry, 8), address: u64_at(entry, 16), size: u64_at(entry, 32) },
    };
    Ok(bytes.chunks_exact(PROGRAM_BYTES as usize).map(program).collect())
}

struct Section {
    name: Vec<u8>,
    kind: u32,
    flags: u64,
    bytes: Segment,
}

impl Section {
    fn is_code(&self) -> bool {
        self.kind != elf::SHT_NOBITS.0 && self.flags & elf::SHF_EXECINSTR.0 != 0
    }
}

/// The loader needs no sections, so a file without any, or with damaged ones, is a file that has none.
fn sections(source: &(impl Source + ?Sized), header: &Header) -> Vec<Section> {
    let Range { start, end } = header.sections;
    let bytes = read(source, start, end - start, u64::MAX).unwrap_or_default();
    let extent =
        |entry: &[u8]| Segment { address: u64_at(entry, 16), file_offset: u64_at(entry, 24), size: u64_at(entry, 32) };
    let entries = bytes.chunks_exact(SECTION_BYTES as usize);
    let names = entries.clone().nth(header.names).map(extent);
    let names = names.and_then(|names| read(source, names.file_offset, names.size, MOST_NAME_BYTES));
    let names = names.unwrap_or_default();
    let section = |entry: &[u8]| Section {
        name: name(&names, u32_at(entry, 0)),
        kind: u32_at(entry, 4),
        flags: u64_at(entry, 8),
        bytes: extent(entry),
    };
    entries.map(section).collect()
}

/// Longer names are none that matter.
const MOST_NAME: usize = 32;

fn name(names: &[u8], offset: u32) -> Vec<u8> {
    let rest = names.get(offset as usize..).unwrap_or_default();
    rest.iter().copied().take(MOST_NAME).take_while(|&byte| byte != 0).collect()
}

fn unwind_of_section(source: &(impl Source + ?Sized), sections: &[Section]) -> Result<Option<Unwind>> {
    let is_unwind = |section: &&Section| section.name == b".eh_frame" && section.kind != elf::SHT_NOBITS.0;
    let Some(Section { bytes: Segment { file_offset, address, size }, .. }) = sections.iter().find(is_unwind) else {
        return Ok(None);
    };
    let bytes = read(source, *file_offset, *size, MOST_UNWIND_BYTES);
    let bytes = bytes.with_context(|| format!("its .eh_frame of {size} bytes is not there"))?;
    Ok(Some(Unwind { address: *address, bytes, ends_at_zero: false }))
}

/// Without sections, the header for the C++ runtime says where it begins.
fn unwind_of_program(source: &(impl Source + ?Sized), programs: &[Program]) -> Option<Unwind> {
    const VERSION: u8 = 1;
    const RELATIVE_32_BITS: u8 = 0x1b;
    let header = programs.iter().find(|program| program.kind == elf::PT_GNU_EH_FRAME.0)?.bytes;
    let bytes = read(source, header.file_offset, 8, 8)?;
    if bytes[..2] != [VERSION, RELATIVE_32_BITS] {
        return None;
    }
    let distance = i64::from(u32_at(&bytes, 4).cast_signed());
    let address = header.address.wrapping_add(4).wrapping_add_signed(distance);
    let loaded = programs.iter().filter(|program| program.is_loaded()).map(|program| program.bytes);
    let (segment, from_start) = loaded
        .filter_map(|segment| Some((segment, address.checked_sub(segment.address)?)))
        .find(|(segment, from_start)| *from_start < segment.size)?;
    let size = (segment.size - from_start).min(MOST_UNWIND_BYTES);
    let bytes = read(source, segment.file_offset.checked_add(from_start)?, size, MOST_UNWIND_BYTES)?;
    Some(Unwind { address, bytes, ends_at_zero: true })
}

fn build_id(source: &(impl Source + ?Sized), programs: &[Program]) -> Option<Vec<u8>> {
    let notes = programs.iter().filter(|program| program.kind == elf::PT_NOTE.0).take(MOST_NOTES);
    notes
        .filter_map(|note| read(source, note.bytes.file_offset, note.bytes.size, MOST_NOTE_BYTES))
        .find_map(|notes| build_id_of_notes(&notes))
}

fn build_id_of_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    const GNU: &[u8] = b"GNU\0";
    const HEAD: usize = 12;
    const MOST_BYTES: usize = 64;
    while notes.len() > HEAD {
        let (head, rest) = notes.split_at(HEAD);
        let [name, value, kind] = [0, 4, 8].map(|at| u32_at(head, at));
        let [name, padded] = [name, value].map(|size| (size as usize).next_multiple_of(4));
        let contents = rest.get(name..name.checked_add(value as usize)?)?;
        let is_build_id = kind == elf::NT_GNU_BUILD_ID.0 && rest.starts_with(GNU) && name == GNU.len();
        if is_build_id && contents.len() <= MOST_BYTES {
            return Some(contents.to_vec());
        }
        notes = rest.get(name.checked_add(padded)?..)?;
    }
    None
}

/// Nothing when it is not there or more than it may be.
fn read(source: &(impl Source + ?Sized), offset: u64, size: u64, most: u64) -> Option<Vec<u8>> {
    let end = offset.checked_add(size)?;
    if size > most || end > source.size() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    source.fill(offset, &mut bytes).then_some(bytes)
}

/// These read inside entries whose size is known; beyond them there is nothing but zeros.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    array_at(bytes, at).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array_at(bytes, at).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array_at(bytes, at).map_or(0, u64::from_le_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
