//! Rows of SQLite as cells: how any record is bound to a statement and read from a row.

use std::borrow::Cow;

use gpuwhy_model::{Cell, Put, Record, Take};
use rusqlite::types::{Null, ValueRef};
use rusqlite::{Row, Statement};

/// Rows that are bound to a statement, one after the other.
pub(crate) struct Binding<'s, 'c> {
    statement: &'s mut Statement<'c>,
    bound: usize,
    /// Stands for the next cell.
    instead: Option<i64>,
    text_bytes: usize,
}

impl<'s, 'c> Binding<'s, 'c> {
    pub fn new(statement: &'s mut Statement<'c>) -> Self {
        Self { statement, bound: 0, instead: None, text_bytes: 0 }
    }

    /// Binds a record whose first cell, its start, was moved.
    pub fn bind_at(&mut self, start_ns: i64, record: &impl Record) -> rusqlite::Result<()> {
        self.instead = Some(start_ns);
        record.put(&[], self)
    }

    /// Bytes of all texts so far.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }
}

impl Put for Binding<'_, '_> {
    type Error = rusqlite::Error;

    fn put(&mut self, cell: Cell<'_>) -> rusqlite::Result<()> {
        self.bound += 1;
        match self.instead.take().map_or(cell, Cell::Integer) {
            Cell::Null => self.statement.raw_bind_parameter(self.bound, Null),
            Cell::Integer(value) => self.statement.raw_bind_parameter(self.bound, value),
            Cell::Real(value) => self.statement.raw_bind_parameter(self.bound, value),
            Cell::Text(text) => {
                let text = cut(&text);
                self.text_bytes += text.len();
                self.statement.raw_bind_parameter(self.bound, text)
            }
        }
    }
}

/// Reads a record from the columns of a row, from `first` on; `None` for one that makes no sense.
pub(crate) fn read<R: Record>(row: &Row<'_>, first: usize) -> Option<R> {
    R::take(&mut Reading { row, next: first })
}

struct Reading<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl Take for Reading<'_, '_> {
    fn take(&mut self) -> Cell<'_> {
        let at = self.next;
        self.next += 1;
        match self.row.get_ref(at) {
            Ok(ValueRef::Integer(value)) => Cell::Integer(value),
            Ok(ValueRef::Real(value)) => Cell::Real(value),
            Ok(ValueRef::Text(text)) => str::from_utf8(text).map_or(Cell::Null, |text| Cell::Text(Cow::Borrowed(text))),
            _ => Cell::Null,
        }
    }
}

/// The longest text that is kept whole, so that no row gets too long for a guarded query.
const MOST_TEXT_BYTES: usize = 16 << 10;

/// A text as long as the file takes it.
pub(crate) fn cut(text: &str) -> &str {
    cut_to(MOST_TEXT_BYTES, text)
}

pub(crate) fn cut_to(bytes: usize, text: &str) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
