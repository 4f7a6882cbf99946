//! The lines by which scenarios are known are in the programs' debug information, each with code of its own.

#![allow(clippy::unwrap_used)]

use gpuwhy_testbed::{SCENARIOS, SourceLine, Testbed};
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

/// Lines with a memory access or a loop, and no call.
const WITHOUT_CALL: &[&str] = &["(void)mapping[", "for (volatile int", "while (clock_ns("];

/// File and line of the instructions of a program: of all, and of the calls that return.
#[derive(Default)]
struct CodeLines {
    any: HashSet<(String, u32)>,
    calls: HashSet<(String, u32)>,
}

impl CodeLines {
    /// `objdump` prints the source line before the instructions that belong to it.
    fn add(&mut self, program: &Path) {
        let output = Command::new("objdump").args(["-d", "-l", "--no-show-raw-insn"]).arg(program).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut current = None;
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some(found) = line.starts_with('/').then(|| file_and_line(line)).flatten() {
                current = Some(found);
            } else if let (Some(current), Some((_, code))) = (&current, line.split_once(":\t")) {
                self.any.insert(current.clone());
                if code.starts_with("call") {
                    self.calls.insert(current.clone());
                }
            }
        }
    }

    fn have(&self, line: &SourceLine) -> bool {
        let has_none = WITHOUT_CALL.iter().any(|text| line.text.contains(text));
        let lines = if has_none { &self.any } else { &self.calls };
        lines.contains(&(line.file.to_owned(), line.line))
    }
}

/// `/folder/file.c:12 (discriminator 3)`
fn file_and_line(line: &str) -> Option<(String, u32)> {
    let (path, rest) = line.rsplit_once(':')?;
    let number = rest.split(' ').next()?.parse().ok()?;
    Some((Path::new(path).file_name()?.to_str()?.to_owned(), number))
}

#[test]
fn every_line_of_a_scenario_in_c_is_a_call_in_its_program() {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    let mut code = CodeLines::default();
    code.add(&testbed.scenario());
    code.add(&testbed.scenario_peer());
    let lines = SCENARIOS.iter().flat_map(|scenario| [scenario.blamed_lines(), scenario.victim_lines()].concat());
    let in_c: HashSet<SourceLine> = lines.filter(|line| line.file.ends_with(".c")).collect();
    assert!(in_c.len() > 30);
    let missing: Vec<_> = in_c.iter().filter(|line| !code.have(line)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
