//! A record is declared once: each field with its column, its unit, its meaning and the version of the trace file it came
//! with. Whoever writes, reads or describes the file follows from the declaration, so a new column is one line.
//!
//! Nothing here knows SQL: a row is a sequence of cells.

mod cells;
pub(crate) mod declare;

pub use cells::{Bits, Cell, CellType, Cells, NotNegative, Plain, Put, Scalar, Share, Take};
pub(crate) use declare::record;

/// A row of a table, as a struct.
pub trait Record: Sized {
    const TABLE: TableFacts;

    /// Every column in the order of the table.
    fn columns() -> Vec<Column>;

    /// Hands over the row. `given` are the cells that the file adds: its own ids and the session.
    fn put<P: Put>(&self, given: &[Cell<'_>], to: &mut P) -> Result<(), P::Error>;

    /// Takes the columns that are not given, in their order. `None` for a row that makes no sense.
    fn take(from: &mut impl Take) -> Option<Self>;
}

/// What a table is, apart from its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFacts {
    pub name: &'static str,
    /// The columns that tell rows apart; none where nothing does.
    pub key: &'static [&'static str],
    /// The version of the file it came with.
    pub since: u32,
    /// What a row is.
    pub description: &'static str,
}

/// A column of a table, as the file and its documentation describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: CellType,
    pub is_optional: bool,
    /// Empty where a value has no unit.
    pub unit: &'static str,
    pub description: &'static str,
    /// The version of the file it came with.
    pub since: u32,
    /// What stands for it in rows of earlier versions, in terms of the row's other columns. `None` is nothing where
    /// the column may be empty, and zero elsewhere.
    pub earlier: Option<&'static str>,
    pub merge: Merge,
    /// Whether the file adds it to what the record says.
    pub is_given: bool,
}

/// What becomes of a column when a row with the same key is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The first value stays.
    Keep,
    Add,
    Least,
    Most,
    Last,
}

impl Column {
    /// A column since the first version, with a value in each row.
    pub const fn new(name: &'static str, kind: CellType, description: &'static str) -> Self {
        let (unit, since, earlier, merge) = ("", 1, None, Merge::Keep);
        Self { name, kind, is_optional: false, unit, description, since, earlier, merge, is_given: false }
    }

    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub const fn since(self, since: u32) -> Self {
        Self { since, ..self }
    }

    pub const fn earlier(self, earlier: &'static str) -> Self {
        Self { earlier: Some(earlier), ..self }
    }

    pub const fn merge(self, merge: Merge) -> Self {
        Self { merge, ..self }
    }

    pub const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }
}
