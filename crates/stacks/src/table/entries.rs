//! The entries of `.eh_frame`: descriptions of functions, and what many of them have in common.

use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EhFrameOffset, FrameDescriptionEntry, LittleEndian, UnwindSection,
};
use hashbrown::HashMap;

use super::Segment;
use super::elf::Unwind;
use super::skipped::{Reason, Skipped};
use super::state::{Bytes, State};

pub struct Entries<'data> {
    pub section: EhFrame<Bytes<'data>>,
    pub bases: BaseAddresses,
    commons: HashMap<usize, Common<'data>>,
    /// In the order of addresses, none of them empty, no two of them for the same place.
    pub functions: Vec<Function>,
}

/// A piece of code that an entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    pub start: u32,
    pub end: u32,
    /// Where the entry is in the section.
    entry: u32,
}

/// What a function's description starts from.
struct Common<'data> {
    entry: CommonInformationEntry<Bytes<'data>>,
    initial: Option<State>,
}

/// Linkers merge them, so that files have a handful.
const MOST_COMMONS: usize = 1 << 16;

impl<'data> Entries<'data> {
    pub fn read(unwind: &'data Unwind, segments: &[Segment], skipped: &mut Skipped) -> Self {
        let mut entries = Self {
            section: EhFrame::new(&unwind.bytes, LittleEndian),
            bases: BaseAddresses::default().set_eh_frame(unwind.address),
            commons: HashMap::new(),
            functions: Vec::new(),
        };
        entries.section.set_address_size(8);
        for offset in Offsets::new(unwind) {
            let result = match offset {
                Some(Offset::Common(offset)) => entries.add_common(offset),
                Some(Offset::Function(offset)) => entries.add_function(offset, segments),
                None => Err(Reason::Malformed),
            };
            if let Err(reason) = result {
                skipped.add(reason);
            }
        }
        entries.put_in_order(skipped);
        entries
    }

    fn add_common(&mut self, offset: usize) -> Result<(), Reason> {
        let entry = self.section.cie_from_offset(&self.bases, EhFrameOffset(offset)).map_err(|_| Reason::Malformed)?;
        if self.commons.len() >= MOST_COMMONS {
            return Err(Reason::Malformed);
        }
        let initial = self.initial_state(&entry);
        self.commons.insert(offset, Common { entry, initial });
        Ok(())
    }

    /// Computed once, so that functions that share a long one do not each take the time for it.
    fn initial_state(&self, entry: &CommonInformationEntry<Bytes>) -> Option<State> {
        const RETURN_ADDRESS: u16 = 16;
        if entry.return_address_register().0 != RETURN_ADDRESS {
            return None;
        }
        let mut state = State::new(entry.is_signal_trampoline());
        let mut instructions = entry.instructions(&self.section, &self.bases);
        while let Some(instruction) = instructions.next().ok()? {
            state.follow(&instruction, None, entry.data_alignment_factor(), &self.section).ok()?;
        }
        Some(state)
    }

    fn add_function(&mut self, offset: usize, segments: &[Segment]) -> Result<(), Reason> {
        let entry = self.function_entry(offset).ok_or(Reason::Malformed)?;
        let (start, size) = (entry.initial_address(), entry.len());
        if size == 0 {
            return Ok(());
        }
        let end = start.checked_add(size).ok_or(Reason::Malformed)?;
        let (start, end) = inside(start, end, segments).ok_or(Reason::OutsideCode)?;
        let entry = u32::try_from(offset).map_err(|_| Reason::Malformed)?;
        self.functions.push(Function { start, end, entry });
        Ok(())
    }

    fn function_entry(&self, offset: usize) -> Option<FrameDescriptionEntry<Bytes<'data>>> {
        let common = |_: &_, _: &_, EhFrameOffset(offset)| {
            let common = self.commons.get(&offset).ok_or(gimli::Error::NotCieId(offset as u64))?;
            Ok(common.entry.clone())
        };
        self.section.fde_from_offset(&self.bases, EhFrameOffset(offset), common).ok()
    }

    /// A function that another begins inside of ends there: so does the search of the C++ runtime see it.
    fn put_in_order(&mut self, skipped: &mut Skipped) {
        self.functions.sort_unstable_by_key(|function| (function.start, function.entry));
        self.functions.dedup_by(|next, previous| {
            let is_duplicate = next.start == previous.start;
            if is_duplicate {
                skipped.add(Reason::Duplicate);
            }
            is_duplicate
        });
        for at in 1..self.functions.len() {
            let next = self.functions[at].start;
            let function = &mut self.functions[at - 1];
            function.end = function.end.min(next);
        }
    }

    /// The entry of a function, and what is known where it begins.
    pub fn description(&self, function: &Function) -> Option<(FrameDescriptionEntry<Bytes<'data>>, State)> {
        let entry = self.function_entry(function.entry as usize)?;
        let initial = self.commons.get(&entry.cie().offset())?.initial?;
        Some((entry, initial))
    }
}

/// The part that lies in the executable segment in which it begins, below 4 GiB.
fn inside(start: u64, end: u64, segments: &[Segment]) -> Option<(u32, u32)> {
    let distance = |segment: &Segment| start.checked_sub(segment.address).filter(|distance| *distance < segment.size);
    let segment = segments.iter().find(|segment| distance(segment).is_some())?;
    let end = end.min(segment.address.saturating_add(segment.size));
    Some((u32::try_from(start).ok()?, u32::try_from(end).ok()?))
}

/// Where the entries are. Nothing, as the last, when the section breaks off.
struct Offsets<'data> {
    bytes: &'data [u8],
    ends_at_zero: bool,
    next: usize,
}

enum Offset {
    Common(usize),
    Function(usize),
}

/// A length that says that the length follows, in 64 bits.
const LONG: u32 = u32::MAX;

impl<'data> Offsets<'data> {
    fn new(unwind: &'data Unwind) -> Self {
        Self { bytes: &unwind.bytes, ends_at_zero: unwind.ends_at_zero, next: 0 }
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// A length of zero ends what one piece of the link had; others may follow.
    fn skip_zeros(&mut self) {
        while !self.ends_at_zero && self.u32_at(self.next) == Some(0) {
            self.next += 4;
        }
    }

    /// The entry at an offset, and where it ends.
    fn entry(&self, at: usize) -> Option<(Offset, usize)> {
        let (length, id_at) = match self.u32_at(at)? {
            LONG => (u64::from_le_bytes(*self.bytes.get(at + 4..)?.first_chunk()?), at + 12),
            length => (u64::from(length), at + 4),
        };
        let end = id_at.checked_add(usize::try_from(length).ok()?).filter(|end| *end <= self.bytes.len())?;
        let is_common = self.u32_at(id_at)? == 0;
        Some((if is_common { Offset::Common(at) } else { Offset::Function(at) }, end))
    }
}

impl Iterator for Offsets<'_> {
    type Item = Option<Offset>;

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_zeros();
        let at = self.next;
        let is_over = at >= self.bytes.len() || self.u32_at(at) == Some(0);
        if is_over {
            return None;
        }
        let entry = self.entry(at);
        self.next = entry.as_ref().map_or(self.bytes.len(), |(_, end)| *end);
        Some(entry.map(|(offset, _)| offset))
    }
}
