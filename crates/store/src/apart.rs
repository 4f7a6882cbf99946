//! Finished traces as if others had written them, for tests and benchmarks of jobs that run on several hosts.

use std::path::Path;

use rusqlite::Connection;

use crate::schema;

/// Columns that say when something was.
const TIMES: &str = "SELECT table_name, column_name FROM schema_columns JOIN schema_tables ON name = table_name
    WHERE kind = 'table' AND unit = 'ns since epoch'";

/// Tables of what threads did.
const OF_THREADS: &[&str] = &["call_counts", "thread_usage", "stretches", "stack_samples"];

/// As if a process had run elsewhere.
pub fn forget(file: &Path, pid: u32) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    let threads = "SELECT threads.id FROM threads JOIN processes ON processes.id = process_id WHERE pid = ?";
    let calls = format!("DELETE FROM calls WHERE shape_id IN (SELECT id FROM shapes WHERE thread_id IN ({threads}))");
    connection.execute(&calls, [pid])?;
    for table in OF_THREADS {
        connection.execute(&format!("DELETE FROM {table} WHERE thread_id IN ({threads})"), [pid])?;
    }
    for table in schema::tables().map(|table| table.facts.name).filter(|table| schema::is_of_calls(table)) {
        let gone = format!("DELETE FROM {table} WHERE start_ns NOT IN (SELECT start_ns FROM calls)");
        connection.execute(&gone, [])?;
    }
    Ok(())
}

/// As if another host had written it, whose clock is off.
pub fn on_another_host(file: &Path, host: &str, off_ns: i64) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    let mut columns = connection.prepare(TIMES)?;
    let columns: Vec<(String, String)> =
        columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    for (table, column) in columns {
        // In the order that leaves no two rows at one time.
        let far = if off_ns > 0 { i64::MAX / 2 } else { -i64::MAX / 2 };
        for off_ns in [far, off_ns - far] {
            let moved = format!("UPDATE {table} SET {column} = {column} + {off_ns} WHERE {column} <> 0");
            connection.execute(&moved, [])?;
        }
    }
    connection.execute("UPDATE sessions SET host = ?1, boot_id = ?1", [host])?;
    connection.execute("DELETE FROM explanations", [])?;
    Ok(())
}
