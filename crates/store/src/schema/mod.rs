//! What is in a trace file: the statements that create it and the words that describe it, from one declaration.

mod markdown;
mod migrate;
pub(crate) mod older_ops;
mod table;
mod tables;
mod views;

use std::sync::LazyLock;

use gpuwhy_model::{CollectiveCapture, CollectiveReplay, CollectiveWait, Column, Record, TableFacts};
use rusqlite::{Connection, params};

pub use markdown::{schema_markdown, table_markdown};
pub use migrate::SCHEMA_VERSION;
pub(crate) use migrate::migrate;
pub use table::Table;
pub(crate) use table::otherwise;
pub(crate) use tables::NOTE_KIND;
pub use tables::describing_tables;

/// "gpwy": marks a SQLite file as a trace.
pub const APPLICATION_ID: u32 = u32::from_be_bytes(*b"gpwy");

/// Every table, then every view.
static ALL: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let own = gpuwhy_apis::own_operands();
    let mut all = tables::tables(&own);
    all.extend(views::views(&all, &own));
    all
});

/// Fills an empty database, all or nothing.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    tables().try_for_each(|table| transaction.execute_batch(&table.create_sql()))?;
    tables::INDEXES.iter().try_for_each(|index| transaction.execute_batch(&index.create_sql()))?;
    create_views(&transaction)?;
    describe(&transaction, ALL.iter())?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// The tables of this version, without views.
pub(crate) fn tables() -> impl Iterator<Item = &'static Table> {
    ALL.iter().filter(|table| table.view.is_none())
}

fn views() -> impl Iterator<Item = &'static Table> {
    ALL.iter().filter(|table| table.view.is_some())
}

/// The columns of a view, in order. Files of earlier versions are seen with the same.
pub fn view_columns(view: &str) -> &'static [Column] {
    views().find(|listed| listed.facts.name == view).map_or(&[], |view| &view.columns)
}

/// Whether its rows are about calls, and told apart by their starts.
pub(crate) fn is_of_calls(table: &str) -> bool {
    const OF_OPERATIONS: &[TableFacts] = &[CollectiveCapture::TABLE, CollectiveReplay::TABLE, CollectiveWait::TABLE];
    OF_OPERATIONS.iter().any(|of| of.name == table) || gpuwhy_apis::own_operands().iter().any(|own| own.table == table)
}

/// How many columns a table has.
pub(crate) fn width(table: &str) -> usize {
    tables().find(|listed| listed.facts.name == table).map_or(0, |table| table.columns.len())
}

/// This version's views over tables of any version, which may lack an index that only makes them faster.
pub(crate) fn temporary_views() -> String {
    let views: String = views().map(Table::create_sql).collect();
    let temporary = views.replace("CREATE VIEW ", "CREATE TEMP VIEW ");
    tables::INDEXES.iter().fold(temporary, |sql, index| sql.replace(&format!(" INDEXED BY {}", index.name), ""))
}

fn create_views(connection: &Connection) -> rusqlite::Result<()> {
    views().try_for_each(|view| connection.execute_batch(&view.create_sql()))
}

/// Drops the views that a file of an earlier version has.
fn drop_views(connection: &Connection) -> rusqlite::Result<()> {
    let there = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = ?";
    for view in views().map(|view| view.facts.name) {
        if connection.query_row(there, [view], |row| row.get::<_, i64>(0))? > 0 {
            connection.execute_batch(&format!("DROP VIEW {view}"))?;
        }
    }
    Ok(())
}

/// Says of each table what it is, in the file itself.
pub fn describe<'t>(connection: &Connection, all: impl IntoIterator<Item = &'t Table>) -> rusqlite::Result<()> {
    let mut tables = connection.prepare("INSERT INTO schema_tables VALUES (?, ?, ?)")?;
    let mut columns = connection.prepare("INSERT INTO schema_columns VALUES (?, ?, ?, NULLIF(?, ''), ?)")?;
    for table in all {
        let name = table.facts.name;
        tables.execute(params![name, table.kind(), table.facts.description])?;
        for column in &table.columns {
            columns.execute(params![name, column.name, column.kind.as_str(), column.unit, column.description])?;
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
    fn the_file_describes_exactly_what_is_in_it() {
        let real = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'";
        assert_eq!(rows(&fresh(), real), rows(&fresh(), "SELECT name, kind FROM schema_tables"));
        let real = "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
            WHERE t.type IN ('table', 'view') AND t.name NOT LIKE 'sqlite_%'";
        assert_eq!(rows(&fresh(), real), rows(&fresh(), "SELECT table_name, column_name FROM schema_columns"));
    }

    #[test]
    fn every_column_says_what_it_is() {
        for table in ALL.iter() {
            assert!(table.facts.description.ends_with('.'), "{}", table.facts.name);
            let names: BTreeSet<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), table.columns.len(), "{} has two columns of one name", table.facts.name);
            for column in &table.columns {
                assert!(!column.description.is_empty(), "{}.{}", table.facts.name, column.name);
            }
        }
    }

    #[test]
    fn a_column_that_came_later_stands_after_those_before_it() {
        for table in tables() {
            let versions: Vec<u32> = table.columns.iter().map(|column| column.since.max(table.facts.since)).collect();
            assert!(versions.is_sorted(), "{}: {versions:?}", table.facts.name);
            assert!(versions.iter().all(|since| *since <= SCHEMA_VERSION), "{}", table.facts.name);
        }
    }

    #[test]
    fn every_duration_and_time_names_its_unit() {
        for table in ALL.iter() {
            for column in table.columns.iter().filter(|column| column.name.ends_with("_ns")) {
                assert!(column.unit.starts_with("ns"), "{}.{}", table.facts.name, column.name);
            }
        }
    }

    #[test]
    fn thread_usage_has_one_column_per_wait_reason_in_their_order() {
        let usage = ALL.iter().find(|table| table.facts.name == "thread_usage").unwrap();
        let columns: Vec<&str> = usage.columns.iter().map(|column| column.name).collect();
        let reasons: Vec<String> = WaitReason::ALL.iter().map(|reason| format!("{reason}_ns")).collect();
        assert_eq!(columns[4..4 + WaitReason::COUNT], reasons);
    }

    #[test]
    fn thread_usage_has_one_column_per_kind_of_work_in_their_order() {
        let usage = ALL.iter().find(|table| table.facts.name == "thread_usage").unwrap();
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
            let table = ALL.iter().find(|listed| listed.facts.name == table).unwrap();
            let column = table.columns.iter().find(|listed| listed.name == column).unwrap();
            for word in words {
                assert!(column.description.contains(&format!("`{word}`")), "{}: {word}", table.facts.name);
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
