//! Which Python a process runs, and whether its frames can be walked.

use std::ops::Range;
use std::path::{Path, PathBuf};

use gpuwhy_stacks::memory::ProcessMemory;
use gpuwhy_stacks::python::{self, Interpreter, Refusal};
use gpuwhy_stacks::symbols::open_regular;
use gpuwhy_stacks::table::{load_bias, segments};

use crate::procfs::{Mapping, Procfs};

/// A file of a process that may hold an interpreter.
pub struct Candidate {
    /// As the process sees it.
    pub path: PathBuf,
    /// A path that opens it from here.
    pub openable: PathBuf,
    /// What to take from addresses in memory to get those in the file.
    pub bias: u64,
}

/// An interpreter whose frames are not walked.
pub struct Refused {
    pub path: PathBuf,
    pub why: Refusal,
}

/// The interpreter that a process runs, if it runs one whose memory looks as it should. One that only has to get ready
/// counts for less than another file.
pub fn find_interpreter(pid: u32, candidates: Vec<Candidate>) -> Result<Option<Interpreter>, Refused> {
    let memory = ProcessMemory { pid };
    let mut not_ready = None;
    for Candidate { path, openable, bias } in candidates {
        let found = Interpreter::find(&memory, &openable, bias);
        let checked = found.and_then(|found| match found {
            Some(interpreter) => interpreter.validate(&memory).map(|_| Some(interpreter)),
            None => Ok(None),
        });
        match checked {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(why @ Refusal::NotReady(_)) => not_ready = Some(Refused { path, why }),
            Err(why) => return Err(Refused { path, why }),
        }
    }
    not_ready.map_or(Ok(None), Err)
}

/// Whether a file of the process is worth a look: the program itself, and what is called after Python.
pub fn may_hold_python(pid: u32) -> impl Fn(&Path) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    move |path| path == program || path.file_name().is_some_and(|name| name.to_string_lossy().contains("python"))
}

/// The same for a process that nothing is known of but what it maps.
pub fn look_for_interpreter(procfs: &Procfs, pid: u32, mappings: &[Mapping]) -> Result<Option<Interpreter>, Refused> {
    find_interpreter(pid, candidates(procfs, pid, mappings))
}

/// Where a process keeps the state of its Python, walkable or not.
pub fn find_python_state(procfs: &Procfs, pid: u32, mappings: &[Mapping]) -> Option<Range<u64>> {
    candidates(procfs, pid, mappings).into_iter().find_map(|Candidate { openable, bias, .. }| {
        let state = python::runtime(&openable).ok()??;
        Some(state.start.wrapping_add(bias)..state.end.wrapping_add(bias))
    })
}

fn candidates(procfs: &Procfs, pid: u32, mappings: &[Mapping]) -> Vec<Candidate> {
    let may_hold_python = may_hold_python(pid);
    let mut candidates: Vec<Candidate> = Vec::new();
    for mapping in mappings {
        if may_hold_python(&mapping.path) && !candidates.iter().any(|known| known.path == mapping.path) {
            candidates.extend(candidate(procfs, pid, mapping));
        }
    }
    candidates
}

fn candidate(procfs: &Procfs, pid: u32, mapping: &Mapping) -> Option<Candidate> {
    let openable = procfs.openable(pid, mapping);
    let segments = segments(&open_regular(&openable).ok()?).ok()?;
    let bias = load_bias(&segments, mapping.start, mapping.offset)?;
    Some(Candidate { path: mapping.path.clone(), openable, bias })
}
