//! The interpreters of this machine, and programs that run on them to be walked.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use gpuwhy_stacks::memory::ProcessMemory;
use gpuwhy_stacks::python::{Interpreter, Refusal};
pub use gpuwhy_testbed::stacks::Python;

/// All that are supported.
pub fn supported() -> Vec<Python> {
    Python::supported().unwrap()
}

/// A frame as Python itself tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub function: String,
    pub file: String,
    pub line: Option<u32>,
}

/// A program that has told its stacks and waits. It ends when this is dropped.
pub struct Target {
    child: Child,
    _stdin: ChildStdin,
    /// Each thread's id and frames, from the innermost outwards.
    pub threads: Vec<(u64, Vec<Told>)>,
}

impl Target {
    /// Starts a scenario of `frames.py`, and waits until it has told its `threads` stacks.
    pub fn start(python: &Path, scenario: &str, threads: usize) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/frames.py");
        let mut command = Command::new(python);
        command.env("PYTHONIOENCODING", "utf-8").arg(program).arg(scenario);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let told = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let threads = read_threads(told, threads);
        let target = Self { child, _stdin: stdin, threads };
        target.wait_until_asleep();
        target
    }

    pub fn memory(&self) -> ProcessMemory {
        ProcessMemory { pid: self.child.id() }
    }

    /// The interpreter in whatever file of the process has one.
    pub fn interpreter(&self) -> Interpreter {
        let found = self.find().unwrap_or_else(|refusal| panic!("refused: {refusal}"));
        found.expect("no file of the process has an interpreter")
    }

    pub fn find(&self) -> Result<Option<Interpreter>, Refusal> {
        for (file, bias) in mapped_files(self.child.id()) {
            let found = Interpreter::find(&self.memory(), &file, bias)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// It tells just before it reads its input, for which it waits. The kernel knows system calls by number.
    fn wait_until_asleep(&self) {
        let reads_input = format!("{} 0x0 ", libc::SYS_read);
        let call = || std::fs::read_to_string(format!("/proc/{}/syscall", self.child.id())).unwrap();
        while !call().starts_with(&reads_input) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_threads(mut lines: impl Iterator<Item = String>, threads: usize) -> Vec<(u64, Vec<Told>)> {
    let mut told: Vec<(u64, Vec<Told>)> = Vec::new();
    for _ in 0..threads {
        let mut frames = Vec::new();
        let first = lines.next().expect("the program ended early");
        let id = first.strip_prefix("thread\t").expect("a thread").parse().unwrap();
        for line in lines.by_ref().take_while(|line| line != "end") {
            let fields: Vec<_> = line.split('\t').collect();
            let [_, function, file, line] = fields[..] else { panic!("not a frame: {line}") };
            let line = line.parse().ok();
            frames.push(Told { function: function.to_owned(), file: file.to_owned(), line });
        }
        told.push((id, frames));
    }
    told
}

/// Files that a process maps, each with what to add to its addresses.
fn mapped_files(pid: u32) -> Vec<(PathBuf, u64)> {
    const FIXED: u8 = 2;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" 00000000 ") && line.contains(" /")) {
        let path = PathBuf::from(line[line.find(" /").unwrap() + 1..].trim());
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let mut head = [0; 17];
        let is_read = std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut head)).is_ok();
        if is_read && head.starts_with(b"\x7fELF") && !files.iter().any(|(known, _)| *known == path) {
            files.push((path, if head[16] == FIXED { 0 } else { start }));
        }
    }
    files
}
