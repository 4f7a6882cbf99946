//! Output: answers to stdout, everything else to stderr, colour only on a terminal.

use std::borrow::Cow;
use std::fmt::Write;
use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};

pub fn error(error: &anyhow::Error) {
    tell(format_args!("\x1b[1;31merror:\x1b[0m {}", safe(&format!("{error:#}"))));
}

pub fn hint(text: &str) {
    tell(format_args!("\x1b[1;36mhint:\x1b[0m {}", safe(text)));
}

pub fn note(text: &str) {
    tell(format_args!("\x1b[2m{}\x1b[0m", safe(text)));
}

/// A terminal that is gone is no reason to fail.
fn tell(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Text of traced programs must not reach the terminal as commands: control characters are shown, not sent.
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if is_unsafe(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", c as u32);
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that turn the direction of text around.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_codes_are_shown_and_not_sent() {
        assert_eq!(safe("py\x1b[31mthon\n"), "py\\u{1b}[31mthon\\n");
        assert_eq!(safe("\u{9b}2J"), "\\u{9b}2J");
        assert_eq!(safe("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(safe("plain é 漢"), "plain é 漢");
    }
}
