//! Rows that are too many to be kept, one look at each.

use std::borrow::Cow;
use std::time::Duration;

use rusqlite::Row;
use rusqlite::types::{Value as Parameter, ValueRef};

use crate::{Limits, QueryError, Trace, Value};

/// A row while it is looked at.
pub struct Cells<'r> {
    row: &'r Row<'r>,
    names: &'r [String],
}

impl Trace {
    /// Runs a statement of our own, with values for its `?`, in order. It ends with the first row that `look` fails at, and has
    /// no other end in time, rows or bytes.
    pub fn each<E: From<QueryError>>(
        &self,
        sql: &str,
        values: &[Value],
        mut look: impl FnMut(&Cells<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let limits = Limits { time: Duration::MAX, rows: usize::MAX, bytes: usize::MAX };
        let mut failed = None;
        self.watched(&limits, |connection| {
            let mut statement = connection.prepare(sql)?;
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let values = values.iter().cloned().map(Parameter::from);
            let mut rows = statement.query(rusqlite::params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                if let Err(error) = look(&Cells { row, names: &names }) {
                    failed = Some(error);
                    break;
                }
            }
            Ok(())
        })?;
        failed.map_or(Ok(()), Err)
    }
}

impl<'r> Cells<'r> {
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn name(&self, at: usize) -> &'r str {
        self.names.get(at).map_or("", String::as_str)
    }

    pub fn value(&self, at: usize) -> Value {
        self.cell(at).into()
    }

    pub fn integer(&self, at: usize) -> Option<i64> {
        if let ValueRef::Integer(number) = self.cell(at) { Some(number) } else { None }
    }

    /// A small number that is never below 0, such as a process id.
    pub fn number(&self, at: usize) -> Option<u32> {
        self.integer(at).and_then(|number| u32::try_from(number).ok())
    }

    /// A time or a duration; 0 where there is none.
    pub fn ns(&self, at: usize) -> u64 {
        self.integer(at).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
    }

    pub fn real(&self, at: usize) -> Option<f64> {
        match self.cell(at) {
            ValueRef::Real(number) => Some(number),
            ValueRef::Integer(number) => Some(number as f64),
            _ => None,
        }
    }

    pub fn text(&self, at: usize) -> Option<Cow<'r, str>> {
        if let ValueRef::Text(text) = self.cell(at) { Some(String::from_utf8_lossy(text)) } else { None }
    }

    fn cell(&self, at: usize) -> ValueRef<'r> {
        self.row.get_ref(at).unwrap_or(ValueRef::Null)
    }
}
