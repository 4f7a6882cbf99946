//! Answers that were given lately. A page that looks every second does not make the same findings be found again, as long
//! as the trace has not changed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::Answer;

const MOST_ANSWERS: usize = 64;
/// Of text; in memory an answer takes some four times as much.
const MOST_BYTES: usize = 4 << 20;
/// Parameters such as a time of day mean something else on another day.
const LONGEST: Duration = Duration::from_secs(600);

/// What an answer depends on. Everything that is served counts, since a question may compare two files.
#[derive(Clone, PartialEq)]
pub struct Key {
    question: &'static str,
    parameters: Value,
    files: Vec<Option<Stamp>>,
}

/// A file that is written to has another size, or at least another time.
type Stamp = (u64, Option<SystemTime>);

impl Key {
    pub fn new(question: &'static str, parameters: &Value, traces: &[PathBuf]) -> Self {
        let files = traces.iter().flat_map(|path| [stamp(path), log_stamp(path)]).collect();
        Self { question, parameters: parameters.clone(), files }
    }
}

/// Who reads a trace that was not closed makes an empty log beside it, for as long as it is read.
fn log_stamp(path: &Path) -> Option<Stamp> {
    stamp(&write_ahead(path)).filter(|(bytes, _)| *bytes > 0)
}

fn write_ahead(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn stamp(path: &Path) -> Option<Stamp> {
    path.metadata().ok().map(|data| (data.len(), data.modified().ok()))
}

#[derive(Default)]
pub struct Cache(Mutex<VecDeque<(Key, Instant, Arc<Answer>)>>);

impl Cache {
    pub fn find(&self, key: &Key) -> Option<Arc<Answer>> {
        let mut entries = self.entries();
        entries.retain(|(_, at, _)| at.elapsed() < LONGEST);
        entries.iter().find(|(known, ..)| known == key).map(|(.., answer)| Arc::clone(answer))
    }

    /// Remembers it, and forgets the oldest ones that there is no room for.
    pub fn keep(&self, key: Key, answer: &Arc<Answer>) {
        let mut entries = self.entries();
        entries.retain(|(known, ..)| *known != key);
        entries.push_back((key, Instant::now(), Arc::clone(answer)));
        while entries.len() > MOST_ANSWERS
            || entries.iter().map(|(.., answer)| answer.bytes).sum::<usize>() > MOST_BYTES
        {
            entries.pop_front();
        }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<(Key, Instant, Arc<Answer>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(bytes: usize) -> Arc<Answer> {
        Arc::new(Answer { value: json!({}), bytes })
    }

    #[test]
    fn an_answer_is_forgotten_when_the_file_or_its_wal_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        std::fs::write(&file, "one").unwrap();
        let key = || Key::new("findings", &json!({"pid": 1}), std::slice::from_ref(&file));
        let cache = Cache::default();
        cache.keep(key(), &answer(10));
        assert!(cache.find(&key()).is_some());
        std::fs::write(folder.path().join("a.db-wal"), "").unwrap();
        assert!(cache.find(&key()).is_some(), "an empty log changes nothing");
        std::fs::write(folder.path().join("a.db-wal"), "two").unwrap();
        assert!(cache.find(&key()).is_none());
    }

    #[test]
    fn other_parameters_are_another_question() {
        let cache = Cache::default();
        cache.keep(Key::new("findings", &json!({"pid": 1}), &[]), &answer(10));
        assert!(cache.find(&Key::new("findings", &json!({"pid": 2}), &[])).is_none());
        assert!(cache.find(&Key::new("sql", &json!({"pid": 1}), &[])).is_none());
    }

    #[test]
    fn it_has_a_bound_in_number_and_in_size() {
        let cache = Cache::default();
        for pid in 0..1000 {
            cache.keep(Key::new("findings", &json!({"pid": pid}), &[]), &answer(1));
        }
        assert_eq!(cache.entries().len(), MOST_ANSWERS);
        cache.keep(Key::new("sql", &json!({}), &[]), &answer(MOST_BYTES));
        assert_eq!(cache.entries().len(), 1);
        cache.keep(Key::new("sql", &json!({"limit": 1}), &[]), &answer(MOST_BYTES + 1));
        assert_eq!(cache.entries().len(), 0);
    }
}
