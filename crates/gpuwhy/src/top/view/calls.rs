//! The calls, one line for each function of each process.

use gpuwhy_agent::LiveRow;
use gpuwhy_questions::units::{count, duration, percent};
use ratatui_core::text::Line;

use super::super::look::Look;
use super::super::state::State;
use super::text::{left, right};

/// A column: its title, its width, from which width of the screen on it is shown, and what it says.
struct Column {
    title: &'static str,
    width: usize,
    from: usize,
    cell: fn(&LiveRow) -> String,
}

const COLUMNS: [Column; 9] = [
    Column { title: "calls/s", width: 9, from: 30, cell: |row| about(row, row.recent) },
    Column { title: "p50", width: 8, from: 50, cell: |row| quantile(row, 0.5) },
    Column { title: "p99", width: 8, from: 0, cell: |row| quantile(row, 0.99) },
    Column { title: "blocked", width: 8, from: 90, cell: |row| percent(row.blocked_ns, row.sum_ns) },
    Column { title: "errors", width: 7, from: 46, cell: |row| count(row.errors) },
    Column { title: "run queue", width: 10, from: 120, cell: |row| percent(row.runqueue_ns, row.sum_ns) },
    Column { title: "running", width: 8, from: 120, cell: running },
    Column { title: "in calls", width: 9, from: 100, cell: |row| duration(row.sum_ns) },
    Column { title: "calls", width: 14, from: 100, cell: |row| about(row, row.count) },
];

/// Room for the names of nearly all functions.
const OP: usize = 22;

/// The first line has the titles.
pub fn lines(state: &State, look: Look, width: usize) -> Vec<Line<'static>> {
    let columns = || COLUMNS.iter().filter(|column| column.from <= width);
    let taken: usize = columns().map(|column| column.width + 1).sum();
    let names = width.saturating_sub(taken + 1);
    let process = Some(names.saturating_sub(OP)).filter(|width| *width >= 10).map_or(0, |width| width.min(24));
    let join = |op: &str, comm: &str, cells: Vec<String>| {
        let comm = if process > 0 { left(comm, process) } else { String::new() };
        format!(" {}{comm}{}", left(op, names.saturating_sub(process)), cells.concat())
    };
    let titles = columns().map(|column| format!(" {}", right(column.title, column.width)));
    let mut lines = vec![Line::styled(join("call", "process", titles.collect()), look.faint())];
    for row in &state.second.calls {
        let cells = columns().map(|column| format!(" {}", right(&(column.cell)(row), column.width)));
        let who = format!("{} {}", look.text(&row.comm), row.pid);
        lines.push(Line::raw(join(row.op, &who, cells.collect())));
    }
    lines
}

/// A number that is an estimate says so.
fn about(row: &LiveRow, number: u64) -> String {
    format!("{}{}", if row.variance > 0.0 { "~" } else { "" }, count(number))
}

fn quantile(row: &LiveRow, share: f64) -> String {
    row.histogram.quantile_ns(share).map_or("-".to_owned(), duration)
}

fn running(row: &LiveRow) -> String {
    percent(row.sum_ns.saturating_sub(row.runqueue_ns + row.blocked_ns), row.sum_ns)
}
