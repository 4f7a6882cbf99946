//! What is around the panels: the head with the state of the trace, titles, the foot with news and keys.

use gpuwhy_questions::units::{count, share};
use ratatui_core::text::{Line, Span};

use super::super::look::Look;
use super::super::state::{Panel, State};
use super::text::{cut, left};
use super::threads;
use unicode_width::UnicodeWidthStr;

/// Two lines; the first says most.
pub fn head(state: &State, look: Look, width: usize) -> [Line<'static>; 2] {
    let second = &state.second;
    let facts = [
        format!("{} s", second.totals.elapsed.as_secs()),
        format!("{} calls/s", count(second.rate())),
        cost(state),
        format!("{} functions probed", second.totals.probes),
    ];
    let mut spans = vec![Span::styled(cut(&look.text(&state.title), width / 2), look.title())];
    if state.is_stopping {
        spans.push(Span::styled("  STOPPING", look.warning()));
    } else if state.is_paused {
        spans.push(Span::styled("  PAUSED", look.warning()));
    }
    let mut left = width.saturating_sub(spans.iter().map(Span::width).sum());
    for fact in facts {
        if fact.width() + 2 > left {
            break;
        }
        left -= fact.width() + 2;
        spans.push(Span::raw(format!("  {fact}")));
    }
    [Line::from(spans), losses(state, look, width)]
}

/// The most that tracing takes from a thread, against what it may.
fn cost(state: &State) -> String {
    let worst = share(state.second.totals.cost.worst);
    match state.budget {
        Some(budget) => format!("cost {worst} of {}", share(budget)),
        None => format!("cost {worst}"),
    }
}

fn losses(state: &State, look: Look, width: usize) -> Line<'static> {
    let second = &state.second;
    // Records come in all the time, counts once a second.
    let stored = second.totals.stored.min(second.totals.seen);
    let kept = format!(
        "{} calls seen, {} kept; tracer {} of a CPU; ",
        count(second.totals.seen),
        count(stored),
        share(second.totals.cost.agent)
    );
    let lost: Vec<_> =
        second.totals.losses.iter().map(|(reason, lost)| format!("{} {}", count(lost), reason.as_str())).collect();
    if lost.is_empty() {
        return Line::styled(cut(&format!("{kept}nothing lost"), width), look.faint());
    }
    let lost = format!("lost {}", lost.join(", "));
    let room = width.saturating_sub(kept.width());
    Line::from(vec![Span::styled(kept, look.faint()), Span::styled(cut(&lost, room), look.warning())])
}

/// A rule across the screen with the panel's name in it.
pub fn title(state: &State, panel: Panel, look: Look, width: usize) -> Line<'static> {
    let (name, more) = match panel {
        Panel::Threads if width >= 96 => ("1 Threads", threads::KEY.to_owned()),
        Panel::Threads => ("1 Threads", threads::SHORT_KEY.to_owned()),
        Panel::Calls => ("2 Calls", format!("by {}", state.order.as_str())),
        Panel::Findings => ("3 Findings", "last 30 s".to_owned()),
    };
    let rows = state.rows(panel);
    let name = if rows > 0 { format!("{name} ({rows})") } else { name.to_owned() };
    let (open, close) = if state.focus == panel { ("[", "]") } else { (" ", " ") };
    let name = format!("{open}{name}{close}");
    let more = cut(&format!(" {more} "), width.saturating_sub(name.width() + 2));
    let rest = width.saturating_sub(name.width() + more.width() + 1);
    Line::from(vec![
        Span::styled(look.rule(), look.faint()),
        Span::styled(name, look.title()),
        Span::styled(more, look.faint()),
        Span::styled(look.rule().repeat(rest), look.faint()),
    ])
}

/// The newest note, and the keys.
pub fn foot(state: &State, look: Look, width: usize) -> [Line<'static>; 2] {
    let note = state.note.as_deref().unwrap_or_default();
    let keys = if state.is_stopping {
        "taking the probes out"
    } else if width < 60 {
        "q quit  ? help  Tab panel  Enter more"
    } else {
        "q quit  ? help  Tab panel  up/down choose  Enter details  s sort  p pause"
    };
    [Line::styled(left(&look.text(note), width), look.faint()), Line::styled(cut(keys, width), look.title())]
}
