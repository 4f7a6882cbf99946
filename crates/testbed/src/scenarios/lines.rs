//! Which lines of a scenario's programs are to blame, and in which the victim waits: comments in the sources say so.
//!
//! `blame: NAME...` stands on the line that somebody would change, or, where a thread waits for another one, on the lines
//! where that one works and where it lets go; any of them is right. `victim: NAME...` stands where the victim waits.

use super::Scenario;

macro_rules! source {
    ($name:literal) => {
        ($name, include_str!(concat!("../../c/", $name)))
    };
}

/// The sources with such lines.
const SOURCES: &[(&str, &str)] = &[
    source!("scenario.py"),
    source!("scenario_calls.c"),
    source!("scenario_cpu.c"),
    source!("scenario_disk.c"),
    source!("scenario_locks.c"),
    source!("scenario_memory.c"),
    source!("scenario_oom.c"),
    source!("scenario_peer_hogs.c"),
    source!("scenario_peer_inputs.c"),
    source!("scenario_peers.c"),
    source!("scenario_plain.c"),
    source!("scenario_ranks.c"),
    source!("scenario_steps.c"),
    source!("scenario_storage.c"),
    source!("scenario_work.c"),
];

const BLAME: &str = "blame:";
const VICTIM: &str = "victim:";
const COMMENT_STARTS: &[&str] = &[" // ", "  # "];

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Without folders.
    pub file: &'static str,
    pub line: u32,
    /// What stands there.
    pub text: &'static str,
}

impl Scenario {
    /// The lines of which a diagnosis should name one. None where no line could be changed.
    pub fn blamed_lines(&self) -> Vec<SourceLine> {
        lines_of(BLAME, self.name).collect()
    }

    /// Where the victim waits, if it is not to blame for that itself.
    pub fn victim_lines(&self) -> Vec<SourceLine> {
        lines_of(VICTIM, self.name).collect()
    }
}

fn lines_of(word: &'static str, scenario: &'static str) -> impl Iterator<Item = SourceLine> {
    let all = SOURCES.iter().flat_map(|(file, source)| source_lines(file, source));
    all.filter(move |line| names_in(line.text, word).any(|name| name == scenario))
}

fn source_lines(file: &'static str, source: &'static str) -> impl Iterator<Item = SourceLine> {
    (1..).zip(source.lines()).map(move |(line, text)| SourceLine { file, line, text })
}

/// The names behind a word in the comment of a line.
fn names_in<'a>(line: &'a str, word: &str) -> impl Iterator<Item = &'a str> {
    let comment = COMMENT_STARTS.iter().find_map(|start| line.split_once(start)).map(|(_, comment)| comment);
    comment.and_then(|comment| comment.strip_prefix(word)).into_iter().flat_map(str::split_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCENARIOS;
    use std::fs;
    use std::path::Path;

    /// No line can be changed: the limit of a control group stops the job, the GPU is busy, a client has nothing to ask.
    const WITHOUT_BLAMED_LINE: &[&str] = &["cpu-quota", "child-per-step", "slow-reader", "long-kernels", "idle-server"];

    #[test]
    fn every_scenario_that_has_a_line_to_change_names_it() {
        let without = SCENARIOS.iter().filter(|scenario| scenario.blamed_lines().is_empty());
        assert_eq!(without.map(|scenario| scenario.name).collect::<Vec<_>>(), WITHOUT_BLAMED_LINE);
        for scenario in SCENARIOS.iter().filter(|scenario| scenario.blamed_lines().is_empty()) {
            assert!(!scenario.victim_lines().is_empty(), "{}", scenario.name);
        }
    }

    #[test]
    fn every_name_in_a_source_is_that_of_a_scenario() {
        for line in SOURCES.iter().flat_map(|(file, source)| source_lines(file, source)) {
            for name in names_in(line.text, BLAME).chain(names_in(line.text, VICTIM)) {
                assert!(Scenario::find(name).is_some(), "{line:?}");
            }
        }
    }

    #[test]
    fn no_source_with_such_a_line_is_left_out() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        for path in files {
            let name = path.file_name().unwrap().to_str().unwrap();
            let source = fs::read_to_string(&path).unwrap();
            let has_names = |line: &str| names_in(line, BLAME).chain(names_in(line, VICTIM)).next().is_some();
            let is_known = SOURCES.iter().any(|(known, _)| *known == name);
            assert_eq!(source.lines().any(has_names), is_known, "{name}");
        }
    }

    #[test]
    fn a_line_is_found_where_it_stands() {
        let lines = Scenario::find("sync-per-op").unwrap().blamed_lines();
        let [line] = &*lines else { panic!("{lines:?}") };
        assert_eq!(line.file, "scenario_calls.c");
        let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(line.file)).unwrap();
        let text = source.lines().nth(line.line as usize - 1).unwrap();
        assert!(text.contains("cuStreamSynchronize(dispatcher->stream);"), "{text:?}");
    }

    #[test]
    fn a_word_outside_a_comment_names_nothing() {
        assert_eq!(names_in("blame: nobody", BLAME).count(), 0);
        assert_eq!(names_in("call(); // blame: a b", BLAME).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(names_in("call()  # victim: a", VICTIM).collect::<Vec<_>>(), ["a"]);
        assert_eq!(names_in("call(); // victim: a", BLAME).count(), 0);
    }
}
