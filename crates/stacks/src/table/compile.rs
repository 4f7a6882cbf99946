//! From the entries of `.eh_frame` to rows, in the order of addresses.

use anyhow::{Result, bail};
use gimli::CallFrameInstruction;

use super::elf::Unwind;
use super::entries::{Entries, Function};
use super::rule::{FramePointer, Kind, Rule};
use super::skipped::{Reason, Skipped};
use super::state::{Malformed, Meaning, State};
use super::{Row, Segment};

/// What the kernel side has room for. The largest libraries have a few million.
const MOST_ROWS: usize = 16 << 20;

#[derive(Default)]
pub struct Compiled {
    pub rows: Vec<Row>,
    pub skipped: Skipped,
}

pub fn rows(unwind: &Unwind, segments: &[Segment]) -> Result<Compiled> {
    let mut compiled = Compiled::default();
    let entries = Entries::read(unwind, segments, &mut compiled.skipped);
    for function in &entries.functions {
        if compiled.add_function(&entries, function).is_err() {
            compiled.take_back(function);
        }
        compiled.push(function.end, Rule::NONE);
        if compiled.rows.len() > MOST_ROWS {
            bail!("its unwind table has more than {MOST_ROWS} rows");
        }
    }
    compiled.rows.shrink_to_fit();
    Ok(compiled)
}

/// Deeper than compilers nest what they remember.
const MOST_REMEMBERED: usize = 256;

impl Compiled {
    fn add_function(&mut self, entries: &Entries, function: &Function) -> Result<(), Malformed> {
        let (entry, initial) = entries.description(function).ok_or(Malformed)?;
        let (code_alignment, data_alignment) =
            (entry.cie().code_alignment_factor(), entry.cie().data_alignment_factor());
        let mut state = initial;
        let mut remembered = Vec::new();
        let mut address = u64::from(function.start);
        let mut instructions = entry.instructions(&entries.section, &entries.bases);
        while let Some(instruction) = instructions.next().map_err(|_| Malformed)? {
            let next = match instruction {
                CallFrameInstruction::AdvanceLoc { delta } => u64::from(delta)
                    .checked_mul(code_alignment)
                    .and_then(|delta| address.checked_add(delta))
                    .ok_or(Malformed)?,
                CallFrameInstruction::SetLoc { address: next } => next,
                CallFrameInstruction::RememberState if remembered.len() < MOST_REMEMBERED => {
                    remembered.push(state);
                    continue;
                }
                CallFrameInstruction::RememberState => return Err(Malformed),
                CallFrameInstruction::RestoreState => {
                    state = remembered.pop().ok_or(Malformed)?;
                    continue;
                }
                _ => {
                    state.follow(&instruction, Some(&initial), data_alignment, &entries.section)?;
                    continue;
                }
            };
            if next < address {
                return Err(Malformed);
            }
            self.add_stretch(address, next, &state, function);
            address = next;
        }
        self.add_stretch(address, u64::from(function.end), &state, function);
        Ok(())
    }

    /// What holds from an address up to another, as far as it is inside of the function.
    fn add_stretch(&mut self, from: u64, to: u64, state: &State, function: &Function) {
        let inside = |address: u64| u32::try_from(address).unwrap_or(function.end).min(function.end);
        let (from, to) = (inside(from), inside(to));
        if from >= to {
            return;
        }
        match state.meaning() {
            Meaning::Rule(rule) => self.add_rule(from, rule),
            Meaning::JumpTable { pushed_from } if to - from <= MOST_JUMP_TABLE_BYTES => {
                self.add_jump_table(from, to, pushed_from, state.frame_pointer());
            }
            Meaning::JumpTable { .. } => self.add_nothing(from, Reason::Expression),
            Meaning::Unusable(reason) => self.add_nothing(from, reason),
        }
    }

    fn add_rule(&mut self, from: u32, rule: Rule) {
        if rule.frame_pointer() == FramePointer::Unknown {
            self.skipped.add(Reason::FramePointer);
        }
        self.push(from, rule);
    }

    fn add_nothing(&mut self, from: u32, reason: Reason) {
        self.skipped.add(reason);
        self.push(from, Rule::NONE);
    }

    /// Two rows for each jump, since only one kind of table has a rule that knows where in it one is.
    fn add_jump_table(&mut self, from: u32, to: u32, pushed_from: u8, frame_pointer: FramePointer) {
        let [before, after] = [8, 16].map(|offset| Rule::new(Kind::Sp, offset, frame_pointer).unwrap_or(Rule::NONE));
        for jump in (from & !(JUMP_BYTES - 1)..to).step_by(JUMP_BYTES as usize) {
            let pushed = jump.saturating_add(u32::from(pushed_from));
            if pushed > from {
                self.push(jump.max(from), before);
            }
            if pushed < to {
                self.push(pushed.max(from), after);
            }
        }
    }

    /// A row that says nothing new is none, and one that holds nowhere is replaced.
    fn push(&mut self, address: u32, rule: Rule) {
        if self.rows.last().is_some_and(|row| row.address == address) {
            self.rows.pop();
        }
        let before = self.rows.last().map_or(Rule::NONE, |row| row.rule);
        if before != rule && self.rows.len() <= MOST_ROWS {
            self.rows.push(Row { address, rule });
        }
    }

    /// Half of a function's description is worth nothing: what follows may belong to the wrong addresses.
    fn take_back(&mut self, function: &Function) {
        self.rows.truncate(self.rows.partition_point(|row| row.address < function.start));
        self.add_nothing(function.start, Reason::Malformed);
    }
}

const JUMP_BYTES: u32 = 16;
const MOST_JUMP_TABLE_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: [Segment; 1] = [Segment { file_offset: 0, address: 0x1000, size: 0x1000 }];

    /// Code alignment 1, data alignment -8, return address in register 16; CFA = sp + 8, return address below it.
    const COMMON: [u8; 11] = [1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0];

    /// An `.eh_frame` with absolute addresses.
    #[derive(Default)]
    struct Section(Vec<u8>);

    impl Section {
        fn entry(mut self, id: u32, contents: &[u8]) -> Self {
            self.0.extend((contents.len() as u32 + 4).to_le_bytes());
            self.0.extend(id.to_le_bytes());
            self.0.extend(contents);
            self
        }

        fn common(self) -> Self {
            self.entry(0, &COMMON)
        }

        /// Described by what is common at the very beginning.
        fn function(self, start: u64, size: u64, instructions: &[u8]) -> Self {
            let id = self.0.len() as u32 + 4;
            self.entry(id, &[&start.to_le_bytes(), &size.to_le_bytes(), instructions].concat())
        }

        fn zeros(mut self) -> Self {
            self.0.extend([0; 4]);
            self
        }

        fn compiled(self) -> Compiled {
            rows(&Unwind { address: 0, bytes: self.0, ends_at_zero: false }, &CODE).unwrap()
        }
    }

    fn sp(offset: i64) -> Rule {
        Rule::new(Kind::Sp, offset, FramePointer::Unchanged).unwrap()
    }

    #[track_caller]
    fn check(section: Section, expected: &[(u32, Rule)], skipped: &[Reason]) {
        let compiled = section.compiled();
        let found: Vec<_> = compiled.rows.iter().map(|row| (row.address, row.rule)).collect();
        assert_eq!(found, expected);
        for reason in Reason::ALL {
            let expected = skipped.iter().filter(|expected| **expected == reason).count();
            assert_eq!(compiled.skipped.count(reason) as usize, expected, "{reason:?}");
        }
    }

    const PUSH: [u8; 3] = [0x41, 0x0e, 16];

    #[test]
    fn gaps_say_nothing_and_neighbours_with_the_same_rule_are_one_row() {
        let section = Section::default().common();
        let section = section.function(0x1020, 16, &PUSH).function(0x1000, 16, &PUSH).function(0x1010, 8, &[0x0e, 16]);
        let expected = [
            (0x1000, sp(8)),
            (0x1001, sp(16)),
            (0x1018, Rule::NONE),
            (0x1020, sp(8)),
            (0x1021, sp(16)),
            (0x1030, Rule::NONE),
        ];
        check(section, &expected, &[]);
    }

    #[test]
    fn a_function_ends_where_another_begins_and_the_first_of_two_for_one_place_counts() {
        let section = Section::default().common();
        let section = section.function(0x1000, 0x100, &[]).function(0x1080, 16, &PUSH).function(0x1080, 32, &[]);
        let expected = [(0x1000, sp(8)), (0x1081, sp(16)), (0x1090, Rule::NONE)];
        check(section, &expected, &[Reason::Duplicate]);
    }

    #[test]
    fn a_length_of_zero_in_the_middle_does_not_hide_what_follows() {
        let section = Section::default().common().function(0x1000, 16, &[]).zeros().function(0x1010, 16, &[0x0e, 16]);
        check(section, &[(0x1000, sp(8)), (0x1010, sp(16)), (0x1020, Rule::NONE)], &[]);
    }

    #[test]
    fn code_that_is_nowhere_is_skipped_and_code_that_is_too_long_is_cut() {
        let section = Section::default().common().function(0, 16, &[]).function(1 << 33, 16, &[]);
        let section = section.function(0x1ff0, 0x100, &[]).function(0x1100, 0, &[]);
        check(section, &[(0x1ff0, sp(8)), (0x2000, Rule::NONE)], &[Reason::OutsideCode, Reason::OutsideCode]);
    }

    #[test]
    fn a_damaged_description_says_nothing_about_all_of_its_function() {
        let pops_too_often = [0x41, 0x0e, 16, 0x41, 0x0e, 24, 0x0b];
        let section = Section::default().common().function(0x1000, 16, &[]);
        let section = section.function(0x1010, 16, &pops_too_often).function(0x1020, 16, &PUSH);
        let expected = [(0x1000, sp(8)), (0x1010, Rule::NONE), (0x1020, sp(8)), (0x1021, sp(16)), (0x1030, Rule::NONE)];
        check(section, &expected, &[Reason::Malformed]);
    }

    #[test]
    fn an_entry_without_what_is_common_is_skipped() {
        check(Section::default().function(0x1000, 16, &[]), &[], &[Reason::Malformed]);
        let mut section = Section::default().common().function(0x1000, 16, &[]);
        section.0.extend([40, 0, 0, 0, 1]);
        check(section, &[(0x1000, sp(8)), (0x1010, Rule::NONE)], &[Reason::Malformed]);
    }

    #[test]
    fn what_no_rule_can_say_is_counted_by_reason() {
        let cases: [(&[u8], Reason); 6] = [
            (&[0x0c, 10, 0], Reason::Register),
            (&[0x0e, 12], Reason::Offset),
            (&[0x0e, 0x80, 0x80, 0x80, 1], Reason::Offset),
            (&[0x90, 2], Reason::ReturnAddress),
            (&[0x09, 16, 0], Reason::ReturnAddress),
            (&[0x0f, 2, 0x06, 0x06], Reason::Expression),
        ];
        for (instructions, reason) in cases {
            check(Section::default().common().function(0x1000, 16, instructions), &[], &[reason]);
        }
    }

    #[test]
    fn a_frame_pointer_that_is_lost_is_counted_but_the_rule_stays() {
        let rule = Rule::new(Kind::Sp, 8, FramePointer::Unknown).unwrap();
        let section = Section::default().common().function(0x1000, 16, &[0x07, 6]);
        check(section, &[(0x1000, rule), (0x1010, Rule::NONE)], &[Reason::FramePointer]);
    }

    #[test]
    fn the_outermost_frame_is_an_end() {
        let section = Section::default().common().function(0x1000, 16, &[0x07, 16]);
        check(section, &[(0x1000, Rule::END), (0x1010, Rule::NONE)], &[]);
    }

    #[test]
    fn jump_tables_that_push_elsewhere_get_two_rows_for_each_jump() {
        let table = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x39, 0x2a, 0x33, 0x24, 0x22];
        let section = Section::default().common().function(0x1010, 0x18, &table);
        let expected = [(0x1010, sp(8)), (0x1019, sp(16)), (0x1020, sp(8)), (0x1028, Rule::NONE)];
        check(section, &expected, &[]);
    }

    #[test]
    fn too_many_rows_are_an_error() {
        let table = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x39, 0x2a, 0x33, 0x24, 0x22];
        let mut section = Section::default().common();
        for function in 0..200 {
            section = section.function(function << 20, 1 << 20, &table);
        }
        let code = [Segment { file_offset: 0, address: 0, size: 1 << 30 }];
        assert!(rows(&Unwind { address: 0, bytes: section.0, ends_at_zero: false }, &code).is_err());
    }

    #[test]
    fn remembering_without_end_is_malformed() {
        let section = Section::default().common().function(0x1000, 16, &[0x0a; 1000]);
        check(section, &[], &[Reason::Malformed]);
    }
}
