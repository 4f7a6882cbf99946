//! What calls of one library have of their own: a row beside the call's.

use gpuwhy_model::{Cell, OwnValues, Put};
use rusqlite::Connection;

use super::signed;
use crate::cells::Binding;

/// Stores what a call that begins at `start_ns` in the file has of its own.
pub(super) fn write(connection: &Connection, start_ns: u64, own: &OwnValues) -> rusqlite::Result<()> {
    let places = vec!["?"; own.of.operands.len() + 1].join(", ");
    let sql = format!("INSERT OR REPLACE INTO {} VALUES ({places})", own.of.table);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut binding = Binding::new(&mut statement);
    binding.put(Cell::Integer(signed(start_ns)))?;
    own.cells().try_for_each(|cell| binding.put(cell))?;
    statement.raw_execute().map(drop)
}

/// Deletes what calls before `cutoff` have of their own.
pub(super) fn expire(connection: &Connection, cutoff: i64) -> rusqlite::Result<()> {
    for own in gpuwhy_apis::own_operands() {
        let sql = format!("DELETE FROM {} WHERE start_ns < ?", own.table);
        connection.prepare_cached(&sql)?.execute([cutoff])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Table;
    use gpuwhy_model::{OperandKind, OwnOperand, OwnOperands};

    #[test]
    fn what_a_call_has_of_its_own_lies_beside_it() {
        static OWN: OwnOperands = OwnOperands {
            table: "fake_operands",
            view: "fake_events",
            description: "One row per call.",
            operands: &[
                OwnOperand::new("rank", OperandKind::Int, "The rank."),
                OwnOperand::new("datatype", OperandKind::Word(&["int8", "float"]), "The type."),
                OwnOperand::new("peer", OperandKind::Int, "The other one."),
            ],
        };
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&Table::of_own(&OWN).create_sql()).unwrap();
        write(&connection, 20, &OwnValues { of: &OWN, values: vec![Some(3), Some(1), None] }).unwrap();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let row: (i64, i64, String, Option<i64>) =
            connection.query_row("SELECT * FROM fake_operands", [], read).unwrap();
        assert_eq!(row, (20, 3, "float".to_owned(), None));
    }
}
