//! Output: answers to stdout, everything else to stderr, colour only on a terminal.

use std::borrow::Cow;

use comfy_table::{CellAlignment, Table, presets};

pub use gpuwhy_questions::text::safe;

pub fn error(error: &anyhow::Error) {
    anstream::eprintln!("\x1b[1;31merror:\x1b[0m {}", safe(&format!("{error:#}")));
}

pub fn hint(text: &str) {
    anstream::eprintln!("\x1b[1;36mhint:\x1b[0m {}", safe(text));
}

pub fn note(text: &str) {
    anstream::eprintln!("\x1b[2m{}\x1b[0m", safe(text));
}

/// A plain table: a header, a line, rows; numbers to the right.
pub struct Columns {
    table: Table,
}

impl Columns {
    pub fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.into_iter().map(|name| safe(name).into_owned()).collect::<Vec<_>>());
        Self { table }
    }

    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = Cow<'a, str>>) {
        self.table.add_row(cells.into_iter().map(|cell| safe(&cell).into_owned()).collect::<Vec<_>>());
    }

    pub fn align_right(&mut self, columns: impl IntoIterator<Item = usize>) {
        for index in columns {
            if let Some(column) = self.table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }

    pub fn text(&self) -> String {
        let text = self.table.to_string();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}
