//! How to leave a piece of code, in 32 bits that the kernel side unpacks.
//!
//! | bits | what |
//! |---|---|
//! | 0..4 | `Kind`: where the CFA is, the stack pointer of the caller after its call |
//! | 4..6 | where the caller's frame pointer is: unchanged, at CFA + offset, at bp + offset, unknown |
//! | 6..16 | offset for the frame pointer, signed, in units of 8 bytes |
//! | 16..32 | offset for the CFA, signed, in units of 8 bytes |
//!
//! The return address is at CFA - 8, except for `Kind::Signal`.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Nothing is known: the walk stops.
    None = 0,
    /// The outermost frame.
    End = 1,
    /// CFA = sp + offset.
    Sp = 2,
    /// CFA = bp + offset.
    Bp = 3,
    /// CFA = sp + 8, and 8 more from the 11th byte of each 16 on.
    Plt = 4,
    /// CFA = what lies at bp + offset: gcc's realigned stacks.
    DerefBp = 5,
    /// The kernel's `rt_sigframe`: bp is at sp + 120, sp at sp + 160, ip at sp + 168.
    Signal = 6,
    /// CFA = what lies at sp + offset.
    DerefSp = 7,
}

const KINDS: [Kind; 8] =
    [Kind::None, Kind::End, Kind::Sp, Kind::Bp, Kind::Plt, Kind::DerefBp, Kind::Signal, Kind::DerefSp];

/// Where the caller's frame pointer is. Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePointer {
    /// Still in its register.
    Unchanged,
    AtCfa(i64),
    /// Where the frame pointer of this frame points, and an offset.
    AtBp(i64),
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Rule(u32);

const UNIT: i64 = 8;
const KIND_BITS: u32 = 4;
const BP_SHIFT: u32 = 4;
const BP_OFFSET_SHIFT: u32 = 6;
const BP_OFFSET_BITS: u32 = 10;
const CFA_OFFSET_SHIFT: u32 = 16;
const CFA_OFFSET_BITS: u32 = 16;

impl Rule {
    pub const NONE: Self = Self(Kind::None as u32);
    pub const END: Self = Self(Kind::End as u32);
    pub const SIGNAL: Self = Self(Kind::Signal as u32);

    /// Nothing when an offset does not fit.
    pub fn new(kind: Kind, cfa_offset: i64, frame_pointer: FramePointer) -> Option<Self> {
        let (place, bp_offset) = match frame_pointer {
            FramePointer::Unchanged => (0, 0),
            FramePointer::AtCfa(offset) => (1, offset),
            FramePointer::AtBp(offset) => (2, offset),
            FramePointer::Unknown => (3, 0),
        };
        let cfa_offset = packed(cfa_offset, CFA_OFFSET_BITS)? << CFA_OFFSET_SHIFT;
        let bp_offset = packed(bp_offset, BP_OFFSET_BITS)? << BP_OFFSET_SHIFT;
        Some(Self(kind as u32 | place << BP_SHIFT | bp_offset | cfa_offset))
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    /// Bits that no kind has are a rule that says nothing.
    pub fn kind(self) -> Kind {
        let kind = self.0 & ((1 << KIND_BITS) - 1);
        KINDS.get(kind as usize).copied().unwrap_or(Kind::None)
    }

    /// In bytes.
    pub fn cfa_offset(self) -> i64 {
        unpacked(self.0 >> CFA_OFFSET_SHIFT, CFA_OFFSET_BITS)
    }

    pub fn frame_pointer(self) -> FramePointer {
        let offset = unpacked(self.0 >> BP_OFFSET_SHIFT, BP_OFFSET_BITS);
        match self.0 >> BP_SHIFT & 3 {
            0 => FramePointer::Unchanged,
            1 => FramePointer::AtCfa(offset),
            2 => FramePointer::AtBp(offset),
            _ => FramePointer::Unknown,
        }
    }
}

fn packed(bytes: i64, bits: u32) -> Option<u32> {
    let units = bytes / UNIT;
    let limit = 1 << (bits - 1);
    let fits = bytes % UNIT == 0 && (-limit..limit).contains(&units);
    fits.then_some((units & ((1 << bits) - 1)) as u32)
}

fn unpacked(value: u32, bits: u32) -> i64 {
    let unused = u32::BITS - bits;
    i64::from((value << unused).cast_signed() >> unused) * UNIT
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {:+}, frame pointer {:?}", self.kind(), self.cfa_offset(), self.frame_pointer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_where_the_kernel_side_looks_for_them() {
        let rule = Rule::new(Kind::Bp, 16, FramePointer::AtCfa(-16)).unwrap();
        assert_eq!(rule.bits(), 3 | 1 << 4 | (0x3fe << 6) | 2 << 16);
        let rule = Rule::new(Kind::DerefBp, -8, FramePointer::AtBp(0)).unwrap();
        assert_eq!(rule.bits(), 5 | 2 << 4 | 0xffff << 16);
        assert_eq!((Rule::NONE.bits(), Rule::END.bits(), Rule::SIGNAL.bits()), (0, 1, 6));
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        for kind in KINDS {
            for cfa_offset in [-262_144, -8, 0, 8, 262_136] {
                use FramePointer::{AtBp, AtCfa, Unchanged, Unknown};
                for frame_pointer in [Unchanged, AtCfa(-4096), AtCfa(4088), AtBp(-8), AtBp(0), Unknown] {
                    let rule = Rule::new(kind, cfa_offset, frame_pointer).unwrap();
                    assert_eq!(
                        (rule.kind(), rule.cfa_offset(), rule.frame_pointer()),
                        (kind, cfa_offset, frame_pointer)
                    );
                }
            }
        }
    }

    #[test]
    fn offsets_that_do_not_fit_are_refused() {
        for cfa_offset in [4, 262_144, -262_152, i64::MIN, i64::MAX] {
            assert_eq!(Rule::new(Kind::Sp, cfa_offset, FramePointer::Unchanged), None);
        }
        for bp_offset in [-4104, 4096, 1, i64::MIN] {
            assert_eq!(Rule::new(Kind::Sp, 8, FramePointer::AtCfa(bp_offset)), None);
        }
    }

    #[test]
    fn bits_that_mean_nothing_are_no_rule() {
        assert_eq!(Rule(15).kind(), Kind::None);
    }
}
