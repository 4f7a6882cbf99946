//! Text of traced programs, made harmless where it becomes a line of text.

use std::borrow::Cow;
use std::fmt::Write;

/// Text of traced programs must not reach the terminal as commands: control characters are shown, not sent.
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if is_unsafe(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", c as u32);
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that turn the direction of text around.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_codes_are_shown_and_not_sent() {
        assert_eq!(safe("py\x1b[31mthon\n"), "py\\u{1b}[31mthon\\n");
        assert_eq!(safe("\u{9b}2J"), "\\u{9b}2J");
        assert_eq!(safe("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(safe("plain é 漢"), "plain é 漢");
    }
}
