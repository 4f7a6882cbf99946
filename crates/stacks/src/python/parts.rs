//! Parts of a function that the compiler put elsewhere, in files whose local names are gone.
//!
//! Compilers move what a profile calls cold away from the rest of a function, which can be nearly all of it, and reach it
//! by conditional jumps into its middle. No other code is jumped at like that from a function.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::read::ReadRef;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};

/// So many different jumps into the same piece of code are no accident of bytes that look like jumps.
const FEWEST_JUMPS: usize = 3;

/// The pieces of code outside of a function that belong to it.
pub(super) fn elsewhere<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    function: &Range<u64>,
) -> Vec<Range<u64>> {
    let Some(code) = bytes_of(file, function) else { return Vec::new() };
    let pieces = pieces(file);
    let mut jumps: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for target in conditional_jumps(code, function.start).filter(|target| !function.contains(target)) {
        let index = pieces.partition_point(|piece| piece.start <= target).wrapping_sub(1);
        // A conditional jump to a start is a call in the last place.
        if pieces.get(index).is_some_and(|piece| piece.start < target && target < piece.end) {
            jumps.entry(index).or_default().insert(target);
        }
    }
    let belongs = jumps.into_iter().filter(|(_, targets)| targets.len() >= FEWEST_JUMPS);
    belongs.filter_map(|(index, _)| pieces.get(index).cloned()).collect()
}

fn bytes_of<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    range: &Range<u64>,
) -> Option<&'data [u8]> {
    let holds = |section: &object::read::elf::ElfSection64<'data, '_, Endianness, R>| {
        section.address() <= range.start && range.end <= section.address().saturating_add(section.size())
    };
    let section = file.sections().find(holds)?;
    section.data_range(range.start, range.end - range.start).ok()?
}

/// Where bytes that read as a conditional jump lead to (`0f 80` to `0f 8f` and a distance of 32 bits).
fn conditional_jumps(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    const LENGTH: usize = 6;
    code.windows(LENGTH).enumerate().filter_map(move |(at, bytes)| {
        let [0x0f, 0x80..=0x8f, distance @ ..] = bytes else { return None };
        let distance = i64::from(i32::from_le_bytes(distance.try_into().ok()?));
        start.wrapping_add((at + LENGTH) as u64).checked_add_signed(distance)
    })
}

/// Every piece of code that the file tells how to leave, in the order of addresses.
fn pieces<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Vec<Range<u64>> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let frames = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = frames.entries(&bases);
    let mut pieces = Vec::new();
    // What comes after an entry that cannot be read is not known.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        if let Ok(piece) = partial.parse(EhFrame::cie_from_offset) {
            pieces.push(piece.initial_address()..piece.initial_address().saturating_add(piece.len()));
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.start);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditional_jumps_lead_forward_and_back() {
        let code = [0x90, 0x0f, 0x84, 0x10, 0, 0, 0, 0x0f, 0x8e, 0xf0, 0xff, 0xff, 0xff, 0x0f, 0x05, 0, 0, 0, 0];
        assert_eq!(conditional_jumps(&code, 0x1000).collect::<Vec<_>>(), [0x1017, 0xffd]);
    }

    #[test]
    fn code_that_is_cut_off_has_no_jump() {
        assert_eq!(conditional_jumps(&[0x0f, 0x84, 0, 0], 0).count(), 0);
    }
}
