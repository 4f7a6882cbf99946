//! Unwind tables: the `.eh_frame` of a file, compiled to rows that the kernel side can walk.
//!
//! A row says how to leave the code from its address up to the next row's. What no row can express is a row that says
//! nothing (`Rule::NONE`), counted by reason, and never a guess. Files are not trusted: a damaged one gives an error or
//! rows that say nothing, in time and memory that its size bounds.
//!
//! Only `.eh_frame` is read; code that is described by `.debug_frame` alone has no rows.

mod code;
mod compile;
mod elf;
mod entries;
mod expression;
mod frame_pointers;
mod rule;
mod skipped;
mod state;

use std::fs::File;

use anyhow::Result;

use elf::{Image, Source};
pub use rule::{FramePointer, Kind, Rule};
pub use skipped::{Reason, Skipped};

/// How to leave the code that starts here, up to the next row's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Row {
    /// The virtual address in the file.
    pub address: u32,
    pub rule: Rule,
}

#[derive(Clone, Debug)]
pub struct Table {
    /// In the order of addresses, no two neighbours with the same rule.
    pub rows: Vec<Row>,
    /// Whether frame pointers lead through all of the file's code that calls something.
    pub trusts_frame_pointers: bool,
    pub segments: Vec<Segment>,
    pub build_id: Option<Vec<u8>>,
    pub skipped: Skipped,
    /// The size of the `.eh_frame` it was made from.
    pub source_bytes: u64,
}

/// A part of the file that is mapped executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub file_offset: u64,
    pub address: u64,
    /// In the file.
    pub size: u64,
}

impl Table {
    /// The file is read where needed, not mapped: its owner may cut it short at any time. Its position does not move.
    pub fn of_file(file: &File) -> Result<Self> {
        Self::of_source(file)
    }

    /// Of a file that lies in memory, such as the vDSO's image.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self> {
        Self::of_source(bytes)
    }

    fn of_source(source: &(impl Source + ?Sized)) -> Result<Self> {
        let Image { segments, code, unwind, build_id } = Image::read(source)?;
        let compiled = compile::rows(&unwind, &segments)?;
        let trusts_frame_pointers = frame_pointers::are_trusted(&compiled.rows, &code, source);
        Ok(Self {
            rows: compiled.rows,
            trusts_frame_pointers,
            segments,
            build_id,
            skipped: compiled.skipped,
            source_bytes: unwind.bytes.len() as u64,
        })
    }

    /// The rule for an address of the file; `NONE` where nothing is known.
    pub fn rule_at(&self, address: u64) -> Rule {
        let after = self.rows.partition_point(|row| u64::from(row.address) <= address);
        after.checked_sub(1).map_or(Rule::NONE, |row| self.rows[row].rule)
    }
}

/// Where in a file its code lies, which is known long before its table is.
pub fn segments(file: &File) -> Result<Vec<Segment>> {
    elf::segments(file)
}

pub fn segments_of_bytes(bytes: &[u8]) -> Result<Vec<Segment>> {
    elf::segments(bytes)
}

/// What to subtract from an address in memory to get the file's, wrapping around, given the start and the file offset of an
/// executable mapping as `/proc/PID/maps` shows them. Nothing when no executable segment lies there.
pub fn load_bias(segments: &[Segment], start: u64, file_offset: u64) -> Option<u64> {
    let begins_here = |segment: &&Segment| segment.first_page() == file_offset;
    let segment = segments.iter().find(begins_here);
    let segment = segment.or_else(|| segments.iter().find(|segment| segment.contains(file_offset)))?;
    let address = segment.address.wrapping_sub(segment.file_offset).wrapping_add(file_offset);
    let bias = start.wrapping_sub(address);
    bias.is_multiple_of(PAGE).then_some(bias)
}

const PAGE: u64 = 4096;

impl Segment {
    /// Mappings are made of whole pages, so they may begin before what they are for.
    fn first_page(&self) -> u64 {
        self.file_offset & !(PAGE - 1)
    }

    fn contains(&self, file_offset: u64) -> bool {
        self.first_page() <= file_offset && file_offset < self.file_offset.saturating_add(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(segments: &[Segment]) -> Table {
        let (rows, skipped) = (Vec::new(), Skipped::default());
        let segments = segments.to_vec();
        Table { rows, trusts_frame_pointers: false, segments, build_id: None, skipped, source_bytes: 0 }
    }

    #[test]
    fn the_load_bias_comes_from_any_mapping_of_the_segment() {
        let table = table(&[Segment { file_offset: 0x1040, address: 0x2040, size: 0x5000 }]);
        assert_eq!(load_bias(&table.segments, 0x7f00_0000_2000, 0x1000), Some(0x7f00_0000_0000));
        assert_eq!(load_bias(&table.segments, 0x7f00_0000_4000, 0x3000), Some(0x7f00_0000_0000));
        assert_eq!(load_bias(&table.segments, 0x7f00_0000_4000, 0x9000), None);
        assert_eq!(load_bias(&table.segments, 0x2000, 0x1000), Some(0));
    }

    #[test]
    fn of_two_segments_that_share_a_page_the_one_that_begins_there_counts() {
        let first = Segment { file_offset: 0x1000, address: 0x1000, size: 0x1080 };
        let second = Segment { file_offset: 0x2080, address: 0x5080, size: 0x1000 };
        assert_eq!(load_bias(&[first, second], 0x10_5000, 0x2000), Some(0x10_0000));
    }

    #[test]
    fn a_segment_that_cannot_be_mapped_has_no_load_bias() {
        let segment = Segment { file_offset: 0x1000, address: 0x1008, size: 0x1000 };
        assert_eq!(load_bias(&[segment], 0x7f00_0000_1000, 0x1000), None);
    }

    #[test]
    fn an_address_takes_the_rule_of_the_last_row_before_it() {
        let mut table = table(&[]);
        table.rows = vec![Row { address: 16, rule: Rule::END }, Row { address: 32, rule: Rule::NONE }];
        assert_eq!([0, 15, 16, 31, 32, u64::MAX].map(|address| table.rule_at(address).kind()), {
            use Kind::{End, None};
            [None, None, End, End, None, None]
        });
    }
}
