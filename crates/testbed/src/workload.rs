//! Starting a workload, and hearing from it.

use crate::child::LineChild;
use crate::{Testbed, Truth};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What a driver function does while it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Return,
    /// Uses CPU time.
    Burn,
    Sleep,
    /// Waits on a futex that another thread of the process releases.
    Futex,
    /// Reads a pipe that another thread of the process writes to.
    Pipe,
    /// Reads a file past the page cache.
    Io,
}

impl Behaviour {
    fn as_str(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Burn => "burn",
            Self::Sleep => "sleep",
            Self::Futex => "futex",
            Self::Pipe => "pipe",
            Self::Io => "io",
        }
    }
}

/// A workload to be started. Without a mix it goes through all functions, or calls the one that `op` names.
#[derive(Debug)]
pub struct Workload {
    command: Command,
    limit: Duration,
}

impl Workload {
    /// The C workload, which loads the libraries with `dlopen`.
    pub fn new(testbed: &Testbed) -> Self {
        Self::of(testbed, testbed.workload())
    }

    /// The C workload with the runtime linked in.
    pub fn statically_linked(testbed: &Testbed) -> Self {
        Self::of(testbed, testbed.workload_static()).arg("--nested")
    }

    /// The Python workload; it knows `steps` and none of the other settings.
    pub fn python(testbed: &Testbed) -> Self {
        let mut workload = Self::of(testbed, "python3");
        workload.command.arg(testbed.workload_py());
        workload.setting("--driver", testbed.libcuda()).setting("--runtime", testbed.libcudart())
    }

    fn of(testbed: &Testbed, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", testbed.dir());
        Self { command, limit: LIMIT }
    }

    /// 0 means that the main thread makes the calls; otherwise it makes none.
    pub fn threads(self, count: u32) -> Self {
        self.setting("--threads", count.to_string())
    }

    /// Calls per thread, on top of those that set up its device.
    pub fn calls(self, count: u64) -> Self {
        self.setting("--calls", count.to_string())
    }

    /// Calls per thread and second.
    pub fn rate(self, per_second: f64) -> Self {
        self.setting("--rate", per_second.to_string())
    }

    /// Calls for this long instead of a number of times.
    pub fn duration(self, duration: Duration) -> Self {
        self.setting("--duration", duration.as_secs_f64().to_string())
    }

    /// Calls the runtime, which calls the driver.
    pub fn nested(self) -> Self {
        self.arg("--nested")
    }

    /// `launch`, `chatter`, `copy`, `alloc`, `sync`, `graph` or `all`.
    pub fn mix(self, name: &str) -> Self {
        self.setting("--mix", name)
    }

    /// What a function does, named without version suffix. For a runtime function: what its driver function does.
    pub fn op(self, name: &str, behaviour: Behaviour, duration: Duration) -> Self {
        self.setting("--op", name)
            .setting("--behave", behaviour.as_str())
            .setting("--ns", duration.as_nanos().to_string())
    }

    /// Lets the function of the last `op` return this code.
    pub fn returning(self, code: i32) -> Self {
        self.setting("--ret", code.to_string())
    }

    /// Loads this driver library, and only after `go`.
    pub fn dlopen(self, library: &Path) -> Self {
        self.setting("--dlopen", library)
    }

    /// Spreads the threads over this many devices.
    pub fn devices(self, count: u32) -> Self {
        self.setting("--devices", count.to_string())
    }

    /// Ends each thread inside its last call.
    pub fn die_inside(self) -> Self {
        self.arg("--die-inside")
    }

    /// Jumps out of every second call of the first function.
    pub fn longjmp(self) -> Self {
        self.arg("--longjmp")
    }

    /// Forks inside the first call of the first thread. The child returns from it and makes ten calls of its own.
    pub fn fork_inside(self) -> Self {
        self.arg("--fork-inside")
    }

    /// After its calls the process replaces its image with a new one that makes the same calls.
    pub fn exec_self(self) -> Self {
        self.arg("--exec-self")
    }

    /// Asks the kernel's clocks around every call, which takes some microseconds.
    pub fn clocks(self) -> Self {
        self.arg("--clocks")
    }

    /// Names the threads; `\xNN` stands for any byte.
    pub fn name(self, name: &str) -> Self {
        self.setting("--name", name)
    }

    /// Lives on after its calls until `finish`.
    pub fn wait_end(self) -> Self {
        self.arg("--wait-end")
    }

    /// Steps of the Python workload.
    pub fn steps(self, count: u32) -> Self {
        self.setting("--steps", count.to_string())
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it through another program that runs the rest of its command line in its own place, as `unshare` does.
    pub fn through(mut self, wrapper: &[&str]) -> Self {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(self.command.get_program()).args(self.command.get_args());
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.command = command;
        self
    }

    /// The longest it may take from start to finish; 60 seconds if not set.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts the process. It has loaded its libraries when it is ready, and makes no call before `go`.
    pub fn start(self) -> Result<Running> {
        let command = self.arg("--wait-start");
        let child = LineChild::spawn(command.command, command.limit)?;
        Ok(Running { child, truth: Truth::default(), is_ready: false, has_gone: false })
    }

    fn arg(mut self, flag: &str) -> Self {
        self.command.arg(flag);
        self
    }

    fn setting(mut self, flag: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.arg(flag).arg(value);
        self
    }
}

/// A workload that was started. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: LineChild,
    truth: Truth,
    is_ready: bool,
    has_gone: bool,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub fn wait_ready(&mut self) -> Result<()> {
        if !self.is_ready {
            self.child.wait_ready()?;
            self.is_ready = true;
        }
        Ok(())
    }

    /// Lets it make its calls.
    pub fn go(&mut self) -> Result<()> {
        self.wait_ready()?;
        self.has_gone = true;
        self.child.send("go")
    }

    /// Waits until its calls are made. With `wait_end` the process still lives then.
    pub fn wait_done(&mut self) -> Result<&Truth> {
        let pid = self.pid();
        while !self.truth.ends.iter().any(|end| end.pid == pid) {
            let line = self.child.next_line()?.context("the workload ended before it had told the truth")?;
            self.truth.add(&line)?;
        }
        Ok(&self.truth)
    }

    /// Lets it make its calls if it has not, and waits for its exit.
    pub fn finish(mut self) -> Result<Truth> {
        if !self.has_gone {
            self.go()?;
        }
        self.wait_done()?;
        self.child.close_stdin();
        while let Some(line) = self.child.next_line()? {
            self.truth.add(&line)?;
        }
        let status = self.child.wait_exit()?;
        if !status.success() {
            bail!("the workload failed: {status}");
        }
        Ok(self.truth)
    }
}
