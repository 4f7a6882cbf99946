//! Debug information is looked over before it is used.
//!
//! blazesym follows inlined functions by recursion and keeps a row for each function, range and line that it comes by. A
//! crafted file can nest without end, which would overflow the stack, or let few bytes stand for many rows. Such a file
//! loses its lines, not its symbols.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gimli::{
    AttributeValue, DW_AT_ranges, DW_TAG_inlined_subroutine, DW_TAG_subprogram, EndianSlice, LittleEndian, Section,
};
use memmap2::Mmap;

use super::elf;

/// How deep entries nest at most. Compilers stay far below a hundred.
const MOST_DEPTH: isize = 512;

/// How many functions, inlined functions and ranges of them there are at most.
const MOST_ROWS: u64 = 8_000_000;

/// How long line programs are at most, all together. One byte of them can become a row of 24.
const LINE_LIMIT: usize = 64 << 20;

/// How long looking over a file takes at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many entries are read between looks at the clock.
const ENTRIES_BETWEEN_LOOKS: u64 = 1 << 16;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Looks over the debug information of an image, which nobody can change any more.
pub fn debug_information(image: &File) -> Result<()> {
    let sections = elf::sections(image)?;
    // SAFETY: the image is a sealed memory file of our own, so that it neither changes nor gets shorter.
    let bytes = unsafe { Mmap::map(image) }.context("map the image")?;
    let section = |id: gimli::SectionId| {
        let section = sections.iter().find(|section| section.name == id.name());
        let range = section.map(|section| section.offset as usize..(section.offset + section.size) as usize);
        Ok::<_, gimli::Error>(EndianSlice::new(
            range.and_then(|range| bytes.get(range)).unwrap_or_default(),
            LittleEndian,
        ))
    };
    let mut dwarf = gimli::Dwarf::load(section)?;
    ensure!(dwarf.debug_line.reader().len() <= LINE_LIMIT, "its line programs are too long");
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);

    let mut look = Look { started: Instant::now(), entries: 0, rows: 0 };
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        look.count_entry()?;
        look.over_unit(&dwarf, &dwarf.unit(header)?)?;
    }
    Ok(())
}

struct Look {
    started: Instant,
    entries: u64,
    rows: u64,
}

impl Look {
    fn over_unit<'a>(&mut self, dwarf: &gimli::Dwarf<Bytes<'a>>, unit: &gimli::Unit<Bytes<'a>>) -> Result<()> {
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            ensure!(entries.next_depth() <= MOST_DEPTH, "its entries nest too deep");
            self.count_entry()?;
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if ![DW_TAG_subprogram, DW_TAG_inlined_subroutine].contains(&abbreviation.tag()) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            self.count_row()?;
            for attribute in abbreviation.attributes() {
                let attribute = entries.read_attribute(*attribute)?;
                if attribute.name() == DW_AT_ranges {
                    self.over_ranges(dwarf, unit, attribute.value())?;
                }
            }
        }
        Ok(())
    }

    fn over_ranges<'a>(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes<'a>>,
        unit: &gimli::Unit<Bytes<'a>>,
        value: AttributeValue<Bytes<'a>>,
    ) -> Result<()> {
        let Some(mut ranges) = dwarf.attr_ranges(unit, value)? else { return Ok(()) };
        while ranges.next()?.is_some() {
            self.count_row()?;
        }
        Ok(())
    }

    fn count_row(&mut self) -> Result<()> {
        self.rows += 1;
        ensure!(self.rows <= MOST_ROWS, "it has too many functions");
        Ok(())
    }

    fn count_entry(&mut self) -> Result<()> {
        self.entries += 1;
        let looks_at_clock = self.entries.is_multiple_of(ENTRIES_BETWEEN_LOOKS);
        ensure!(!looks_at_clock || self.started.elapsed() < PATIENCE, "it takes too long to read");
        Ok(())
    }
}
