//! A consistent look at the file: which columns it has, and rows of a span within a bound.

use std::collections::BTreeSet;

use gpuwhy_model::{Column, Record, Span};
use gpuwhy_window::Covered;
use rusqlite::{Connection, Params, Row};

use crate::schema;

/// How many equal parts of a span give equal numbers of rows.
const SLICES: u64 = 64;

pub(crate) struct Source<'c> {
    connection: &'c Connection,
    /// `table.column` for every column there is. Files of earlier versions have fewer.
    columns: BTreeSet<String>,
}

impl<'c> Source<'c> {
    pub fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
            WHERE t.type = 'table'";
        let mut statement = connection.prepare(sql)?;
        let columns = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(Self { connection, columns })
    }

    pub fn has(&self, table: &str, column: &str) -> bool {
        self.columns.contains(&format!("{table}.{column}"))
    }

    /// The column, or what stands for it in files without it.
    pub fn column_or(&self, table: &str, column: &str, otherwise: &str) -> String {
        let name = if self.has(table, column) { column } else { otherwise };
        name.to_owned()
    }

    /// Reads the columns of a record after `before`, as far as the file has them, for [`read`](crate::cells::read).
    pub fn select<R: Record>(&self, before: &str) -> String {
        let table = R::TABLE.name;
        let column = |column: &Column| self.column_or(table, column.name, schema::otherwise(column));
        let own = R::columns().iter().filter(|column| !column.is_given).map(column).collect::<Vec<_>>().join(", ");
        format!("SELECT {before}{own} FROM {table}")
    }

    pub fn each(
        &self,
        sql: &str,
        parameters: impl Params,
        mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    }

    /// A record's columns, from a start to an end, so many at most.
    pub fn select_in_time<R: Record>(&self) -> String {
        format!("{} WHERE start_ns >= ? AND start_ns < ? ORDER BY start_ns LIMIT ?", self.select::<R>(""))
    }

    /// A number that may not be there.
    pub fn number(&self, sql: &str) -> rusqlite::Result<Option<u64>> {
        let number: Option<i64> = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    }

    /// At most `most` rows of a span, in the order of time. `sql` takes a start, an end and a number of rows, and its
    /// first column is a row's time.
    pub fn covered<T>(
        &self,
        sql: &str,
        span: Span,
        most: usize,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Option<T>>,
    ) -> rusqlite::Result<Covered<T>> {
        let mut statement = self.connection.prepare(sql)?;
        let mut covered = Covered::default();
        let mut taken = 0;
        for (slice, left) in slices(span).zip((1..=SLICES as usize).rev()) {
            let allowed = (most.saturating_sub(taken)) / left;
            let mut rows = statement.query([signed(slice.from_ns), signed(slice.to_ns), allowed as i64])?;
            let (mut count, mut last_ns) = (0, slice.from_ns);
            while let Some(row) = rows.next()? {
                (count, last_ns) = (count + 1, unsigned(row, 0)?);
                covered.rows.extend(read(row)?);
            }
            taken += count;
            let to_ns = if count < allowed { slice.to_ns } else { last_ns };
            join(&mut covered.spans, Span { from_ns: slice.from_ns, to_ns });
        }
        Ok(covered)
    }
}

/// Equal parts; the last one takes what does not divide.
fn slices(span: Span) -> impl Iterator<Item = Span> {
    let length = span.ns() / SLICES;
    (0..SLICES).map(move |at| {
        let from_ns = span.from_ns + at * length;
        let to_ns = if at + 1 == SLICES { span.to_ns } else { from_ns + length };
        Span { from_ns, to_ns }
    })
}

fn join(spans: &mut Vec<Span>, next: Span) {
    match spans.last_mut() {
        _ if next.to_ns <= next.from_ns => {}
        Some(last) if last.to_ns == next.from_ns => last.to_ns = next.to_ns,
        _ => spans.push(next),
    }
}

/// SQLite's integers are signed; a time beyond is cut.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Times, durations and counts are never negative; one that is counts as none.
pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

/// Handles and addresses use all bits of a number.
pub(crate) fn bits(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

/// Ids are small numbers; one that is not belongs to nothing.
pub(crate) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u32>> {
    Ok(row.get::<_, Option<i64>>(column)?.and_then(|id| u32::try_from(id).ok()))
}

/// The value whose word is in the file; `None` for words of other versions.
pub(crate) fn word<T: Copy + 'static>(
    row: &Row<'_>,
    column: usize,
    all: &'static [T],
    as_str: fn(T) -> &'static str,
) -> rusqlite::Result<Option<T>> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    Ok(text.and_then(|text| all.iter().copied().find(|&value| as_str(value) == text)))
}
