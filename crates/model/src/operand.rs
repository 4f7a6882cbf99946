//! Operands that calls of one library have and those of others do not: a communicator, a rank, a count.
//!
//! A library declares them where its functions are declared. They lie in a table of their own, one row for each call
//! that has any: a launch, of which there are a hundred thousand a second, pays nothing for them, and they are real columns
//! with names, types and units for whoever asks in SQL.

use crate::record::{Cell, CellType, Column};

/// What calls of a library have of their own.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnOperands {
    /// The table that holds them, one row for each call: `nccl_operands`.
    pub table: &'static str,
    /// The view that shows the library's calls with them: `nccl_events`, or `cuda_events`.
    pub view: &'static str,
    /// What a row of the view is.
    pub description: &'static str,
    pub operands: &'static [OwnOperand],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnOperand {
    pub column: Column,
    pub kind: OperandKind,
}

/// How the 64 bits that were read become a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandKind {
    /// A size or a count.
    Count,
    /// A C `int`, which may be negative.
    Int,
    /// A handle or an address, of which all bits count.
    Bits,
    /// An enumeration with these words. A number beyond them has no word.
    Word(&'static [&'static str]),
}

/// What was read for one call, in the order of the operands. A function has some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnValues {
    pub of: &'static OwnOperands,
    pub values: Vec<Option<u64>>,
}

impl OwnOperand {
    pub const fn new(name: &'static str, kind: OperandKind, description: &'static str) -> Self {
        let cell = match kind {
            OperandKind::Word(_) => CellType::Text,
            _ => CellType::Integer,
        };
        Self { column: Column::new(name, cell, description).optional(), kind }
    }

    pub const fn unit(self, unit: &'static str) -> Self {
        Self { column: self.column.unit(unit), ..self }
    }

    /// The version of the trace file it came with.
    pub const fn since(self, since: u32) -> Self {
        Self { column: self.column.since(since), ..self }
    }

    pub fn cell(&self, value: Option<u64>) -> Cell<'static> {
        let Some(value) = value else { return Cell::Null };
        match self.kind {
            OperandKind::Count => Cell::Integer(i64::try_from(value).unwrap_or(i64::MAX)),
            // The upper half of a register that holds an `int` may be anything.
            OperandKind::Int => Cell::Integer((value as u32).cast_signed().into()),
            OperandKind::Bits => Cell::Integer(value.cast_signed()),
            OperandKind::Word(words) => {
                let word = usize::try_from(value).ok().and_then(|at| words.get(at));
                word.map_or(Cell::Null, |word| Cell::Text((*word).into()))
            }
        }
    }
}

impl OwnOperands {
    /// The version of the trace file that the table came with.
    pub fn since(&self) -> u32 {
        self.operands.iter().map(|operand| operand.column.since).min().unwrap_or(1)
    }
}

impl OwnValues {
    /// What was read of the operand with a name.
    pub fn value(&self, name: &str) -> Option<u64> {
        let at = self.of.operands.iter().position(|operand| operand.column.name == name)?;
        *self.values.get(at)?
    }

    /// The word for what was read of the operand with a name.
    pub fn word(&self, name: &str) -> Option<&'static str> {
        let operand = self.of.operands.iter().find(|operand| operand.column.name == name)?;
        let OperandKind::Word(words) = operand.kind else { return None };
        words.get(usize::try_from(self.value(name)?).ok()?).copied()
    }

    /// The values as a row has them.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'static>> {
        self.of.operands.iter().zip(&self.values).map(|(operand, value)| operand.cell(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_what_they_are() {
        let shown = |kind, value| OwnOperand::new("x", kind, "").cell(Some(value));
        assert_eq!(shown(OperandKind::Count, u64::MAX), Cell::Integer(i64::MAX));
        assert_eq!(shown(OperandKind::Int, 0xdead_ffff_ffff), Cell::Integer(-1));
        assert_eq!(shown(OperandKind::Bits, u64::MAX), Cell::Integer(-1));
        assert_eq!(shown(OperandKind::Word(&["sum", "prod"]), 1), Cell::Text("prod".into()));
        assert_eq!(shown(OperandKind::Word(&["sum", "prod"]), 2), Cell::Null);
    }
}
