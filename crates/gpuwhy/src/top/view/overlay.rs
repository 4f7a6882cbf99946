//! What lies over the panels: help, or all of one finding.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::text::Line;

use super::super::look::Look;
use super::super::state::{Overlay, State};
use super::{findings, put};

const WIDEST: u16 = 100;

const HELP: [&str; 22] = [
    "gpuwhy shows why the GPU waits, while it happens.",
    "",
    "Threads: those that launch work on a GPU, with their last second.",
    "  # runs its own code     = is inside a GPU call",
    "  ~ waits for the GPU     . is blocked: lock, disk, input, sleep",
    "  ! could run, but another thread has the CPU",
    "Calls: p50, p99, errors and shares are since the start.",
    "  A number after ~ is an estimate.",
    "Findings: what was found in the last 30 s.",
    "",
    "Tab, 1 2 3      go to a panel",
    "up down j k     choose a row",
    "PgUp PgDn       ten rows; Home End: first, last",
    "Enter           all of a finding: why, where, what to change",
    "s               sort calls by time, rate, p99, errors",
    "p               pause the view; tracing goes on",
    "Ctrl-L          draw again",
    "Ctrl-Z          take the probes out and stop; fg goes on",
    "q, Ctrl-C       quit",
    "",
    "cost: the most that tracing took from any thread in the last",
    "second, and the budget it keeps to.",
];

pub fn draw(overlay: &Overlay, state: &State, look: Look, area: Rect, buf: &mut Buffer) {
    let width = area.width.min(WIDEST).saturating_sub(if area.width > 60 { 4 } else { 0 });
    let text_width = width.saturating_sub(4) as usize;
    let lines = match overlay {
        Overlay::Help => HELP.iter().map(|&line| Line::raw(line)).collect(),
        Overlay::Finding(finding) => findings::details(finding, look, text_width),
    };
    let height = area.height.min(lines.len() as u16 + 2);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame(look, place, buf);
    let room = height.saturating_sub(2) as usize;
    let first = state.overlay_scroll.min(lines.len().saturating_sub(room));
    for (row, line) in lines.iter().skip(first).take(room).enumerate() {
        let inside = Rect { x: place.x + 2, y: place.y + 1 + row as u16, width: width.saturating_sub(4), height: 1 };
        put(line, inside, buf);
    }
    let below = lines.len().saturating_sub(first + room);
    let hint = if below > 0 { format!(" {below} more lines: down; Esc closes ") } else { " Esc closes ".to_owned() };
    let last = Rect { x: place.x + 2, y: place.bottom().saturating_sub(1), width: width.saturating_sub(4), height: 1 };
    put(&Line::styled(hint, look.title()), last.intersection(area), buf);
}

/// An empty box.
fn frame(look: Look, place: Rect, buf: &mut Buffer) {
    let [top_left, top_right, bottom_right, bottom_left, across, down] = look.frame();
    let (right, bottom) = (place.right().saturating_sub(1), place.bottom().saturating_sub(1));
    for y in place.top()..place.bottom() {
        for x in place.left()..place.right() {
            let symbol = match (x == place.x, x == right, y == place.y, y == bottom) {
                (true, _, true, _) => top_left,
                (_, true, true, _) => top_right,
                (_, true, _, true) => bottom_right,
                (true, _, _, true) => bottom_left,
                (_, _, true, _) | (_, _, _, true) => across,
                (true, ..) | (_, true, ..) => down,
                _ => " ",
            };
            if let Some(cell) = buf.cell_mut((x, y)) {
                cell.reset();
                cell.set_symbol(symbol).set_style(Style::new());
            }
        }
    }
}
