//! What is in a cluster's file, and the words that describe it in the file itself.

use std::sync::LazyLock;

use gpuwhy_fleet::SUMS;
use gpuwhy_model::{CellType, Column, TableFacts};
use gpuwhy_store::{Table, describe, describing_tables, table_markdown};
use rusqlite::Connection;

use crate::levels::LEVELS;

/// "gpwf": marks a SQLite file as what a fleet keeps.
pub const APPLICATION_ID: u32 = u32::from_be_bytes(*b"gpwf");
pub const VERSION: u32 = 1;

const EPOCH: &str = "ns since epoch";

static ALL: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let own = [workers(), labels(), told(), events(), marks()];
    own.into_iter()
        .chain(LEVELS.iter().map(|level| spans(level.table, level.description)))
        .chain(describing_tables())
        .collect()
});

const INDEXES: &[&str] =
    &["CREATE INDEX events_time ON events (at_ns)", "CREATE INDEX labels_of ON labels (key, value)"];

/// Fills an empty database, all or nothing.
pub fn create(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    ALL.iter().try_for_each(|table| transaction.execute_batch(&table.create_sql()))?;
    INDEXES.iter().try_for_each(|index| transaction.execute_batch(index))?;
    describe(&transaction, ALL.iter())?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// The tables as a part of a page.
pub fn tables_markdown() -> String {
    ALL.iter().map(table_markdown).collect()
}

fn table(name: &'static str, key: &'static [&'static str], description: &'static str, columns: Vec<Column>) -> Table {
    Table { facts: TableFacts { name, key, since: 1, description }, columns, view: None }
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    Column::new(name, CellType::Integer, description)
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column::new(name, CellType::Text, description)
}

fn workers() -> Table {
    let columns = vec![
        integer("worker", "Its number: the same wherever the same process of the same node is told of."),
        text("node", "The node."),
        integer("pid", "The process, as its node calls it."),
        text("comm", "What the process is called."),
        integer("device", "Which GPU, as its program counts them.").optional(),
        text("gpu", "What kind of GPU.").optional(),
        integer("first_ns", "When it was first heard.").unit(EPOCH),
    ];
    table("workers", &["worker"], "Processes that feed a GPU.", columns)
}

fn labels() -> Table {
    let columns = vec![
        integer("worker", "`workers.worker`."),
        text("key", "What the label is called: job, pod, rank, user."),
        text("value", "What it says."),
    ];
    table("labels", &["worker", "key"], "What their surroundings call them.", columns)
}

fn told() -> Table {
    let until =
        integer("until_ns", "The last second that it told, by the clock of its node. What is older has been counted.");
    table(
        "told",
        &["worker"],
        "How far each worker has told.",
        vec![integer("worker", "`workers.worker`."), until.unit(EPOCH)],
    )
}

fn events() -> Table {
    let columns = vec![
        integer("event", "Names the event."),
        integer("at_ns", "When it was noticed.").unit(EPOCH),
        text("node", "The node."),
        integer("pid", "The process that it is about.").optional(),
        text("kind", "What happened: node-came, rank-became-late, found and others, as `ask events` tells them."),
        text("details", "The object that `ask events` tells."),
    ];
    table("events", &["event"], "What happened.", columns)
}

fn marks() -> Table {
    let columns =
        vec![text("name", "`journal`, or of a level: what begins it and what ends it."), integer("value", "A number.")];
    table("marks", &["name"], "How far the file is, for whoever writes it.", columns)
}

fn spans(name: &'static str, description: &'static str) -> Table {
    let key = [integer("start_ns", "When the window begins.").unit(EPOCH), integer("worker", "`workers.worker`.")];
    let sums = SUMS.iter().map(|sum| integer(sum.name, sum.help).unit(sum.unit));
    table(name, &["start_ns", "worker"], description, key.into_iter().chain(sums).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_describes_what_is_in_it() {
        let connection = Connection::open_in_memory().unwrap();
        create(&connection).unwrap();
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let real = "SELECT count(*) FROM sqlite_schema AS t, pragma_table_info(t.name) WHERE t.type = 'table'";
        assert_eq!(count(real), count("SELECT count(*) FROM schema_columns"));
        assert_eq!(count("SELECT count(*) FROM schema_tables WHERE description = ''"), 0);
        assert!(tables_markdown().contains("spans_10m"));
    }
}
