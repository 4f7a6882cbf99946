//! The views: what people read. A column that comes from a table as it is keeps the table's words, unless it has its own.

mod calls;
mod collectives;
mod samples;
mod stacks;
mod waits;

use gpuwhy_model::{CellType, Column, OwnOperands, TableFacts};

use super::table::Table;

/// All of them, in the order of the documentation.
const VIEWS: &[&[View]] = &[calls::VIEWS, collectives::VIEWS, waits::VIEWS, stacks::VIEWS, samples::VIEWS];

/// A query that has a name.
#[derive(Clone, Copy)]
struct View {
    name: &'static str,
    description: &'static str,
    columns: &'static [ViewColumn],
    /// All of the query after the word FROM.
    from: &'static str,
}

#[derive(Clone, Copy)]
enum ViewColumn {
    /// From a table as it is, with the table's words where it has none of its own.
    Carried {
        name: &'static str,
        table: &'static str,
        column: &'static str,
        words: Option<&'static str>,
    },
    Computed {
        name: &'static str,
        sql: &'static str,
        kind: CellType,
        unit: &'static str,
        words: &'static str,
    },
    /// Every other column of a table that is not an id.
    Rest {
        table: &'static str,
    },
}

/// Declares views: `name: table.column` carries a column, `name = "sql" TYPE "unit" "words"` computes one, and `..table` stands
/// for the rest of a table.
macro_rules! declared_views {
    ($($name:ident $description:literal { $($(..$rest:ident)? $($column:ident $(: $table:ident.$from:ident $($words:literal)?)?
        $(= $sql:literal $kind:ident $unit:literal $meaning:literal)?)?;)+ } from $source:literal;)+) => {
        &[$(View {
            name: stringify!($name),
            description: $description,
            columns: &[$(declared_views!(@ $(..$rest)? $($column $(: $table.$from $($words)?)? $(= $sql $kind $unit $meaning)?)?)),+],
            from: $source,
        }),+]
    };
    (@ ..$table:ident) => { super::ViewColumn::Rest { table: stringify!($table) } };
    (@ $name:ident: $table:ident.$column:ident) => { declared_views!(@carried $name $table $column None) };
    (@ $name:ident: $table:ident.$column:ident $words:literal) => { declared_views!(@carried $name $table $column Some($words)) };
    (@carried $name:ident $table:ident $column:ident $words:expr) => {
        super::ViewColumn::Carried {
            name: stringify!($name),
            table: stringify!($table),
            column: stringify!($column),
            words: $words,
        }
    };
    (@ $name:ident = $sql:literal $kind:ident $unit:literal $words:literal) => {
        super::ViewColumn::Computed {
            name: stringify!($name),
            sql: $sql,
            kind: crate::schema::table::cell_type!($kind),
            unit: $unit,
            words: $words,
        }
    };
}
use declared_views;

/// The view of all calls.
const CALLS: &str = "cuda_events";

/// The views over these tables, with one for each library whose calls have something of their own and no view that is
/// declared.
pub(super) fn views(tables: &[Table], own: &[&OwnOperands]) -> Vec<Table> {
    let declared = VIEWS.concat();
    let mut views: Vec<Table> = Vec::new();
    for view in &declared {
        let mut query = view.query(tables);
        own.iter().filter(|own| own.view == view.name && own.view == CALLS).for_each(|own| query.show(own));
        views.push(query.named(view.name, view.description));
    }
    for own in own.iter().filter(|own| declared.iter().all(|view| view.name != own.view)) {
        let calls = declared.iter().find(|view| view.name == CALLS).map(|view| view.query(tables));
        views.extend(calls.map(|calls| calls.of_own(own).named(own.view, own.description)));
    }
    views
}

/// What a view selects.
struct Query {
    /// Each column with what it is computed from.
    columns: Vec<(String, Column)>,
    from: String,
}

impl Query {
    fn named(self, name: &'static str, description: &'static str) -> Table {
        let selected: Vec<String> =
            self.columns.iter().map(|(sql, column)| format!("  {sql} AS {}", column.name)).collect();
        Table {
            facts: TableFacts { name, key: &[], since: 1, description },
            columns: self.columns.into_iter().map(|(_, column)| column).collect(),
            view: Some(format!("CREATE VIEW {name} AS\nSELECT\n{}\nFROM {};", selected.join(",\n"), self.from)),
        }
    }

    /// Shows what some of the calls have of their own.
    fn show(&mut self, own: &OwnOperands) {
        self.columns.extend(own_columns(own));
        self.from.push_str(&format!("\nLEFT JOIN {0} ON {0}.start_ns = calls.start_ns", own.table));
    }

    /// Of all calls, those that have something of their own: they are found by it.
    fn of_own(mut self, own: &OwnOperands) -> Self {
        self.columns.extend(own_columns(own));
        let rest = self.from.strip_prefix("calls\n").unwrap_or(&self.from);
        let from = format!("{0}\nCROSS JOIN calls ON calls.start_ns = {0}.start_ns\n{rest}", own.table);
        Self { from, ..self }
    }
}

fn own_columns(own: &OwnOperands) -> impl Iterator<Item = (String, Column)> {
    own.operands.iter().map(|operand| (format!("{}.{}", own.table, operand.column.name), operand.column))
}

impl View {
    fn query(&self, tables: &[Table]) -> Query {
        let from = self.from.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
        Query { columns: self.columns(tables), from }
    }

    /// Each column with what it is computed from.
    fn columns(&self, tables: &[Table]) -> Vec<(String, Column)> {
        let mut columns = Vec::new();
        for column in self.columns {
            match *column {
                ViewColumn::Carried { name, table, column, words } => {
                    let listed = tables.iter().find(|listed| listed.facts.name == table);
                    let found = listed.and_then(|table| table.column(column)).copied();
                    // A test looks for columns that are nowhere.
                    let found = found.unwrap_or(Column::new(column, CellType::Text, ""));
                    let description = words.unwrap_or(found.description);
                    columns.push((format!("{table}.{column}"), Column { name, description, ..found }));
                }
                ViewColumn::Computed { name, sql, kind, unit, words } => {
                    columns.push((sql.to_owned(), Column::new(name, kind, words).unit(unit)));
                }
                ViewColumn::Rest { table } => {
                    let listed = tables.iter().filter(|listed| listed.facts.name == table);
                    let rest = listed.flat_map(|table| &table.columns).filter(|column| self.lacks(table, column));
                    columns.extend(rest.map(|column| (format!("{table}.{}", column.name), *column)));
                }
            }
        }
        columns
    }

    /// Whether a column of a table is shown neither by this name nor by another, and is not an id.
    fn lacks(&self, table: &str, column: &Column) -> bool {
        let is_shown = |shown: &ViewColumn| match *shown {
            ViewColumn::Carried { name, table: from, column: carried, .. } => {
                name == column.name || (from == table && carried == column.name)
            }
            ViewColumn::Computed { name, .. } => name == column.name,
            ViewColumn::Rest { .. } => false,
        };
        !column.name.ends_with("_id") && !self.columns.iter().any(is_shown)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::tables;
    use super::*;
    use gpuwhy_model::{OperandKind, OwnOperand};
    use rusqlite::Connection;

    const RANK: OwnOperand = OwnOperand::new("rank", OperandKind::Int, "The rank.").since(5);

    const fn own(view: &'static str) -> OwnOperands {
        OwnOperands { table: "fake_operands", view, description: "One row per call.", operands: &[RANK] }
    }

    const ROWS: &str = "
        INSERT INTO processes (id, session_id, pid, parent_pid, started_ns, uid, comm, exe, cmdline, cgroup_id, cgroup)
          VALUES (1, 1, 7, 0, 0, 0, '', '', '', 0, '');
        INSERT INTO threads VALUES (1, 1, 7, '');
        INSERT INTO ops (id, name, layer, class, is_launch, is_async, is_wait, is_followed)
          VALUES (1, 'fakeReduce', 'runtime', 'sync', 0, 0, 1, 0);
        INSERT INTO shapes (id, session_id, thread_id, op_id) VALUES (1, 1, 1, 1);
        INSERT INTO calls (start_ns, duration_ns, runqueue_ns, blocked_ns, shape_id, ret_code)
          VALUES (10, 1, 0, 0, 1, 0), (20, 1, 0, 0, 1, 0);
        INSERT INTO fake_operands VALUES (20, 3);";

    fn shown(own: &OwnOperands) -> Vec<Option<i64>> {
        let connection = Connection::open_in_memory().unwrap();
        let tables = tables(&[own]);
        let views = views(&tables, &[own]);
        for table in tables.iter().chain(&views) {
            connection.execute_batch(&table.create_sql()).unwrap();
        }
        connection.execute_batch(ROWS).unwrap();
        let sql = format!("SELECT rank FROM {} WHERE op = 'fakeReduce' ORDER BY timestamp_ns", own.view);
        let mut statement = connection.prepare(&sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn what_calls_of_a_library_have_of_their_own_is_shown_with_all_calls() {
        assert_eq!(shown(&own(CALLS)), [None, Some(3)]);
    }

    #[test]
    fn a_library_may_have_a_view_of_its_own() {
        assert_eq!(shown(&own("fake_events")), [Some(3)]);
    }
}
