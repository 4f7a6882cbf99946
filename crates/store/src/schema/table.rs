//! A table or view, and the statements that make it.

use std::iter;

use gpuwhy_model::{CellType, Column, OwnOperands, Record, TableFacts};

/// A table or view, as described in the file itself and in `docs/schema.md`.
pub struct Table {
    pub facts: TableFacts,
    pub columns: Vec<Column>,
    /// The statement that makes a view; `None` for a table.
    pub view: Option<String>,
}

/// An index beside the keys of tables.
pub(super) struct Index {
    pub name: &'static str,
    /// The table with its columns, and for which rows.
    pub on: &'static str,
    /// The version of the file it came with.
    pub since: u32,
}

/// SQL's names of types.
macro_rules! cell_type {
    (INTEGER) => {
        ::gpuwhy_model::CellType::Integer
    };
    (REAL) => {
        ::gpuwhy_model::CellType::Real
    };
    (TEXT) => {
        ::gpuwhy_model::CellType::Text
    };
}
pub(super) use cell_type;

impl Table {
    /// The table that holds a record.
    pub fn of<R: Record>() -> Self {
        Self { facts: R::TABLE, columns: R::columns(), view: None }
    }

    /// The table of what calls of a library have of their own.
    pub fn of_own(own: &OwnOperands) -> Self {
        let start = Column::new("start_ns", CellType::Integer, "`calls.start_ns`.").unit("ns since epoch");
        let columns = iter::once(start.since(own.since())).chain(own.operands.iter().map(|operand| operand.column));
        let description = "What calls of one library have of their own. Read the library's view instead.";
        let facts = TableFacts { name: own.table, key: &["start_ns"], since: own.since(), description };
        Self { facts, columns: columns.collect(), view: None }
    }

    pub fn kind(&self) -> &'static str {
        if self.view.is_some() { "view" } else { "table" }
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// What makes it in an empty file.
    pub fn create_sql(&self) -> String {
        if let Some(view) = &self.view {
            return view.clone();
        }
        let TableFacts { name, key, .. } = self.facts;
        let mut parts: Vec<String> = self.columns.iter().map(|column| self.column_sql(column)).collect();
        let has_other_key = !key.is_empty() && !self.is_numbered();
        if has_other_key {
            parts.push(format!("  PRIMARY KEY ({})", key.join(", ")));
        }
        let options = if has_other_key { "STRICT, WITHOUT ROWID" } else { "STRICT" };
        format!("CREATE TABLE {name} (\n{}\n) {options};", parts.join(",\n"))
    }

    /// What brings it from an earlier version of the file up to date: itself, or columns that are new.
    pub fn additions_since(&self, found: u32) -> Vec<String> {
        if self.view.is_some() {
            return Vec::new();
        }
        if self.facts.since > found {
            return vec![self.create_sql()];
        }
        let new = self.columns.iter().filter(|column| column.since > found);
        new.flat_map(|column| self.addition(column)).collect()
    }

    fn addition(&self, column: &Column) -> Vec<String> {
        let (table, name) = (self.facts.name, column.name);
        let default = if column.is_optional { String::new() } else { format!(" DEFAULT {}", zero(column.kind)) };
        let mut statements = vec![format!("ALTER TABLE {table} ADD COLUMN {}{default};", self.column_sql(column))];
        statements.extend(column.earlier.map(|earlier| format!("UPDATE {table} SET {name} = {earlier};")));
        statements
    }

    fn column_sql(&self, column: &Column) -> String {
        let constraint = match column {
            _ if self.is_numbered() && self.facts.key.contains(&column.name) => " PRIMARY KEY",
            _ if column.is_optional => "",
            _ => " NOT NULL",
        };
        format!("  {} {}{constraint}", column.name, column.kind.as_str())
    }

    /// Whether its key is SQLite's own number of the row.
    fn is_numbered(&self) -> bool {
        let key = self.facts.key;
        key.len() == 1 && self.column(key[0]).is_some_and(|column| column.kind == CellType::Integer)
    }
}

impl Index {
    pub fn create_sql(&self) -> String {
        format!("CREATE INDEX {} ON {};", self.name, self.on)
    }
}

/// What stands for a column in rows of files that do not have it.
pub(crate) fn otherwise(column: &Column) -> &'static str {
    match column.earlier {
        Some(earlier) => earlier,
        None if column.is_optional => "NULL",
        None => zero(column.kind),
    }
}

fn zero(kind: CellType) -> &'static str {
    match kind {
        CellType::Integer => "0",
        CellType::Real => "0.0",
        CellType::Text => "''",
    }
}
