//! What is in a trace file: the statements that create it and the words that describe it.

mod list;
mod markdown;
mod migrate;
pub(crate) mod older_ops;

use rusqlite::{Connection, params};

pub use markdown::schema_markdown;
pub use migrate::SCHEMA_VERSION;
pub(crate) use migrate::migrate;

/// "gpwy": marks a SQLite file as a trace.
pub const APPLICATION_ID: u32 = u32::from_be_bytes(*b"gpwy");

const TABLES: &str = include_str!("tables.sql");
const VIEWS: &str = include_str!("views.sql");

/// A table or view, as described in the file itself and in `docs/schema.md`.
pub(crate) struct Table {
    pub name: &'static str,
    pub kind: &'static str,
    pub description: &'static str,
    pub columns: &'static [Column],
}

pub(crate) struct Column {
    pub name: &'static str,
    pub kind: &'static str,
    /// Empty where a value has no unit.
    pub unit: &'static str,
    pub description: &'static str,
}

/// Fills an empty database, all or nothing.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(TABLES)?;
    create_views(&transaction)?;
    describe(&transaction)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// The tables of this version, without views.
pub(crate) fn tables() -> impl Iterator<Item = &'static Table> {
    list::TABLES.iter().filter(|table| table.kind == "table")
}

/// This version's views over tables of any version, which may lack an index that only makes them faster.
pub(crate) fn temporary_views() -> String {
    VIEWS.replace("CREATE VIEW ", "CREATE TEMP VIEW ").replace(" INDEXED BY calls_stacks", "")
}

fn create_views(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(VIEWS)
}

fn describe(connection: &Connection) -> rusqlite::Result<()> {
    let mut tables = connection.prepare("INSERT INTO schema_tables VALUES (?, ?, ?)")?;
    let mut columns = connection.prepare("INSERT INTO schema_columns VALUES (?, ?, ?, NULLIF(?, ''), ?)")?;
    for table in list::TABLES {
        tables.execute(params![table.name, table.kind, table.description])?;
        for column in table.columns {
            columns.execute(params![table.name, column.name, column.kind, column.unit, column.description])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::{
        CallClass, FrameKind, GraphStep, Layer, LifeKind, MemoryKind, PythonEnd, Rung, StackMoment, TargetKind,
        WaitReason, WalkEnd, WorkKind,
    };
    use std::collections::BTreeSet;

    fn fresh() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        create(&connection).unwrap();
        connection
    }

    fn rows(connection: &Connection, sql: &str) -> BTreeSet<Vec<String>> {
        let mut statement = connection.prepare(sql).unwrap();
        let width = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..width).map(|at| row.get(at)).collect();
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn the_list_names_exactly_the_tables_and_views_of_the_file() {
        let real = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'";
        assert_eq!(rows(&fresh(), real), rows(&fresh(), "SELECT name, kind FROM schema_tables"));
    }

    #[test]
    fn the_list_names_exactly_the_columns_of_the_file() {
        let real = "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
            WHERE t.type IN ('table', 'view') AND t.name NOT LIKE 'sqlite_%'";
        assert_eq!(rows(&fresh(), real), rows(&fresh(), "SELECT table_name, column_name FROM schema_columns"));
    }

    #[test]
    fn the_list_names_the_columns_in_the_order_and_with_the_types_of_the_tables() {
        let connection = fresh();
        for table in list::TABLES.iter().filter(|table| table.kind == "table") {
            let mut statement = connection.prepare("SELECT name, type FROM pragma_table_info(?)").unwrap();
            let real = statement.query_map([table.name], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            let real: Vec<(String, String)> = real.map(Result::unwrap).collect();
            let listed = table.columns.iter().map(|c| (c.name.to_owned(), c.kind.to_owned()));
            assert_eq!(real, listed.collect::<Vec<_>>(), "{}", table.name);
        }
    }

    #[test]
    fn every_duration_and_time_names_its_unit() {
        for table in list::TABLES {
            for column in table.columns.iter().filter(|column| column.name.ends_with("_ns")) {
                assert!(column.unit.starts_with("ns"), "{}.{}", table.name, column.name);
            }
        }
    }

    #[test]
    fn thread_usage_has_one_column_per_wait_reason_in_their_order() {
        let usage = list::TABLES.iter().find(|table| table.name == "thread_usage").unwrap();
        let columns: Vec<&str> = usage.columns.iter().map(|column| column.name).collect();
        let reasons: Vec<String> = WaitReason::ALL.iter().map(|reason| format!("{reason}_ns")).collect();
        assert_eq!(columns[4..4 + WaitReason::COUNT], reasons);
    }

    #[test]
    fn thread_usage_has_one_column_per_kind_of_work_in_their_order() {
        let usage = list::TABLES.iter().find(|table| table.name == "thread_usage").unwrap();
        let columns: Vec<&str> = usage.columns.iter().map(|column| column.name).collect();
        let first = columns.iter().position(|column| *column == "throttled_ns").unwrap() + 1;
        for (kind, column) in WorkKind::ALL.iter().zip(&columns[first..]) {
            assert!(column.starts_with(kind.as_str()), "{column} for {kind}");
        }
        assert_eq!(columns[first + WorkKind::COUNT], "major_faults");
    }

    #[test]
    fn every_word_of_a_closed_list_is_described() {
        fn words<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> Vec<&'static str> {
            all.iter().map(|&one| word(one)).collect()
        }
        let lists = [
            ("rungs", "rung", words(Rung::ALL, Rung::as_str)),
            ("cuda_events", "layer", words(Layer::ALL, Layer::as_str)),
            ("cuda_events", "class", words(CallClass::ALL, CallClass::as_str)),
            ("ops", "memory", words(MemoryKind::ALL, MemoryKind::as_str)),
            ("ops", "graph_step", words(GraphStep::ALL, GraphStep::as_str)),
            ("sched_events", "blocked_on", words(WaitReason::ALL, WaitReason::as_str)),
            ("sched_events", "target_kind", words(TargetKind::ALL, TargetKind::as_str)),
            ("kernel_events", "kind", words(WorkKind::ALL, WorkKind::as_str)),
            ("process_life", "kind", words(LifeKind::ALL, LifeKind::as_str)),
            ("stack_lines", "kind", words(FrameKind::ALL, FrameKind::as_str)),
            ("call_sites", "kind", words(FrameKind::ALL, FrameKind::as_str)),
            ("stack_stats", "moment", words(StackMoment::ALL, StackMoment::as_str)),
            ("stacks", "end", words(WalkEnd::ALL, WalkEnd::as_str)),
            ("stacks", "python_end", words(PythonEnd::ALL, PythonEnd::as_str)),
        ];
        for (table, column, words) in lists {
            let table = list::TABLES.iter().find(|listed| listed.name == table).unwrap();
            let column = table.columns.iter().find(|listed| listed.name == column).unwrap();
            for word in words {
                assert!(column.description.contains(&format!("`{word}`")), "{}: {word}", table.name);
            }
        }
    }

    #[test]
    fn the_page_in_docs_is_the_one_the_list_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == schema_markdown(), "docs/schema.md is stale: run `cargo run -p xtask -- docs`");
    }
}
