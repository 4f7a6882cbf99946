//! What the tracer has to say while it runs.

use crate::api::words;

words! {
    /// What a note is about. Code decides by it, never by the text.
    NoteKind {
        /// What is traced from then on.
        Attached = "attached",
        /// A file, a function or a hook that is not seen.
        NotAttached = "not-attached",
        /// The tracer was suspended, or goes on.
        Suspended = "suspended",
        /// The wall clock was set.
        Clock = "clock",
        /// Stacks that cannot be walked or named.
        Stacks = "stacks",
        /// Anything else, and notes of kinds that this version does not know.
        Other = "other",
    }
}

impl NoteKind {
    /// Whether something could not be seen.
    pub fn tells_of_gap(self) -> bool {
        self != Self::Attached
    }

    pub fn from_word(word: &str) -> Self {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word).unwrap_or(Self::Other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub kind: NoteKind,
    /// For people.
    pub text: String,
}

impl Note {
    pub fn new(kind: NoteKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_later_version_is_a_gap_like_any_other() {
        assert_eq!(NoteKind::from_word("attached"), NoteKind::Attached);
        assert_eq!(NoteKind::from_word("of tomorrow"), NoteKind::Other);
        assert!(NoteKind::Other.tells_of_gap() && !NoteKind::Attached.tells_of_gap());
    }
}
