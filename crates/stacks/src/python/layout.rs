//! Where the fields lie that a walk over Python's frames needs, and what differs between versions apart from that.
//!
//! The numbers of [`LAYOUTS`] come from each version's own headers by `tests/python/offsets.c`. From 3.13 on the process
//! itself says them, see `offsets.rs`.

/// Offsets in bytes from the start of each structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub runtime: RuntimeLayout,
    pub interpreter: InterpreterLayout,
    pub thread: ThreadLayout,
    pub frame: FrameLayout,
    pub code: CodeLayout,
    pub unicode: UnicodeLayout,
    pub bytes: BytesLayout,
    /// `PyObject.ob_type`.
    pub object_type: u16,
}

/// `_PyRuntimeState`, the variable `_PyRuntime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeLayout {
    /// The newest interpreter.
    pub interpreters_head: u16,
}

/// `PyInterpreterState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterpreterLayout {
    /// The next older interpreter, or null.
    pub next: u16,
    /// The newest thread state.
    pub threads_head: u16,
}

/// `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadLayout {
    /// The next older thread state, or null.
    pub next: u16,
    /// What `pthread_self()` returned, which is the thread's fs base. Unlike the tid it does not depend on PID namespaces.
    pub thread_id: u16,
    /// The innermost frame, or what leads to it.
    pub frame: u16,
    pub current: CurrentFrame,
}

/// What `thread.frame` points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CurrentFrame {
    /// The innermost frame itself.
    Direct,
    /// A structure on the C stack that holds the pointer to the innermost frame at this offset.
    ThroughCframe(u16),
}

/// `PyFrameObject` in 3.9 and 3.10, `_PyInterpreterFrame` since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameLayout {
    /// The code object; see [`Tags`].
    pub code: u16,
    /// The caller's frame, or null.
    pub previous: u16,
    /// Where the frame is; see [`Instruction`].
    pub instruction: u16,
    pub instruction_kind: Instruction,
    pub entry: Entry,
    pub tags: Tags,
}

/// How a frame says where it is. What a walk reports for it is documented at [`super::RawFrame::instruction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// 3.9: `int f_lasti`, the executing instruction in bytes.
    ByteIndex,
    /// 3.10: `int f_lasti`, the executing instruction in units of two bytes.
    UnitIndex,
    /// 3.11 and 3.12: `prev_instr`, an address in the executing instruction or in the inline cache that belongs to it.
    /// 3.13 and later: `instr_ptr`, the address of the executing instruction. Both are looked up alike.
    Address,
}

/// How it is told that a frame began an evaluation loop of its own, called by C code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// 3.9 and 3.10: all do.
    EveryFrame,
    /// 3.11: a byte of the frame at this offset is not 0.
    Flag(u16),
    /// 3.12 and later: the frame that comes next is no Python frame but a shim. It is told by its owner, a byte at this
    /// offset that is [`FIRST_SHIM_OWNER`] or more. What its code field holds does not matter: in 3.12 it is even a code
    /// object.
    Shim { owner: u16 },
}

/// `FRAME_OWNED_BY_CSTACK` in 3.12 and 3.13, `FRAME_OWNED_BY_INTERPRETER` in 3.14: the number is the same.
pub(super) const FIRST_SHIM_OWNER: u8 = 3;

/// Whether the lowest bits of a frame's code pointer are part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tags {
    None,
    /// 3.14: they say how the reference is counted.
    LowBits,
}

impl Tags {
    /// The bits to take away.
    pub const fn mask(self) -> u64 {
        match self {
            Self::None => 0,
            Self::LowBits => 3,
        }
    }
}

/// `PyCodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeLayout {
    /// `co_firstlineno`, an `int`.
    pub first_line: u16,
    /// `co_filename`.
    pub file: u16,
    /// `co_name`.
    pub name: u16,
    /// `co_qualname`, since 3.11.
    pub qualified_name: Option<u16>,
    /// `co_linetable`, in 3.9 `co_lnotab`.
    pub line_table: u16,
    pub line_table_kind: LineTable,
    /// Where the bytecode starts in the code object, since 3.11. Before, it is an object of its own that nobody needs.
    pub instructions: Option<u16>,
}

/// How bytecode offsets and lines are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineTable {
    /// 3.9, see `Objects/lnotab_notes.txt` of that version.
    Lnotab,
    /// 3.10, PEP 626.
    Ranges,
    /// 3.11 and later, see `Objects/locations.md`.
    Locations,
}

/// `PyASCIIObject` and `PyCompactUnicodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnicodeLayout {
    /// In characters.
    pub length: u16,
    /// The bits that say how characters are stored.
    pub state: u16,
    /// Where characters start when all are ASCII, and when not.
    pub ascii_characters: u16,
    pub other_characters: u16,
}

/// `PyBytesObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BytesLayout {
    pub size: u16,
    pub content: u16,
}

impl Layout {
    /// The layout of a version of Python 3 that cannot tell it itself.
    pub fn of(minor: u8) -> Option<&'static Self> {
        LAYOUTS.iter().find(|(version, _)| *version == minor).map(|(_, layout)| layout)
    }

    /// Whether everything that is read of an object fits into what is read at most.
    pub(super) fn is_small(&self) -> bool {
        self.frame_bytes() <= MOST_FRAME_BYTES
            && self.code_bytes() <= MOST_CODE_BYTES
            && self.thread_bytes() <= MOST_THREAD_BYTES
    }

    /// How many bytes of a frame hold everything that a walk needs of it.
    pub const fn frame_bytes(&self) -> u16 {
        let frame = &self.frame;
        let entry = match frame.entry {
            Entry::EveryFrame => 0,
            Entry::Flag(offset) | Entry::Shim { owner: offset } => offset + 1,
        };
        most(most(frame.code, frame.previous) + POINTER, most(frame.instruction + POINTER, entry))
    }

    /// How many bytes of a code object hold its type and everything that the fingerprint needs.
    pub const fn code_bytes(&self) -> u16 {
        let code = &self.code;
        let pointers = most(most(code.file, code.name), most(code.line_table, self.object_type));
        most(pointers + POINTER, code.first_line + 4)
    }

    /// How many bytes of a thread state hold what a walk needs of it.
    pub const fn thread_bytes(&self) -> u16 {
        most(most(self.thread.next, self.thread.thread_id), self.thread.frame) + POINTER
    }
}

/// The kernel side reads at most this much of a frame, a code object and a thread state.
pub(super) const MOST_FRAME_BYTES: u16 = 128;
pub(super) const MOST_CODE_BYTES: u16 = 256;
pub(super) const MOST_THREAD_BYTES: u16 = 256;

const POINTER: u16 = 8;

const fn most(left: u16, right: u16) -> u16 {
    if left > right { left } else { right }
}

/// The layouts of minor versions of Python 3.
pub const LAYOUTS: &[(u8, Layout)] = &[(9, LAYOUT_3_9), (10, LAYOUT_3_10), (11, LAYOUT_3_11), (12, LAYOUT_3_12)];

const LAYOUT_3_9: Layout = Layout {
    runtime: RuntimeLayout { interpreters_head: 32 },
    interpreter: InterpreterLayout { next: 0, threads_head: 8 },
    thread: ThreadLayout { next: 8, thread_id: 176, frame: 24, current: CurrentFrame::Direct },
    frame: FrameLayout {
        code: 32,
        previous: 24,
        instruction: 104,
        instruction_kind: Instruction::ByteIndex,
        entry: Entry::EveryFrame,
        tags: Tags::None,
    },
    code: CodeLayout {
        first_line: 40,
        file: 104,
        name: 112,
        qualified_name: None,
        line_table: 120,
        line_table_kind: LineTable::Lnotab,
        instructions: None,
    },
    unicode: UnicodeLayout { length: 16, state: 32, ascii_characters: 48, other_characters: 72 },
    bytes: BytesLayout { size: 16, content: 32 },
    object_type: 8,
};

const LAYOUT_3_10: Layout = Layout {
    frame: FrameLayout { instruction: 96, instruction_kind: Instruction::UnitIndex, ..LAYOUT_3_9.frame },
    code: CodeLayout { line_table_kind: LineTable::Ranges, ..LAYOUT_3_9.code },
    ..LAYOUT_3_9
};

const LAYOUT_3_11: Layout = Layout {
    runtime: RuntimeLayout { interpreters_head: 40 },
    interpreter: InterpreterLayout { next: 0, threads_head: 16 },
    thread: ThreadLayout { next: 8, thread_id: 152, frame: 56, current: CurrentFrame::ThroughCframe(8) },
    frame: FrameLayout {
        code: 32,
        previous: 48,
        instruction: 56,
        instruction_kind: Instruction::Address,
        entry: Entry::Flag(68),
        tags: Tags::None,
    },
    code: CodeLayout {
        first_line: 72,
        file: 112,
        name: 120,
        qualified_name: Some(128),
        line_table: 136,
        line_table_kind: LineTable::Locations,
        instructions: Some(184),
    },
    ..LAYOUT_3_9
};

const LAYOUT_3_12: Layout = Layout {
    interpreter: InterpreterLayout { next: 0, threads_head: 72 },
    thread: ThreadLayout { next: 8, thread_id: 136, frame: 56, current: CurrentFrame::ThroughCframe(0) },
    frame: FrameLayout { code: 0, previous: 8, entry: Entry::Shim { owner: 70 }, ..LAYOUT_3_11.frame },
    code: CodeLayout { first_line: 68, instructions: Some(192), ..LAYOUT_3_11.code },
    unicode: UnicodeLayout { length: 16, state: 32, ascii_characters: 40, other_characters: 56 },
    ..LAYOUT_3_11
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_be_read_of_an_object_covers_every_field() {
        let layout = Layout::of(11).unwrap();
        assert_eq!((layout.frame_bytes(), layout.code_bytes(), layout.thread_bytes()), (69, 144, 160));
        let layout = Layout::of(9).unwrap();
        assert_eq!((layout.frame_bytes(), layout.code_bytes(), layout.thread_bytes()), (112, 128, 184));
    }

    #[test]
    fn every_layout_fits_into_what_the_kernel_side_reads() {
        for (minor, layout) in LAYOUTS {
            assert!(layout.is_small(), "3.{minor}");
        }
    }

    #[test]
    fn versions_that_are_not_in_the_table_have_no_layout() {
        assert_eq!(Layout::of(8), None);
        assert_eq!(Layout::of(13), None);
    }
}
