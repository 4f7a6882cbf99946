//! The programs with known stacks, and how one is run.

use super::{PythonLog, WitnessLog, read_python_log, read_witness_log};
use crate::Testbed;
use crate::child::LineChild;
use crate::files::{built, unpack_files};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

const FILES: &[(&str, &[u8])] = &[
    built!("libwitness.so"),
    built!("libmixed.so"),
    built!("witness_c"),
    built!("witness_c_frame_pointers"),
    built!("witness_cpp"),
    built!("witness_rust"),
    built!("nested_calls"),
    built!("nested_calls_frame_pointers"),
    ("nested_calls.py", include_bytes!("../../c/stacks/nested_calls.py")),
    ("witness_record.py", include_bytes!("../../c/stacks/witness_record.py")),
    ("witness.py", include_bytes!("../../c/stacks/witness.py")),
    ("witness_mixed.py", include_bytes!("../../c/stacks/witness_mixed.py")),
];

pub const PROGRAMS: &[Program] =
    &[Program::C, Program::CFramePointers, Program::Cpp, Program::Rust, Program::Python, Program::Mixed];

/// A program that calls `witness` from many situations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// Optimized, without frame pointers.
    C,
    /// The same source with frame pointers.
    CFramePointers,
    Cpp,
    Rust,
    Python,
    /// Python and C++ in turn.
    Mixed,
}

impl Program {
    pub fn is_python(self) -> bool {
        matches!(self, Self::Python | Self::Mixed)
    }

    pub fn file_name(self) -> &'static str {
        match self {
            Self::C => "witness_c",
            Self::CFramePointers => "witness_c_frame_pointers",
            Self::Cpp => "witness_cpp",
            Self::Rust => "witness_rust",
            Self::Python => "witness.py",
            Self::Mixed => "witness_mixed.py",
        }
    }
}

/// A folder with the programs, next to the fake libraries.
#[derive(Clone, Debug)]
pub struct Witnesses {
    testbed: Testbed,
}

impl Witnesses {
    /// Writes all files into `dir`, which exists.
    pub fn unpack(dir: &Path) -> Result<Self> {
        let testbed = Testbed::unpack(dir)?;
        unpack_files(FILES, testbed.dir())?;
        Ok(Self { testbed })
    }

    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    pub fn path(&self, program: Program) -> PathBuf {
        self.testbed.dir().join(program.file_name())
    }

    /// The library with `witness`, in which the innermost frame of every stack is.
    pub fn libwitness(&self) -> PathBuf {
        self.testbed.dir().join("libwitness.so")
    }
}

/// A program to be started.
#[derive(Debug)]
pub struct Witness<'a> {
    witnesses: &'a Witnesses,
    program: Program,
    situations: u32,
    call: Duration,
    python: PathBuf,
    is_check: bool,
}

impl<'a> Witness<'a> {
    /// A thousand situations, with calls of a millisecond.
    pub fn new(witnesses: &'a Witnesses, program: Program) -> Self {
        let (situations, call) = (1000, Duration::from_millis(1));
        Self { witnesses, program, situations, call, python: "python3".into(), is_check: false }
    }

    pub fn situations(mut self, count: u32) -> Self {
        self.situations = count;
        self
    }

    /// How long each driver call takes.
    pub fn call(mut self, duration: Duration) -> Self {
        self.call = duration;
        self
    }

    /// The interpreter for the Python programs, 3.9 or newer; `python3` if not set.
    pub fn python(mut self, interpreter: impl Into<PathBuf>) -> Self {
        self.python = interpreter.into();
        self
    }

    /// Makes no driver calls from Python: the program looks whether its own record holds while `witness` is called, and
    /// fails if it does not.
    pub fn check(mut self) -> Self {
        self.is_check = true;
        self
    }

    /// Starts the process. Its libraries are loaded when this returns, and it calls nothing before `go`.
    pub fn start(self) -> Result<RunningWitness> {
        ensure!(self.situations > 0, "a witness needs at least one situation");
        ensure!(self.program.is_python() || !self.is_check, "only Python's own record can be checked");
        let (log, python_log) = self.log_paths();
        let mut command = self.command();
        command.env("WITNESS_LOG", &log).env("WITNESS_PYTHON_LOG", &python_log);
        let mut child = LineChild::spawn(command, LIMIT)?;
        child.wait_ready().with_context(|| format!("{} is not ready", self.program.file_name()))?;
        let python_log = self.program.is_python().then_some(python_log);
        Ok(RunningWitness { child, log, python_log, has_gone: false, is_done: false })
    }

    fn command(&self) -> Command {
        let path = self.witnesses.path(self.program);
        let mut command = Command::new(&path);
        if self.program.is_python() {
            command = Command::new(&self.python);
            command.env("PYTHONDONTWRITEBYTECODE", "1").arg(path).args(self.is_check.then_some("--check"));
        }
        command.arg(self.situations.to_string());
        command.env("LD_LIBRARY_PATH", self.witnesses.testbed.dir());
        command.env("WITNESS_NS", self.call.as_nanos().to_string());
        command
    }

    /// Every run writes files of its own.
    fn log_paths(&self) -> (PathBuf, PathBuf) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = self.witnesses.testbed.dir();
        (dir.join(format!("witness-{name}.log")), dir.join(format!("witness-{name}.python.log")))
    }
}

/// A program that was started. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningWitness {
    child: LineChild,
    log: PathBuf,
    python_log: Option<PathBuf>,
    has_gone: bool,
    is_done: bool,
}

/// What a program wrote down.
#[derive(Clone, Debug)]
pub struct Testimony {
    pub native: WitnessLog,
    /// Of the Python programs.
    pub python: Option<PythonLog>,
}

impl RunningWitness {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it make its calls.
    pub fn go(&mut self) -> Result<()> {
        self.has_gone = true;
        self.child.send("go")
    }

    /// Lets it make its calls if it has not, and waits until they are made. The process still lives then.
    pub fn wait_done(&mut self) -> Result<()> {
        if !self.has_gone {
            self.go()?;
        }
        match self.child.next_line()? {
            Some(line) if line.starts_with("done ") => self.is_done = true,
            other => bail!("expected the witness to be done, got {other:?}"),
        }
        Ok(())
    }

    /// Waits for its exit and reads what it wrote.
    pub fn finish(mut self) -> Result<Testimony> {
        if !self.is_done {
            self.wait_done()?;
        }
        self.child.close_stdin();
        let status = self.child.wait_exit()?;
        ensure!(status.success(), "the witness failed: {status}");
        let python = self.python_log.as_deref().map(read_python_log).transpose()?;
        Ok(Testimony { native: read_witness_log(&self.log)?, python })
    }
}
