//! Rows of records: the statements that store them, from their declarations.

use gpuwhy_model::{Cell, Column, Merge, Record};
use rusqlite::Connection;

use crate::cells::Binding;

/// A statement that stores a row of a record.
pub(super) struct Insert {
    sql: String,
    /// Whether the file adds its own cells.
    has_given: bool,
}

impl Insert {
    /// A row whose key is there already is an error.
    pub fn new<R: Record>() -> Self {
        Self::ending::<R>("")
    }

    /// A row whose key is there already is merged with it, column by column, or left out if no column says how. `special` are columns whose merged value
    /// depends on others.
    pub fn merging<R: Record>(special: &[(&str, &str)]) -> Self {
        Self::ending::<R>(&merge_sql(&R::columns(), special))
    }

    fn ending<R: Record>(end: &str) -> Self {
        let columns = R::columns();
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {} VALUES ({places}){end}", R::TABLE.name);
        Self { sql, has_given: columns.iter().any(|column| column.is_given) }
    }

    /// Stores a row; `given` goes to the columns that the file adds, if there are any. Returns the bytes of its texts.
    pub fn row<R: Record>(&self, connection: &Connection, given: &[Cell<'_>], record: &R) -> rusqlite::Result<usize> {
        let mut statement = connection.prepare_cached(&self.sql)?;
        let mut binding = Binding::new(&mut statement);
        record.put(if self.has_given { given } else { &[] }, &mut binding)?;
        let text_bytes = binding.text_bytes();
        statement.raw_execute()?;
        Ok(text_bytes)
    }
}

fn merge_sql(columns: &[Column], special: &[(&str, &str)]) -> String {
    let declared = columns.iter().filter_map(|column| merged(column).map(|sql| format!("{} = {sql}", column.name)));
    let special = special.iter().map(|(name, sql)| format!("{name} = {sql}"));
    let columns: Vec<String> = declared.chain(special).collect();
    match columns.is_empty() {
        // Two ranks can do something in the same nanosecond.
        true => " ON CONFLICT DO NOTHING".to_owned(),
        false => format!(" ON CONFLICT DO UPDATE SET {}", columns.join(", ")),
    }
}

fn merged(column: &Column) -> Option<String> {
    let name = column.name;
    match column.merge {
        Merge::Keep => None,
        Merge::Add => Some(format!("{name} + excluded.{name}")),
        Merge::Least => Some(format!("min({name}, excluded.{name})")),
        Merge::Most => Some(format!("max({name}, excluded.{name})")),
        Merge::Last => Some(format!("excluded.{name}")),
    }
}
