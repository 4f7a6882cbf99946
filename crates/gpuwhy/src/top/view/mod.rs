//! Draws a state: lines of text into a part of the screen. Keeps nothing.

mod calls;
mod findings;
mod frame;
mod layout;
mod overlay;
mod text;
mod threads;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::text::Line;

use super::look::Look;
use super::state::{Panel, State};
use layout::{Wanted, share};

/// All of it, at any size.
pub fn screen(state: &State, look: Look, area: Rect, buf: &mut Buffer) {
    let width = area.width as usize;
    let (head, foot) = (frame::head(state, look, width), frame::foot(state, look, width));
    // A screen of a few lines has none to spare for what can be done without.
    let (head, foot) = match area.height {
        0..16 => (&head[..1], &foot[1..]),
        _ => (&head[..], &foot[..]),
    };
    let mut rest = area;
    for line in head {
        put(line, take_line(&mut rest), buf);
    }
    let panels = Rect { height: rest.height.saturating_sub(foot.len() as u16), ..rest };
    self::panels(state, look, panels, buf);
    rest = Rect { y: panels.bottom(), height: rest.height - panels.height, ..rest };
    for line in foot {
        put(line, take_line(&mut rest), buf);
    }
    if let Some(overlay) = &state.overlay {
        overlay::draw(overlay, state, look, panels, buf);
    }
}

/// What is worth reading later: everything but keys.
pub fn report(state: &State, look: Look, area: Rect, buf: &mut Buffer) {
    let mut rest = area;
    for line in frame::head(state, look, area.width as usize) {
        put(&line, take_line(&mut rest), buf);
    }
    panels(state, look, rest, buf);
}

fn panels(state: &State, look: Look, area: Rect, buf: &mut Buffer) {
    let width = area.width as usize;
    let (threads, calls) = (threads::lines(state, look, width), calls::lines(state, look, width));
    let items: Vec<_> = state
        .verdict
        .found
        .iter()
        .map(|found| findings::item(found, state.second.totals.elapsed, look, width))
        .collect();
    let wanted = Wanted {
        threads: threads.len(),
        calls: calls.len(),
        findings: items.iter().map(Vec::len).sum::<usize>().max(1),
    };
    let [thread_lines, call_lines, finding_lines] = share(area.height as usize, wanted, state.focus);
    let mut rest = area;
    let mut panel = |panel: Panel, lines: usize| {
        let place = Rect { height: (lines as u16).min(rest.height), ..rest };
        rest = Rect { y: place.bottom(), height: rest.height - place.height, ..rest };
        let mut inside = place;
        if place.height > 0 {
            put(&frame::title(state, panel, look, width), take_line(&mut inside), buf);
        }
        inside
    };
    let places =
        [panel(Panel::Threads, thread_lines), panel(Panel::Calls, call_lines), panel(Panel::Findings, finding_lines)];
    draw_rows(state, Panel::Threads, &threads, look, places[0], buf);
    draw_calls(state, &calls, look, places[1], buf);
    draw_findings(state, &items, look, places[2], buf);
}

fn draw_calls(state: &State, lines: &[Line<'_>], look: Look, mut place: Rect, buf: &mut Buffer) {
    if let Some((titles, rows)) = lines.split_first()
        && place.height > 0
    {
        put(titles, take_line(&mut place), buf);
        draw_rows(state, Panel::Calls, rows, look, place, buf);
    }
}

/// One line for each row; the chosen one is always among those that are shown.
fn draw_rows(state: &State, panel: Panel, lines: &[Line<'_>], look: Look, mut place: Rect, buf: &mut Buffer) {
    let chosen = state.selected(panel);
    let first = (chosen + 1).saturating_sub(place.height as usize);
    for (index, line) in lines.iter().enumerate().skip(first).take(place.height as usize) {
        let line_place = take_line(&mut place);
        put(line, line_place, buf);
        if index == chosen && state.focus == panel && state.rows(panel) > 0 {
            buf.set_style(line_place, look.chosen());
        }
    }
}

/// Whole findings only: one that does not fit is counted, unless it is the only one.
fn draw_findings(state: &State, items: &[Vec<Line<'_>>], look: Look, mut place: Rect, buf: &mut Buffer) {
    if items.is_empty() {
        return put(&Line::styled(format!("  {}", look.text(&findings::nothing(state))), look.faint()), place, buf);
    }
    let chosen = state.selected(Panel::Findings);
    let mut shown = 0;
    for (index, item) in items.iter().enumerate().skip(chosen) {
        let is_last = index + 1 == items.len();
        let room = (place.height as usize).saturating_sub(usize::from(!is_last));
        if shown > 0 && item.len() > room {
            break;
        }
        shown += 1;
        for (row, line) in item.iter().enumerate() {
            let line_place = take_line(&mut place);
            put(line, line_place, buf);
            if row == 0 && index == chosen && state.focus == Panel::Findings {
                buf.set_style(line_place, look.chosen());
            }
        }
    }
    let hidden = items.len() - chosen - shown;
    if hidden > 0 {
        put(&Line::styled(format!(" {hidden} more below"), look.faint()), take_line(&mut place), buf);
    }
}

/// The first line of a part of the screen, which gets smaller by it.
fn take_line(rest: &mut Rect) -> Rect {
    let line = Rect { height: rest.height.min(1), ..*rest };
    *rest = Rect { y: line.bottom(), height: rest.height - line.height, ..*rest };
    line
}

/// A line, as much as fits.
fn put(line: &Line<'_>, place: Rect, buf: &mut Buffer) {
    let place = place.intersection(buf.area);
    if place.is_empty() {
        return;
    }
    buf.set_line(place.x, place.y, line, place.width);
    if line.style != Style::default() {
        let width = (line.width() as u16).min(place.width);
        buf.set_style(Rect { width, height: 1, ..place }, line.style);
    }
}

#[cfg(test)]
mod tests;
