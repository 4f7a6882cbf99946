//! What keys mean.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Panel, Wish};

const PAGE: isize = 10;

pub fn wish(key: KeyEvent) -> Option<Wish> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Wish::QuitAtOnce),
            KeyCode::Char('z') => Some(Wish::Suspend),
            KeyCode::Char('l') => Some(Wish::Redraw),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') => Wish::Quit,
        KeyCode::Esc => Wish::Close,
        KeyCode::Tab => Wish::NextPanel,
        KeyCode::BackTab => Wish::PreviousPanel,
        KeyCode::Char('1') => Wish::Focus(Panel::Threads),
        KeyCode::Char('2') => Wish::Focus(Panel::Calls),
        KeyCode::Char('3') => Wish::Focus(Panel::Findings),
        KeyCode::Up | KeyCode::Char('k') => Wish::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Wish::Move(1),
        KeyCode::PageUp => Wish::Move(-PAGE),
        KeyCode::PageDown => Wish::Move(PAGE),
        KeyCode::Home => Wish::First,
        KeyCode::End => Wish::Last,
        KeyCode::Char('s') => Wish::Sort,
        KeyCode::Enter => Wish::Open,
        KeyCode::Char('p') => Wish::Pause,
        KeyCode::Char('?' | 'h') => Wish::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_quits_and_a_plain_c_does_nothing() {
        assert_eq!(wish(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Wish::QuitAtOnce));
        assert_eq!(wish(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)), None);
    }
}
