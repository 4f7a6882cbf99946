//! The layout that Python 3.13 and later tells itself: `_Py_DebugOffsets`, at the start of `_PyRuntime`.
//!
//! The structure is an array of 64-bit numbers. Which is which depends on the minor version and on nothing else.

use super::layout::{
    BytesLayout, CodeLayout, CurrentFrame, Entry, FrameLayout, Instruction, InterpreterLayout, Layout, LineTable,
    RuntimeLayout, Tags, ThreadLayout, UnicodeLayout,
};
use super::refusal::Refusal;
use super::version::Version;
use crate::memory::Memory;

/// The positions of the numbers we need.
struct Positions {
    interpreters_head: usize,
    interpreter_next: usize,
    threads_head: usize,
    thread_next: usize,
    current_frame: usize,
    thread_id: usize,
    previous: usize,
    executable: usize,
    instruction: usize,
    owner: usize,
    file: usize,
    name: usize,
    qualified_name: usize,
    line_table: usize,
    first_line: usize,
    instructions: usize,
    object_type: usize,
    bytes_size: usize,
    bytes_content: usize,
    unicode_state: usize,
    unicode_length: usize,
    ascii_size: usize,
    tags: Tags,
}

/// The versions that tell their layout.
const POSITIONS: &[(u8, Positions)] = &[(13, POSITIONS_3_13), (14, POSITIONS_3_14)];

const POSITIONS_3_13: Positions = Positions {
    interpreters_head: 5,
    interpreter_next: 8,
    threads_head: 9,
    thread_next: 21,
    current_frame: 23,
    thread_id: 24,
    previous: 29,
    executable: 30,
    instruction: 31,
    owner: 33,
    file: 35,
    name: 36,
    qualified_name: 37,
    line_table: 38,
    first_line: 39,
    instructions: 43,
    object_type: 45,
    bytes_size: 65,
    bytes_content: 66,
    unicode_state: 68,
    unicode_length: 69,
    ascii_size: 70,
    tags: Tags::None,
};

const POSITIONS_3_14: Positions = Positions {
    interpreters_head: 5,
    interpreter_next: 8,
    threads_head: 9,
    thread_next: 24,
    current_frame: 26,
    thread_id: 27,
    previous: 32,
    executable: 33,
    instruction: 34,
    owner: 36,
    file: 40,
    name: 41,
    qualified_name: 42,
    line_table: 43,
    first_line: 44,
    instructions: 48,
    object_type: 51,
    bytes_size: 75,
    bytes_content: 76,
    unicode_state: 78,
    unicode_length: 79,
    ascii_size: 80,
    tags: Tags::LowBits,
};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
const WORDS: usize = 81;

/// What lies between the head of a string and its characters when they are not all ASCII: a length and a pointer.
const UTF8_BYTES: u16 = 16;

/// Whether a version tells its layout.
pub(super) fn tells_layout(version: Version) -> bool {
    POSITIONS.iter().any(|(minor, _)| *minor == version.minor)
}

/// Reads the layout out of the live process.
pub(super) fn read(memory: &impl Memory, runtime: u64, version: Version) -> Result<Layout, Refusal> {
    let Some((_, positions)) = POSITIONS.iter().find(|(minor, _)| *minor == version.minor) else {
        return Err(Refusal::unsupported(version));
    };
    let mut bytes = [0; WORDS * 8];
    if !memory.read(runtime, &mut bytes) {
        return Err(Refusal::NotReady("the interpreter's state cannot be read".to_owned()));
    }
    let words = Words(&bytes);
    words.check_head(version)?;
    let layout = words.layout(positions)?;
    if !layout.is_small() {
        return Err(Refusal::Implausible("the interpreter's layout has fields far apart".to_owned()));
    }
    Ok(layout)
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn word(&self, position: usize) -> u64 {
        let bytes = self.0.get(position * 8..).and_then(|rest| rest.first_chunk());
        bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
    }

    fn check_head(&self, version: Version) -> Result<(), Refusal> {
        if self.word(0) != COOKIE {
            return Err(Refusal::Implausible("the interpreter's state does not start with its layout".to_owned()));
        }
        let said = Version::from_hex(self.word(1));
        if said != Some(version) {
            let said = said.map_or_else(|| "something else".to_owned(), |said| said.to_string());
            return Err(Refusal::Implausible(format!("the file is Python {version}, its state says {said}")));
        }
        if self.word(2) != 0 {
            return Err(Refusal::FreeThreaded);
        }
        Ok(())
    }

    fn offset(&self, position: usize) -> Result<u16, Refusal> {
        let word = self.word(position);
        // Room for the field itself: sums of an offset and a field's size never overflow.
        u16::try_from(word).ok().filter(|offset| *offset <= u16::MAX - 64).ok_or_else(|| {
            Refusal::Implausible(format!("the interpreter's layout has {word} as an offset (number {position})"))
        })
    }

    fn layout(&self, at: &Positions) -> Result<Layout, Refusal> {
        let ascii_characters = self.offset(at.ascii_size)?;
        Ok(Layout {
            runtime: RuntimeLayout { interpreters_head: self.offset(at.interpreters_head)? },
            interpreter: InterpreterLayout {
                next: self.offset(at.interpreter_next)?,
                threads_head: self.offset(at.threads_head)?,
            },
            thread: ThreadLayout {
                next: self.offset(at.thread_next)?,
                thread_id: self.offset(at.thread_id)?,
                frame: self.offset(at.current_frame)?,
                current: CurrentFrame::Direct,
            },
            frame: self.frame(at)?,
            code: self.code(at)?,
            unicode: UnicodeLayout {
                length: self.offset(at.unicode_length)?,
                state: self.offset(at.unicode_state)?,
                ascii_characters,
                other_characters: ascii_characters + UTF8_BYTES,
            },
            bytes: BytesLayout { size: self.offset(at.bytes_size)?, content: self.offset(at.bytes_content)? },
            object_type: self.offset(at.object_type)?,
        })
    }

    fn frame(&self, at: &Positions) -> Result<FrameLayout, Refusal> {
        Ok(FrameLayout {
            code: self.offset(at.executable)?,
            previous: self.offset(at.previous)?,
            instruction: self.offset(at.instruction)?,
            instruction_kind: Instruction::Address,
            entry: Entry::Shim { owner: self.offset(at.owner)? },
            tags: at.tags,
        })
    }

    fn code(&self, at: &Positions) -> Result<CodeLayout, Refusal> {
        Ok(CodeLayout {
            first_line: self.offset(at.first_line)?,
            file: self.offset(at.file)?,
            name: self.offset(at.name)?,
            qualified_name: Some(self.offset(at.qualified_name)?),
            line_table: self.offset(at.line_table)?,
            line_table_kind: LineTable::Locations,
            instructions: Some(self.offset(at.instructions)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: Version = Version { minor: 13, micro: Some(0) };

    /// Memory that holds the same words wherever it is read.
    struct Said(Vec<u64>);

    impl Memory for Said {
        fn read(&self, _: u64, into: &mut [u8]) -> bool {
            let bytes = self.0.iter().flat_map(|word| word.to_le_bytes()).chain(std::iter::repeat(0));
            into.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            true
        }
    }

    fn read_with(change: impl FnOnce(&mut Vec<u64>)) -> Result<Layout, Refusal> {
        let mut words = vec![COOKIE, 0x030d_00f0, 0];
        words.resize(WORDS, 16);
        change(&mut words);
        read(&Said(words), 0x1000, VERSION)
    }

    #[test]
    fn a_free_threaded_build_is_refused_as_such() {
        assert!(read_with(|_| ()).is_ok());
        assert_eq!(read_with(|words| words[2] = 1), Err(Refusal::FreeThreaded));
    }

    #[test]
    fn another_cookie_or_version_is_refused_with_a_reason() {
        let refusal = read_with(|words| words[0] = 0).unwrap_err().to_string();
        assert!(refusal.contains("does not start with its layout"), "{refusal}");
        let refusal = read_with(|words| words[1] = 0x030d_01f0).unwrap_err().to_string();
        assert!(refusal.contains("the file is Python 3.13.0, its state says 3.13.1"), "{refusal}");
    }

    #[test]
    fn offsets_that_nobody_can_have_are_refused() {
        let refusal = read_with(|words| words[9] = 1 << 20).unwrap_err().to_string();
        assert!(refusal.contains("has 1048576 as an offset"), "{refusal}");
        let refusal = read_with(|words| words[29] = 4000).unwrap_err().to_string();
        assert!(refusal.contains("fields far apart"), "{refusal}");
    }

    #[test]
    fn a_version_that_is_not_known_is_refused() {
        let refusal = read(&Said(vec![]), 0, Version { minor: 15, micro: Some(0) }).unwrap_err().to_string();
        assert_eq!(refusal, "Python 3.15.0 is not supported (3.9 to 3.14 are)");
    }

    proptest::proptest! {
        #[test]
        fn any_numbers_give_a_small_layout_or_a_refusal(numbers in proptest::collection::vec(0u64..70_000, WORDS)) {
            let layout = read_with(|words| words[3..].copy_from_slice(&numbers[3..]));
            proptest::prop_assert!(layout.is_err() || layout.is_ok_and(|layout| layout.is_small()));
        }
    }
}
