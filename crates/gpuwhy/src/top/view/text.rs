//! Text that has to fit: widths are columns of the terminal, not characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cut to a width and filled up with blanks.
pub fn left(text: &str, width: usize) -> String {
    let mut cut = cut(text, width);
    cut.push_str(&" ".repeat(width - cut.width().min(width)));
    cut
}

pub fn right(text: &str, width: usize) -> String {
    let cut = cut(text, width);
    " ".repeat(width - cut.width().min(width)) + &cut
}

/// What is too long ends in a mark.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = prefix(text, width.saturating_sub(1)).to_owned();
    kept.push_str(if width > 0 { "~" } else { "" });
    kept
}

/// Words, broken into lines; the first may start further to the right. A word that is too long is broken.
pub fn wrap(text: &str, first: usize, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = first.min(width);
    for mut word in text.split(' ') {
        let gap = usize::from(lines.last().is_some_and(|line| !line.is_empty()));
        if used + gap + word.width() <= width {
            push(&mut lines, if gap > 0 { " " } else { "" }, word);
            used += gap + word.width();
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while !word.is_empty() {
            let part = first_part(word, width);
            push(&mut lines, "", part);
            used = part.width();
            word = &word[part.len()..];
            if !word.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines
}

/// As much of a word as fits, and at least a character: a wide one may be wider than the screen.
fn first_part(word: &str, width: usize) -> &str {
    match prefix(word, width) {
        "" => &word[..word.chars().next().map_or(0, char::len_utf8)],
        part => part,
    }
}

fn push(lines: &mut [String], gap: &str, word: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(gap);
        line.push_str(word);
    }
}

/// As much of a text as fits.
fn prefix(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(left("漢字", 5), "漢字 ");
        assert_eq!(left("漢字漢字", 5), "漢字~");
        assert_eq!(left("漢字漢字", 4), "漢~ ");
        assert_eq!((right("7", 3).as_str(), right("1234", 3).as_str()), ("  7", "12~"));
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_anywhere() {
        assert_eq!(wrap("one two three", 0, 8), ["one two", "three"]);
        assert_eq!(wrap("one two", 6, 8), ["", "one two"]);
        assert_eq!(wrap("abcdefghij k", 0, 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("漢字", 0, 1), ["漢", "字"]);
        assert_eq!(wrap("", 0, 0), [""]);
    }
}
