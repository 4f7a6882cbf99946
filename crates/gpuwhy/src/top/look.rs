//! What the terminal can show: colours, and characters beyond ASCII.

use std::borrow::Cow;

use gpuwhy_model::Severity;
use ratatui_core::style::{Color, Modifier, Style};

use crate::print::safe;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub has_colour: bool,
    pub is_unicode: bool,
}

/// Nothing but letters.
pub const PLAIN: Look = Look { has_colour: false, is_unicode: false };

impl Look {
    /// From the environment, as other programs read it.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Self {
            has_colour: set("NO_COLOR").is_none() && set("TERM").as_deref() != Some("dumb"),
            is_unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// Text of traced programs, fit for this terminal.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let shown = safe(text);
        if self.is_unicode || shown.is_ascii() {
            return shown;
        }
        Cow::Owned(shown.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect())
    }

    pub fn rule(&self) -> &'static str {
        if self.is_unicode { "─" } else { "-" }
    }

    /// Corners from the top left on, clockwise, then the sides: horizontal, vertical.
    pub fn frame(&self) -> [&'static str; 6] {
        if self.is_unicode { ["┌", "┐", "┘", "└", "─", "│"] } else { ["+", "+", "+", "+", "-", "|"] }
    }

    pub fn title(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn faint(&self) -> Style {
        if self.has_colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    pub fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn warning(&self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub fn severity(&self, severity: Severity) -> Style {
        let colour = match severity {
            Severity::High => Color::Red,
            Severity::Medium => Color::Yellow,
            Severity::Low => Color::Cyan,
        };
        self.coloured(colour).add_modifier(Modifier::BOLD)
    }

    pub fn coloured(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> Look {
        Look::from_variables(|name| {
            variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn no_colour_is_respected() {
        assert!(look(&[("TERM", "xterm")]).has_colour);
        assert!(look(&[("NO_COLOR", "")]).has_colour);
        assert!(!look(&[("NO_COLOR", "1")]).has_colour);
        assert!(!look(&[("TERM", "dumb")]).has_colour);
    }

    #[test]
    fn a_locale_without_utf_8_gets_ascii_only() {
        assert!(look(&[("LANG", "de_DE.UTF-8")]).is_unicode);
        assert!(look(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]).is_unicode);
        assert!(!look(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]).is_unicode);
        assert!(!look(&[]).is_unicode);
        assert_eq!(PLAIN.text("漢\u{1b}[2J\u{202e}"), "?\\u{1b}[2J\\u{202e}");
    }
}
