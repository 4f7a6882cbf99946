//! The views: what people read. A column that comes from a table as it is keeps the table's words, unless it has its own.

mod calls;
mod samples;
mod stacks;
mod waits;

use gpuwhy_model::{CellType, Column, TableFacts};

use super::table::Table;

/// All of them, in the order of the documentation.
const VIEWS: &[&[View]] = &[calls::VIEWS, waits::VIEWS, stacks::VIEWS, samples::VIEWS];

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

/// The views over these tables.
pub(super) fn views(tables: &[Table]) -> Vec<Table> {
    VIEWS.concat().iter().map(|view| view.over(tables)).collect()
}

impl View {
    fn over(&self, tables: &[Table]) -> Table {
        let columns = self.columns(tables);
        let selected: Vec<String> = columns.iter().map(|(sql, column)| format!("  {sql} AS {}", column.name)).collect();
        let source: Vec<&str> = self.from.lines().map(str::trim_start).collect();
        let Self { name, description, .. } = *self;
        Table {
            facts: TableFacts { name, key: &[], since: 1, description },
            columns: columns.into_iter().map(|(_, column)| column).collect(),
            view: Some(format!("CREATE VIEW {name} AS\nSELECT\n{}\nFROM {};", selected.join(",\n"), source.join("\n"))),
        }
    }

    /// Each column with what it is computed from.
    fn columns(&self, tables: &[Table]) -> Vec<(String, Column)> {
        let mut columns = Vec::new();
        for column in self.columns {
            match *column {
                ViewColumn::Carried { name, table, column, words } => {
                    let found =
                        tables.iter().find(|listed| listed.facts.name == table).and_then(|table| table.column(column));
                    // A test looks for columns that are nowhere.
                    let found = found.copied().unwrap_or(Column::new(column, CellType::Text, ""));
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
