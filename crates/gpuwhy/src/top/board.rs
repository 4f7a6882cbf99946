//! What the tracing threads leave for the view. They never wait for it: a newer second takes the place of an older one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuwhy_agent::{Live, Watch};
use gpuwhy_model::Explanation;
use gpuwhy_questions::AskError;

use super::asking::{Asking, Pace};
use super::state::{News, Second};

const PACE: Pace = Pace { span: Duration::from_secs(30), every: Duration::from_secs(2) };

/// Notes that are kept for the end.
const MOST_NOTES: usize = 1000;

#[derive(Default)]
pub struct Board(Mutex<Pinned>);

#[derive(Default)]
struct Pinned {
    news: News,
    has_begun: bool,
    notes: Vec<String>,
    notes_dropped: usize,
}

impl Board {
    /// What is new since this was last asked.
    pub fn news(&self) -> News {
        std::mem::take(&mut self.lock().news)
    }

    /// Whether the trace has said anything yet; before that it may still fail to start.
    pub fn has_begun(&self) -> bool {
        self.lock().has_begun
    }

    /// Keeps asking why the GPU waits in this file.
    pub fn ask(self: &Arc<Self>, file: PathBuf) -> Asking {
        let (begins, answered) = (Arc::clone(self), Arc::clone(self));
        let tell = move |answer: Result<Explanation, AskError>| {
            answered.lock().news.answer = Some(answer.map_err(|error| error.to_string()));
        };
        Asking::start(file, PACE, move || begins.has_begun(), tell)
    }

    /// Everything that was said, and how much more there was.
    pub fn take_notes(&self) -> (Vec<String>, usize) {
        let mut pinned = self.lock();
        (std::mem::take(&mut pinned.notes), std::mem::take(&mut pinned.notes_dropped))
    }

    fn second(&self, live: &Live) {
        let second = Second::from(live);
        let mut pinned = self.lock();
        pinned.has_begun = true;
        pinned.news.second = Some(second);
    }

    fn note(&self, text: &str) {
        let mut pinned = self.lock();
        pinned.has_begun = true;
        pinned.news.note = Some(text.to_owned());
        if pinned.notes.len() < MOST_NOTES {
            pinned.notes.push(text.to_owned());
        } else {
            pinned.notes_dropped += 1;
        }
    }

    /// What is pinned is whole after every change, whoever panics.
    fn lock(&self) -> MutexGuard<'_, Pinned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pins what the trace says.
pub struct Pinning(pub Arc<Board>);

impl Watch for Pinning {
    fn second(&mut self, live: &Live) {
        self.0.second(live);
    }

    fn note(&mut self, text: &str) {
        self.0.note(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once_and_notes_are_kept_for_the_end() {
        let board = Arc::new(Board::default());
        assert!(!board.has_begun());
        let mut pinning = Pinning(Arc::clone(&board));
        pinning.note("attached");
        pinning.second(&Live::default());
        assert!(board.has_begun());
        let news = board.news();
        assert!(news.second.is_some() && news.note.as_deref() == Some("attached"));
        assert!(board.news().second.is_none());
        assert_eq!(board.take_notes(), (vec!["attached".to_owned()], 0));
    }

    #[test]
    fn notes_that_never_end_are_counted_instead_of_kept() {
        let board = Arc::new(Board::default());
        (0..MOST_NOTES + 7).for_each(|_| board.note("again"));
        let (kept, dropped) = board.take_notes();
        assert_eq!((kept.len(), dropped), (MOST_NOTES, 7));
    }
}
