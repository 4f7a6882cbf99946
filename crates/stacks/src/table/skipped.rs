//! What of a file's unwind information could not be used, and why.

/// Why something has no usable rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// An entry, or what it says, is damaged or of an unknown kind.
    Malformed,
    /// An entry is for code that lies in no executable segment, or beyond 4 GiB.
    OutsideCode,
    /// An entry is for an address that another one is for as well.
    Duplicate,
    /// The CFA is computed in a way that has no kind.
    Expression,
    /// The CFA depends on another register than the stack or frame pointer.
    Register,
    /// An offset is too large or not a multiple of 8.
    Offset,
    /// The return address is somewhere else than below the CFA.
    ReturnAddress,
    /// There is a rule, but the caller's frame pointer is not known after it.
    FramePointer,
}

impl Reason {
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::OutsideCode,
        Self::Duplicate,
        Self::Expression,
        Self::Register,
        Self::Offset,
        Self::ReturnAddress,
        Self::FramePointer,
    ];
}

/// How often, by reason: entries for the first three, stretches of code for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    counts: [u32; Reason::ALL.len()],
}

impl Skipped {
    pub fn count(&self, reason: Reason) -> u32 {
        self.counts[reason as usize]
    }

    pub(super) fn add(&mut self, reason: Reason) {
        let count = &mut self.counts[reason as usize];
        *count = count.saturating_add(1);
    }
}
