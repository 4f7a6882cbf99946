//! What the live view shows: numbers of the last second, findings, what the user has chosen. No widgets.

mod calls;
mod findings;
mod second;
mod wish;

use gpuwhy_model::{Explanation, Finding};

pub use calls::Order;
pub use findings::{Found, Verdict};
pub use second::{Second, main_share, parts, split};
pub use wish::{Effect, Wish};

/// What has happened since the view was last drawn.
#[derive(Default)]
pub struct News {
    pub second: Option<Second>,
    /// The answer to why the GPU waits, or why there is none.
    pub answer: Option<Result<Explanation, String>>,
    /// The newest thing a person should know.
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    Threads,
    Calls,
    Findings,
}

impl Panel {
    pub const ALL: [Self; 3] = [Self::Threads, Self::Calls, Self::Findings];
}

/// What lies over the panels.
pub enum Overlay {
    Help,
    Finding(Box<Finding>),
}

pub struct State {
    /// What is being looked at: the command, or the file that is written.
    pub title: String,
    pub budget: Option<f64>,
    pub second: Second,
    pub order: Order,
    pub verdict: Verdict,
    pub note: Option<String>,
    pub focus: Panel,
    selected: [usize; 3],
    pub overlay: Option<Overlay>,
    /// Lines of the overlay that are above its first one on the screen.
    pub overlay_scroll: usize,
    pub is_paused: bool,
    /// The trace is being ended.
    pub is_stopping: bool,
}

impl State {
    pub fn new(title: String, budget: Option<f64>) -> Self {
        Self {
            title,
            budget,
            second: Second::default(),
            order: Order::default(),
            verdict: Verdict::default(),
            note: None,
            focus: Panel::Findings,
            selected: [0; 3],
            overlay: None,
            overlay_scroll: 0,
            is_paused: false,
            is_stopping: false,
        }
    }

    /// Returns whether anything on the screen changes. A paused view stays as it is, but for what is to be said.
    pub fn take(&mut self, news: News) -> bool {
        let mut changes = false;
        if let Some(note) = news.note {
            self.note = Some(note);
            changes = true;
        }
        if self.is_paused {
            return changes;
        }
        if let Some(second) = news.second {
            self.second = second;
            self.order.sort(&mut self.second.calls);
            changes = true;
        }
        if let Some(answer) = news.answer {
            self.verdict.take(answer, self.second.totals.elapsed);
            changes = true;
        }
        self.keep_selected();
        changes
    }

    /// The row of a panel that is chosen.
    pub fn selected(&self, panel: Panel) -> usize {
        self.selected[panel as usize]
    }

    pub fn rows(&self, panel: Panel) -> usize {
        match panel {
            Panel::Threads => self.second.threads.len(),
            Panel::Calls => self.second.calls.len(),
            Panel::Findings => self.verdict.found.len(),
        }
    }

    /// A row that is gone cannot stay chosen.
    fn keep_selected(&mut self) {
        for panel in Panel::ALL {
            let last = self.rows(panel).saturating_sub(1);
            let selected = &mut self.selected[panel as usize];
            *selected = (*selected).min(last);
        }
    }
}

/// Made-up things that the view's tests draw.
#[cfg(test)]
pub mod tests_support {
    pub use super::calls::tests::row;
    pub use super::findings::tests::{explanation, finding};
    pub use super::second::tests::thread;
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::Totals;
    use std::time::Duration;

    fn second(elapsed_s: u64) -> Second {
        Second { totals: Totals { elapsed: Duration::from_secs(elapsed_s), ..Totals::default() }, ..Second::default() }
    }

    #[test]
    fn a_paused_view_stands_still_but_still_says_what_should_be_known() {
        let mut state = State::new("top".into(), None);
        assert!(state.take(News { second: Some(second(1)), ..News::default() }));
        state.wish(Wish::Pause);
        let news = News { second: Some(second(2)), note: Some("attached".into()), ..News::default() };
        assert!(state.take(news));
        assert_eq!((state.second.totals.elapsed.as_secs(), state.note.as_deref()), (1, Some("attached")));
        state.wish(Wish::Pause);
        state.take(News { second: Some(second(3)), ..News::default() });
        assert_eq!(state.second.totals.elapsed.as_secs(), 3);
    }

    #[test]
    fn no_news_change_nothing() {
        assert!(!State::new("top".into(), None).take(News::default()));
    }
}
