//! Rows whose start is also their id, so that a time range is an index range. Each start is made unique by moving it a
//! few nanoseconds on.

use rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY;
use rusqlite::{Connection, Statement};

use super::signed;
use crate::schema::width;

/// Rows in one INSERT. More gain nothing.
pub(super) const ROWS: usize = 20;

/// The last start that is stored as it is (in the year 2262). It leaves room to move rows on.
pub(super) const LATEST_NS: u64 = i64::MAX as u64 - (1 << 40);

pub(super) fn insert_rows_sql(table: &str, rows: usize) -> String {
    let row = format!("({})", vec!["?"; width(table)].join(","));
    // FAIL keeps the rows before the one whose start is taken.
    format!("INSERT OR FAIL INTO {table} VALUES {}", vec![row; rows].join(","))
}

/// Inserts the rows bound to the statement up to the first whose start is taken, and says how many that were.
pub(super) fn insert_up_to_taken(connection: &Connection, statement: &mut Statement<'_>) -> rusqlite::Result<usize> {
    match statement.raw_execute() {
        Err(error) if is_taken(&error) => Ok(connection.changes() as usize),
        other => other,
    }
}

fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == SQLITE_CONSTRAINT_PRIMARYKEY)
}

pub(super) fn before_next_free(connection: &Connection, table: &str, taken_ns: u64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(&format!("SELECT 1 FROM {table} WHERE start_ns = ?"))?;
    let mut last_ns = taken_ns;
    while statement.exists([signed(last_ns + 1)])? {
        last_ns += 1;
    }
    Ok(last_ns)
}
