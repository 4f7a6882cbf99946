//! Files of earlier versions, seen as if they were of this one: what they lack is empty. The file is left as it is; the
//! stand-ins live in the connection, where they come before the file's own tables of the same name.

use std::collections::BTreeSet;

use rusqlite::{Connection, Result};

use crate::schema::{self, Table};

/// What stands for the kind of a note, as the migration fills it.
pub(crate) const NOTE_KIND: &str =
    "CASE WHEN text GLOB 'attached *' OR text GLOB 'tracing *' THEN 'attached' ELSE 'other' END";

/// Puts stand-ins before every table that has fewer columns than today's, or is not there, and today's views over them.
pub(crate) fn stand_in(connection: &Connection) -> Result<()> {
    // Changing it later would delete the stand-ins.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    for table in schema::tables() {
        let columns = columns(connection, table.name)?;
        if table.columns.iter().any(|column| !columns.contains(column.name)) {
            connection.execute_batch(&view_of(table, &columns))?;
        }
    }
    connection.execute_batch(&schema::temporary_views())
}

fn columns(connection: &Connection, table: &str) -> Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?, 'main')")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

fn view_of(table: &Table, there: &BTreeSet<String>) -> String {
    let column = |name: &'static str| match there.contains(name) {
        true => name.to_owned(),
        false if table.name == "warnings" && name == "kind" => format!("{NOTE_KIND} AS kind"),
        false => format!("{} AS {name}", otherwise(name)),
    };
    let selected: Vec<String> = table.columns.iter().map(|listed| column(listed.name)).collect();
    let source = if there.is_empty() { "WHERE 0".to_owned() } else { format!("FROM main.{}", table.name) };
    format!("CREATE TEMP VIEW {} AS SELECT {} {source}", table.name, selected.join(", "))
}

/// As the migrations fill a column that is new.
fn otherwise(column: &str) -> &'static str {
    match column {
        // The first version saw every call.
        "estimate" => "count",
        "variance" => "0.0",
        "major_faults" => "0",
        _ if column.ends_with("_ns") => "0",
        _ => "NULL",
    }
}
