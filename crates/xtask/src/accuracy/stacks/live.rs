//! Python's stacks as our own walk sees them, in a live process that nothing stops.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gpuwhy_model::PythonEnd;
use gpuwhy_stacks::memory::ProcessMemory;
use gpuwhy_stacks::python::{CodeObject, Interpreter, Walk, walk};
use gpuwhy_testbed::stacks::PythonFrame;

/// A process with an interpreter in it.
pub struct Live {
    memory: ProcessMemory,
    interpreter: Interpreter,
}

/// Where the type of an ELF file stands, and the one whose addresses are fixed.
const ELF_TYPE: usize = 16;
const FIXED: u8 = 2;

impl Live {
    pub fn find(pid: u32) -> Result<Self> {
        let memory = ProcessMemory { pid };
        for (file, bias) in mapped_files(pid)? {
            match Interpreter::find(&memory, &file, bias) {
                Ok(Some(interpreter)) => return Ok(Self { memory, interpreter }),
                Ok(None) => {}
                Err(refusal) => bail!("{} is refused: {refusal}", file.display()),
            }
        }
        bail!("no file of process {pid} has an interpreter")
    }

    pub fn walk(&self, thread_id: u64) -> Walk {
        walk(&self.memory, &self.interpreter, thread_id)
    }

    /// What a walk means.
    pub fn frames(&self, walk: &Walk) -> Result<Vec<PythonFrame>> {
        if walk.end != PythonEnd::Complete {
            bail!("the walk did not come to its end: {}", walk.end);
        }
        let frame = |raw: &gpuwhy_stacks::python::RawFrame| {
            let code = CodeObject::read(&self.memory, &self.interpreter, raw.code)?;
            let line = code.line(raw.instruction).context("no line")?;
            Ok(PythonFrame { function: code.qualified_name, file: code.file, line })
        };
        walk.frames.iter().map(frame).collect()
    }
}

/// The files of a process, each with what to add to its addresses.
fn mapped_files(pid: u32) -> Result<Vec<(PathBuf, u64)>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).with_context(|| format!("process {pid}"))?;
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" 00000000 ")) {
        let Some((start, path)) = parsed(line) else { continue };
        if let (Some(bias), false) = (bias(&path, start), files.iter().any(|(known, _)| *known == path)) {
            files.push((path, bias));
        }
    }
    Ok(files)
}

fn parsed(line: &str) -> Option<(u64, PathBuf)> {
    let path = PathBuf::from(line.get(line.find(" /")? + 1..)?.trim());
    Some((u64::from_str_radix(line.split('-').next()?, 16).ok()?, path))
}

fn bias(path: &Path, start: u64) -> Option<u64> {
    let mut head = [0; ELF_TYPE + 1];
    std::fs::File::open(path).ok()?.read_exact(&mut head).ok()?;
    let is_elf = head.starts_with(b"\x7fELF");
    is_elf.then_some(if head[ELF_TYPE] == FIXED { 0 } else { start })
}
