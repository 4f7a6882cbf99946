//! What the Python programs write about their own stacks. The format is described in `witness_record.py`.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, Default)]
pub struct PythonLog {
    /// By sequence number.
    pub stacks: HashMap<u64, PythonStack>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStack {
    pub tid: u32,
    /// Innermost first.
    pub frames: Vec<PythonFrame>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(from = "(String, String, u32)")]
pub struct PythonFrame {
    /// Qualified from Python 3.11 on.
    pub function: String,
    pub file: String,
    /// The line that is being executed while `witness` is called.
    pub line: u32,
}

impl From<(String, String, u32)> for PythonFrame {
    fn from((function, file, line): (String, String, u32)) -> Self {
        Self { function, file, line }
    }
}

#[derive(Deserialize)]
struct Line {
    sequence: u64,
    tid: u32,
    frames: Vec<PythonFrame>,
}

pub fn read_python_log(path: &Path) -> Result<PythonLog> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| format!("read the Python witness's log {}", path.display()))
}

fn parse(text: &str) -> Result<PythonLog> {
    let mut log = PythonLog::default();
    for line in text.lines() {
        let Line { sequence, tid, frames } =
            serde_json::from_str(line).with_context(|| format!("the line {line:?} is no stack"))?;
        let before = log.stacks.insert(sequence, PythonStack { tid, frames });
        ensure!(before.is_none(), "the sequence number {sequence} comes twice");
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_frames_by_sequence_number() {
        let log = parse("{\"sequence\": 3, \"tid\": 4, \"frames\": [[\"gr\\u00f6\\u00dfe\", \"a.py\", 5]]}\n").unwrap();
        let frame = PythonFrame { function: "größe".to_owned(), file: "a.py".to_owned(), line: 5 };
        assert_eq!(log.stacks[&3], PythonStack { tid: 4, frames: vec![frame] });
    }

    #[test]
    fn a_line_that_is_no_stack_says_so() {
        let error = parse("{\"sequence\": 3}\n").unwrap_err();
        assert!(format!("{error:#}").contains("is no stack"), "{error:#}");
    }
}
