//! Bringing the file of an earlier version up to this one.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{ALL, create_views, describe, drop_views, tables};

/// The newest layout this program knows. Files say which one they have in `PRAGMA user_version`. A version that adds tables
/// and columns says so where they are declared, and here.
pub const SCHEMA_VERSION: u32 = 9;

/// Migrates a file that has version `found`, all or nothing. Views and descriptions are made anew.
pub(crate) fn migrate(connection: &Connection, found: u32) -> rusqlite::Result<()> {
    // A log that a killed tracer left would hide the new version from those who look at the head of the file only.
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    drop_views(&transaction)?;
    for (table, _) in tables::TAKEN_OUT.iter().filter(|(_, gone_in)| *gone_in > found) {
        transaction.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    for table in super::tables() {
        table.additions_since(found).iter().try_for_each(|sql| transaction.execute_batch(sql))?;
    }
    let mut indexes = tables::INDEXES.iter().filter(|index| index.since > found);
    indexes.try_for_each(|index| transaction.execute_batch(&index.create_sql()))?;
    create_views(&transaction)?;
    transaction.execute_batch("DELETE FROM schema_tables; DELETE FROM schema_columns;")?;
    describe(&transaction, ALL.iter())?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}
