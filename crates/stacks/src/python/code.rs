//! Code objects: the function that a frame runs, and the line it is at.

use anyhow::{Context, Result, bail};

use super::interpreter::Interpreter;
use super::layout::{Instruction, Layout, LineTable};
use super::lines;
use super::objects::{at, read_string, read_table};
use crate::memory::Memory;

/// A function, a module's body, or any other piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// With the classes and functions it is in since 3.11; before, the name alone.
    pub qualified_name: String,
    /// As the compiler was told, which may be relative or no file at all (`<string>`).
    pub file: String,
    pub first_line: i32,
    /// See [`fingerprint`].
    pub fingerprint: u32,
    line_table: Vec<u8>,
    line_table_kind: LineTable,
    instruction_kind: Instruction,
}

impl CodeObject {
    /// Reads a code object, and reads its head again at the end: if another object took its place meanwhile, that is an
    /// error. Whether it is the one a walk saw is told by comparing fingerprints.
    pub fn read(memory: &impl Memory, interpreter: &Interpreter, address: u64) -> Result<Self> {
        let head = CodeHead::read(memory, &interpreter.layout, address).context("a code object cannot be read")?;
        if head.object_type != interpreter.code_type {
            bail!("the object at {address:#x} is no code object");
        }
        let code = Self::read_behind(memory, interpreter, address, &head)?;
        if CodeHead::read(memory, &interpreter.layout, address) != Some(head) {
            bail!("the code object at {address:#x} changed while it was read");
        }
        Ok(code)
    }

    fn read_behind(memory: &impl Memory, interpreter: &Interpreter, address: u64, head: &CodeHead) -> Result<Self> {
        let layout = &interpreter.layout;
        let name = match layout.code.qualified_name {
            Some(offset) => memory.read_u64(at(address, offset)).context("a qualified name cannot be read")?,
            None => head.name,
        };
        Ok(Self {
            qualified_name: read_string(memory, interpreter, name).context("the name of a code object")?,
            file: read_string(memory, interpreter, head.file).context("the file of a code object")?,
            first_line: head.first_line,
            fingerprint: head.fingerprint(),
            line_table: read_table(memory, interpreter, head.line_table).context("a line table")?,
            line_table_kind: layout.code.line_table_kind,
            instruction_kind: layout.frame.instruction_kind,
        })
    }

    /// The line that a frame executes, given what a walk reported ([`super::RawFrame::instruction`]). The same for the
    /// innermost frame and for callers. A negative number is a frame that has not begun: its first line. `None` when the
    /// instruction belongs to no line.
    pub fn line(&self, instruction: i32) -> Option<u32> {
        let offset = match self.instruction_kind {
            Instruction::ByteIndex | Instruction::Address => instruction,
            Instruction::UnitIndex => instruction.saturating_mul(2),
        };
        lines::line(self.line_table_kind, &self.line_table, self.first_line, offset)
    }
}

/// What one read of a code object's first bytes gives ([`Layout::code_bytes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeHead {
    pub object_type: u64,
    pub file: u64,
    pub name: u64,
    pub line_table: u64,
    /// See [`lines_mark`].
    pub lines_mark: u64,
    pub first_line: i32,
}

impl CodeHead {
    pub fn read(memory: &impl Memory, layout: &Layout, address: u64) -> Option<Self> {
        let mut bytes = vec![0; layout.code_bytes().into()];
        if !memory.read(address, &mut bytes) {
            return None;
        }
        let word = |offset: u16| {
            let bytes = bytes.get(usize::from(offset)..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let first_line = bytes.get(usize::from(layout.code.first_line)..)?.first_chunk()?;
        let line_table = word(layout.code.line_table)?;
        Some(Self {
            object_type: word(layout.object_type)?,
            file: word(layout.code.file)?,
            name: word(layout.code.name)?,
            line_table,
            lines_mark: lines_mark(memory, layout, line_table),
            first_line: i32::from_le_bytes(*first_line),
        })
    }

    pub fn fingerprint(&self) -> u32 {
        fingerprint(self.file, self.name, self.line_table, self.lines_mark, self.first_line.cast_unsigned())
    }

    /// Whether it is no code of the program but what 3.13 and later put below an `__init__` that a class calls: the
    /// only one whose file is its name and that starts at line 0.
    pub(super) fn is_init_cleanup(&self) -> bool {
        self.file == self.name && self.first_line == 0
    }
}

/// How long a line table is and how it begins: code that is compiled again and again may come to lie at the same place, with
/// other lines. 0 when that cannot be read.
fn lines_mark(memory: &impl Memory, layout: &Layout, line_table: u64) -> u64 {
    let word = |offset| memory.read_u64(at(line_table, offset));
    let (Some(length), Some(start)) = (word(layout.bytes.size), word(layout.bytes.content)) else { return 0 };
    let start = if length < 8 { start & ((1 << (8 * length)) - 1) } else { start };
    start.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ length
}

/// 31 bits that tell whether the code object at an address is still the same one, from the pointers it holds and the
/// beginning of its line table:
///
/// ```c
/// __u64 mixed = file ^ (name << 16 | name >> 48) ^ (line_table << 32 | line_table >> 32) ^ lines_mark;
/// __u32 folded = (__u32)mixed ^ (__u32)(mixed >> 32) ^ (first_line << 7 | first_line >> 25);
/// return folded & 0x7fffffff;
/// ```
pub const fn fingerprint(file: u64, name: u64, line_table: u64, lines_mark: u64, first_line: u32) -> u32 {
    let mixed = file ^ name.rotate_left(16) ^ line_table.rotate_left(32) ^ lines_mark;
    let folded = (mixed as u32) ^ ((mixed >> 32) as u32) ^ first_line.rotate_left(7);
    folded & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_changes_with_each_of_its_parts() {
        let same = fingerprint(0x7f12_3456_7890, 0x7f12_3456_7abc, 0x7f12_3456_7def, 5, 12);
        assert_ne!(same, fingerprint(0x7f12_3456_78a0, 0x7f12_3456_7abc, 0x7f12_3456_7def, 5, 12));
        assert_ne!(same, fingerprint(0x7f12_3456_7890, 0x7f12_3456_7acc, 0x7f12_3456_7def, 5, 12));
        assert_ne!(same, fingerprint(0x7f12_3456_7890, 0x7f12_3456_7abc, 0x7f12_3456_7dff, 5, 12));
        assert_ne!(same, fingerprint(0x7f12_3456_7890, 0x7f12_3456_7abc, 0x7f12_3456_7def, 6, 12));
        assert_ne!(same, fingerprint(0x7f12_3456_7890, 0x7f12_3456_7abc, 0x7f12_3456_7def, 5, 13));
        assert!(same < 1 << 31);
    }
}
