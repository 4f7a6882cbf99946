//! What the user wants of the view, and what becomes of it.

use super::{Order, Overlay, Panel, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Close what lies on top, or quit.
    Quit,
    QuitAtOnce,
    Suspend,
    Redraw,
    NextPanel,
    PreviousPanel,
    Focus(Panel),
    /// Rows down, or up when below zero.
    Move(isize),
    First,
    Last,
    Sort,
    Open,
    Close,
    Pause,
    Help,
}

/// What the view cannot do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    Suspend,
    Redraw,
}

impl State {
    pub fn wish(&mut self, wish: Wish) -> Option<Effect> {
        match wish {
            // What lies on top goes first.
            Wish::Quit | Wish::Close | Wish::Open | Wish::Help if self.overlay.is_some() => self.close(),
            Wish::Quit | Wish::QuitAtOnce => return Some(Effect::Quit),
            Wish::Suspend => return Some(Effect::Suspend),
            Wish::Redraw => return Some(Effect::Redraw),
            Wish::NextPanel => self.turn_to(1),
            Wish::PreviousPanel => self.turn_to(2),
            Wish::Focus(panel) => self.focus = panel,
            Wish::Move(rows) => self.go(rows),
            Wish::First => self.go(isize::MIN),
            Wish::Last => self.go(isize::MAX),
            Wish::Sort => self.sort_by(self.order.next()),
            Wish::Open => self.open(),
            Wish::Pause => self.is_paused = !self.is_paused,
            Wish::Help => self.overlay = Some(Overlay::Help),
            Wish::Close => {}
        }
        None
    }

    fn turn_to(&mut self, steps: usize) {
        self.focus = Panel::ALL[(self.focus as usize + steps) % Panel::ALL.len()];
    }

    fn go(&mut self, rows: isize) {
        if self.overlay.is_some() {
            // Where it ends depends on the screen; the view shows the last lines for anything beyond.
            self.overlay_scroll = self.overlay_scroll.saturating_add_signed(rows).min(1 << 12);
            return;
        }
        let last = self.rows(self.focus).saturating_sub(1);
        let selected = &mut self.selected[self.focus as usize];
        *selected = selected.saturating_add_signed(rows).min(last);
    }

    fn sort_by(&mut self, order: Order) {
        self.order = order;
        self.order.sort(&mut self.second.calls);
    }

    fn open(&mut self) {
        let chosen = self.verdict.found.get(self.selected(Panel::Findings));
        if let (Panel::Findings, Some(found)) = (self.focus, chosen) {
            self.overlay = Some(Overlay::Finding(Box::new(found.finding.clone())));
            self.overlay_scroll = 0;
        }
    }

    fn close(&mut self) {
        self.overlay = None;
        self.overlay_scroll = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests::{explanation, finding};
    use super::super::{News, State};
    use super::*;

    fn with_findings(count: usize) -> State {
        let mut state = State::new("top".into(), None);
        let answer = Some(Ok(explanation((0..count).map(|pid| finding(pid as u32)).collect())));
        state.take(News { answer, ..News::default() });
        state
    }

    #[test]
    fn tab_goes_round_the_panels_and_back() {
        let mut state = with_findings(0);
        assert_eq!(state.focus, Panel::Findings);
        state.wish(Wish::NextPanel);
        assert_eq!(state.focus, Panel::Threads);
        state.wish(Wish::PreviousPanel);
        assert_eq!(state.focus, Panel::Findings);
    }

    #[test]
    fn the_chosen_row_stays_within_the_rows_there_are() {
        let mut state = with_findings(3);
        state.wish(Wish::Move(-5));
        assert_eq!(state.selected(Panel::Findings), 0);
        state.wish(Wish::Move(10));
        assert_eq!(state.selected(Panel::Findings), 2);
        state.take(News { answer: Some(Ok(explanation(vec![finding(1)]))), ..News::default() });
        assert_eq!(state.selected(Panel::Findings), 0);
    }

    #[test]
    fn an_open_finding_is_closed_before_the_view_is_left() {
        let mut state = with_findings(1);
        state.wish(Wish::Open);
        assert!(matches!(state.overlay, Some(Overlay::Finding(_))));
        assert_eq!(state.wish(Wish::Quit), None);
        assert_eq!(state.wish(Wish::Quit), Some(Effect::Quit));
        state.wish(Wish::Open);
        assert_eq!(state.wish(Wish::QuitAtOnce), Some(Effect::Quit));
    }

    #[test]
    fn an_open_finding_stays_when_a_new_answer_comes() {
        let mut state = with_findings(1);
        state.wish(Wish::Open);
        state.take(News { answer: Some(Ok(explanation(Vec::new()))), ..News::default() });
        assert!(matches!(&state.overlay, Some(Overlay::Finding(finding)) if finding.victim.pid == 0));
    }

    #[test]
    fn nothing_opens_where_there_is_nothing() {
        let mut state = with_findings(0);
        state.wish(Wish::Open);
        assert!(state.overlay.is_none());
    }
}
