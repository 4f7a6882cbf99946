//! One line for each thread that feeds a GPU: who, a bar of where its last second went, and the largest part in words.

use gpuwhy_agent::LiveThread;
use gpuwhy_questions::units::percent;
use ratatui_core::style::Color;
use ratatui_core::text::{Line, Span};

use super::super::look::Look;
use super::super::state::{State, main_share, parts, split};
use super::text::left;

/// Each part has a character of its own, so that the bar reads without colour.
const MARKS: [(&str, Color); 5] =
    [("#", Color::Green), ("=", Color::Blue), ("~", Color::Cyan), (".", Color::Magenta), ("!", Color::Red)];

pub const KEY: &str = "# running  = in GPU calls  ~ waits for GPU  . blocked  ! waits for CPU";
pub const SHORT_KEY: &str = "#run =calls ~GPU .blocked !CPU";

const WORDS: usize = 22;

pub fn lines(state: &State, look: Look, width: usize) -> Vec<Line<'static>> {
    if state.second.threads.is_empty() {
        return vec![Line::styled("  no traced thread has launched work on a GPU yet", look.faint())];
    }
    state.second.threads.iter().map(|thread| line(thread, look, width)).collect()
}

fn line(thread: &LiveThread, look: Look, width: usize) -> Line<'static> {
    let who_width = if width >= 76 { 24 } else { width / 3 };
    let words = if width >= 60 { WORDS } else { 0 };
    let more = if width >= 140 { shares(thread) } else { String::new() };
    let bar = width.saturating_sub(who_width + words + more.len() + 3);
    let mut spans = vec![Span::raw(format!(" {} ", left(&who(thread, look), who_width.saturating_sub(1))))];
    for (length, (mark, colour)) in split(parts(thread), bar).into_iter().zip(MARKS) {
        spans.push(Span::styled(mark.repeat(length), look.coloured(colour)));
    }
    if words > 0 {
        spans.push(Span::raw(format!(" {}{more}", left(&main_share(thread), words))));
    }
    Line::from(spans)
}

fn who(thread: &LiveThread, look: Look) -> String {
    let LiveThread { pid, tid, comm, .. } = thread;
    let comm = look.text(comm);
    if pid == tid { format!("{comm} {pid}") } else { format!("{comm} {pid}/{tid}") }
}

/// For those with room: every part, and what tracing takes.
fn shares(thread: &LiveThread) -> String {
    let mut text = String::new();
    for (part, (mark, _)) in parts(thread).into_iter().zip(MARKS) {
        text += &format!(" {mark} {:>7}", percent(part, thread.wall_ns));
    }
    format!("{text}  tracer {:>6}", percent(thread.tracer_ns, thread.wall_ns))
}
