//! How often stacks are right: programs that know their own stacks, under the real tracer, and where it can be had
//! another reader of Python's stacks as a second witness.

mod live;
mod py_spy;
mod second;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use gpuwhy_model::{Call, Stack};
use gpuwhy_store::Trace;
use gpuwhy_testbed::stacks::{PROGRAMS, Program, Python, Score, Witness, Witnesses};
use gpuwhy_window::{LoadedStack, Scope};
use serde_json::{Value, json};

use self::py_spy::PySpy;
use crate::bench::{Gpuwhy, build_gpuwhy, machine_facts};
use crate::docs;

/// Everything is kept and seen: what is measured is the stacks, not what the governor leaves out.
const OPTIONS: &[&str] = &["--budget", "0", "--stacks", "all"];
const FILE: &str = "stacks.json";

/// Runs every program, those in Python on every Python, and writes what came of it.
pub fn run(situations: u32) -> Result<()> {
    let binary = build_gpuwhy()?;
    let dir = tempfile::tempdir()?;
    let witnesses = Witnesses::unpack(dir.path())?;
    let py_spy = PySpy::fetch();
    let mut programs = Vec::new();
    for (program, python) in all()? {
        let subject = Subject { witnesses: &witnesses, program, python };
        let mut result = subject.measure(&binary, situations).with_context(|| subject.name())?;
        if let (Program::Python, Some(python)) = (program, &subject.python) {
            result["second"] = match &py_spy {
                Ok(py_spy) => second::compare(&witnesses, python, py_spy),
                Err(error) => json!({ "why": format!("{error:#}") }),
            };
        }
        println!("{}: {result}", subject.name());
        programs.push(result);
    }
    let results = json!({
        "machine": machine_facts(),
        "situations": situations,
        "second": py_spy::NAME,
        "programs": programs,
    });
    docs::save_results(FILE, results)
}

/// Every program with the interpreters to run it on, one of each version.
fn all() -> Result<Vec<(Program, Option<Python>)>> {
    let mut pythons = Python::supported()?;
    pythons.sort_by_cached_key(|python| (python.minor, version(python)));
    pythons.dedup_by_key(|python| version(python));
    let with_pythons = |&program: &Program| match program.is_python() {
        true => pythons.iter().map(|python| (program, Some(python.clone()))).collect(),
        false => vec![(program, None)],
    };
    Ok(PROGRAMS.iter().flat_map(with_pythons).collect())
}

/// A program to be traced, and what it runs on.
struct Subject<'a> {
    witnesses: &'a Witnesses,
    program: Program,
    python: Option<Python>,
}

impl Subject<'_> {
    fn name(&self) -> String {
        let python = self.python.as_ref().map_or_else(String::new, |python| format!(" on {}", version(python)));
        format!("{}{python}", self.program.file_name())
    }

    fn measure(&self, binary: &Path, situations: u32) -> Result<Value> {
        let mut witness = Witness::new(self.witnesses, self.program).situations(situations);
        if let Some(python) = &self.python {
            witness = witness.python(&python.path);
        }
        let running = witness.start()?;
        let file = self.witnesses.testbed().dir().join("stacks.db");
        let tracer = Gpuwhy::trace_stacks(binary, running.pid(), &file, OPTIONS)?;
        let testimony = running.finish()?;
        tracer.wait()?;
        let score = Score::of(&testimony, &stacks_by_stream(&file)?)?;
        super::remove(&file)?;
        Ok(self.told(&score))
    }

    fn told(&self, score: &Score) -> Value {
        json!({
            "program": self.program.file_name(),
            "version": self.python.as_ref().map(version),
            "calls": score.calls,
            "taken": score.taken,
            "complete": score.complete,
            "native_right": score.native_right,
            "python_right": self.program.is_python().then_some(score.python_right),
            "complaints": score.complaints,
        })
    }
}

fn version(python: &Python) -> String {
    let asked = Python::ask(&python.path, "import platform; print(platform.python_version())");
    asked.unwrap_or_else(|| format!("3.{}", python.minor))
}

/// The programs pass their sequence numbers as streams.
fn stacks_by_stream(file: &Path) -> Result<HashMap<u64, Stack>> {
    let window = Trace::open(file)?.window(&Scope::default())?;
    let of_call = |call: &Call| Some((call.stream?, stack(window.stacks.get(&call.stack_id?)?)));
    Ok(window.calls.rows.iter().filter_map(of_call).collect())
}

fn stack(loaded: &LoadedStack) -> Stack {
    let frames = loaded.frames.iter().map(|frame| frame.as_ref().clone()).collect();
    Stack { frames, end: loaded.end, python_end: loaded.python_end }
}
