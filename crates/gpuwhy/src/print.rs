//! Output: answers to stdout, everything else to stderr, colour only on a terminal.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets};
use ratatui_crossterm::crossterm::terminal::size;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use gpuwhy_questions::text::safe;

pub fn error(error: &anyhow::Error) {
    tell(format_args!("\x1b[1;31merror:\x1b[0m {}", safe(&format!("{error:#}"))));
}

pub fn warning(text: &str) {
    tell(format_args!("\x1b[1;33mwarning:\x1b[0m {}", safe(text)));
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

/// How wide a table may be.
#[derive(Clone, Copy, Debug)]
pub struct Width(Option<usize>);

impl Width {
    pub const ANY: Self = Self(None);

    /// As wide as the terminal that it is written to, if it is. Whoever wants all of it gets lines of any length.
    pub fn of_output(wants_all: bool) -> Self {
        let is_terminal = !wants_all && std::io::stdout().is_terminal();
        Self(is_terminal.then(size).and_then(Result::ok).map(|(columns, _)| columns.into()))
    }

    /// What is left of it beside so many columns.
    pub fn beside(self, columns: usize) -> Self {
        Self(self.0.map(|width| width.saturating_sub(columns)))
    }
}

/// A plain table: a header, a line, rows; numbers to the right.
pub struct Columns {
    /// The header is the first.
    rows: Vec<Vec<String>>,
    /// Those to the right are numbers and never cut.
    right: Vec<usize>,
}

/// Beside each cell.
const PADDING: usize = 2;
/// Of longer cells at least so much is shown.
const LEAST: usize = 12;

impl Columns {
    pub fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Self {
        let mut columns = Self { rows: Vec::new(), right: Vec::new() };
        columns.row(header.into_iter().map(Cow::Borrowed));
        columns
    }

    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = Cow<'a, str>>) {
        self.rows.push(cells.into_iter().map(|cell| safe(&cell).into_owned()).collect());
    }

    pub fn align_right(&mut self, columns: impl IntoIterator<Item = usize>) {
        self.right.extend(columns);
    }

    /// What does not fit is cut, the longest cells first.
    pub fn text(&self, width: Width) -> String {
        let most = width.0.map_or(usize::MAX, |width| self.longest(width));
        let cut = |(at, cell): (usize, &String)| if self.right.contains(&at) { cell.clone() } else { cut(cell, most) };
        let mut rows = self.rows.iter().map(|row| row.iter().enumerate().map(cut).collect::<Vec<_>>());
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(rows.next().unwrap_or_default());
        table.add_rows(rows);
        for &index in &self.right {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    /// How long cells may be so that rows are no wider than this.
    fn longest(&self, width: usize) -> usize {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |at: usize| self.rows.iter().filter_map(|row| Some(row.get(at)?.width())).max().unwrap_or(0);
        let (numbers, words): (Vec<usize>, Vec<usize>) = (0..count).partition(|at| self.right.contains(at));
        let taken = PADDING * count + numbers.into_iter().map(widest).sum::<usize>();
        let words: Vec<usize> = words.into_iter().map(widest).collect();
        let fits = |most: &usize| taken + words.iter().map(|word| word.min(most)).sum::<usize>() <= width;
        let longest = words.iter().copied().max().unwrap_or(0).max(LEAST);
        (LEAST..=longest).rev().find(fits).unwrap_or(LEAST)
    }
}

fn cut(cell: &str, most: usize) -> String {
    if cell.width() <= most {
        return cell.to_owned();
    }
    let mut left = most - 1;
    let fits = |one: &char| {
        let is_room = one.width().unwrap_or(0) <= left;
        left -= if is_room { one.width().unwrap_or(0) } else { 0 };
        is_room
    };
    cell.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Width) -> String {
        let mut columns = Columns::new(["function", "count", "file"]);
        columns.row(
            ["cuLaunchKernel", "1234567890123456789", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"].map(Cow::Borrowed),
        );
        columns.row(["名前名前名前名前名前名前", "2", "b"].map(Cow::Borrowed));
        columns.align_right([1]);
        columns.text(width)
    }

    #[test]
    fn a_table_is_no_wider_than_its_terminal_and_numbers_are_whole() {
        let text = table(Width(Some(60)));
        assert!(text.lines().all(|line| line.width() <= 60), "{text}");
        assert!(text.contains("1234567890123456789") && text.contains("/usr/lib/x8") && text.contains('…'), "{text}");
        assert!(table(Width(Some(1))).contains("1234567890123456789"));
    }

    #[test]
    fn what_fits_and_what_is_written_elsewhere_is_whole() {
        for width in [Width::ANY, Width(Some(200))] {
            let text = table(width);
            assert!(text.contains("/usr/lib/x86_64-linux-gnu/libcuda.so.1") && !text.contains('…'), "{text}");
        }
    }
}
