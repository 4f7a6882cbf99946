//! Bringing the file of an earlier version up to this one.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{create_views, describe, list};

/// What leads from each version's tables to the next one's, from version 1 on. A new version is a file and a line.
/// Views and descriptions are made anew and need no migration. Rows are written by position: an added column is the
/// last one in `tables.sql`, too.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/1_to_2.sql"),
    include_str!("migrations/2_to_3.sql"),
    include_str!("migrations/3_to_4.sql"),
    include_str!("migrations/4_to_5.sql"),
];

/// The newest layout this program knows. Files say which one they have in `PRAGMA user_version`.
pub const SCHEMA_VERSION: u32 = 1 + MIGRATIONS.len() as u32;

/// Migrates a file that has version `found`, all or nothing.
pub(crate) fn migrate(connection: &Connection, found: u32) -> rusqlite::Result<()> {
    // A log that a killed tracer left would hide the new version from those who look at the head of the file only.
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    drop_views(&transaction)?;
    for statements in MIGRATIONS.iter().skip(found.saturating_sub(1) as usize) {
        transaction.execute_batch(statements)?;
    }
    create_views(&transaction)?;
    transaction.execute_batch("DELETE FROM schema_tables; DELETE FROM schema_columns;")?;
    describe(&transaction)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

fn drop_views(connection: &Connection) -> rusqlite::Result<()> {
    let mut views = list::TABLES.iter().filter(|table| table.kind == "view").map(|view| view.name);
    views.try_for_each(|view| connection.execute_batch(&format!("DROP VIEW IF EXISTS {view}")))
}
