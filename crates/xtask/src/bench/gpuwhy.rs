//! The real binary, built and run as a user runs it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::docs;

/// Builds it and says where it is.
pub fn build() -> Result<PathBuf> {
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--release", "-p", "gpuwhy"]).status()?;
    ensure!(built.success(), "build gpuwhy");
    Ok(release_folder().join("gpuwhy"))
}

/// Where cargo puts what it builds for release.
pub fn release_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| docs::root().join("target"), PathBuf::from);
    target.join("release")
}

/// Runs a command to its end: the seconds that passed, and the most memory it took in megabytes.
pub fn timed(command: &mut Command) -> Result<(f64, f64)> {
    let start = Instant::now();
    let child = command.spawn().context("start gpuwhy")?;
    let mut status = 0;
    // SAFETY: rusage is a struct of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and has not been waited for; both places outlive the call.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    ensure!(waited == child.id() as i32, "wait for gpuwhy");
    let status = ExitStatus::from_raw(status);
    ensure!(status.success(), "{command:?}: {status}");
    Ok((start.elapsed().as_secs_f64(), usage.ru_maxrss as f64 * 1024.0 / 1e6))
}

/// What it says when it traces.
const TRACES: &str = "tracing ";

const SERVES: &str = "serving http://";
const HEARS: &str = "hearing nodes at http://";

/// A `gpuwhy trace` of some processes, or a server. It is killed when this is dropped.
pub struct Gpuwhy {
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl Gpuwhy {
    /// Starts it and waits until it traces.
    pub fn trace(binary: &Path, pids: &[u32], out: &Path, options: &[&str]) -> Result<Self> {
        Self::start(&mut command(binary, pids, out, options), &[TRACES])
    }

    /// Starts it and waits until it can walk every stack of the process.
    pub fn trace_stacks(binary: &Path, pid: u32, out: &Path, options: &[&str]) -> Result<Self> {
        let has_tables = format!("process {pid} has all its unwind tables");
        let mut command = command(binary, &[pid], out, options);
        Self::start(command.env("GPUWHY_LOG", "gpuwhy_agent=info"), &[TRACES, &has_tables])
    }

    /// Serves a trace on this host, and says where.
    pub fn serve(binary: &Path, file: &Path) -> Result<(Self, String)> {
        let mut command = Command::new(binary);
        command.args(["dashboard", "--addr", "127.0.0.1:0", "--audit-log", "/dev/null", "--db"]).arg(file);
        let (server, said) = Self::started(&mut command, &[SERVES])?;
        let address = said.split(SERVES).nth(1).and_then(|rest| rest.split('/').next()).context("no address")?;
        Ok((server, address.to_owned()))
    }

    /// Hears nodes on this host, as many requests as there may be, keeps that in a folder, and says where it listens.
    pub fn fleet(binary: &Path, data: &Path) -> Result<(Self, String)> {
        let mut command = Command::new(binary);
        command
            .args([
                "fleet",
                "serve",
                "--addr",
                "127.0.0.1:0",
                "--audit-log",
                "/dev/null",
                "--rate",
                "1000000",
                "--data",
            ])
            .arg(data);
        let (server, said) = Self::started(&mut command, &[HEARS])?;
        let address = said.split(HEARS).nth(1).and_then(|rest| rest.split('/').next()).context("no address")?;
        Ok((server, address.to_owned()))
    }

    /// Starts it and waits until it has said all of this.
    fn start(command: &mut Command, until: &[&str]) -> Result<Self> {
        Ok(Self::started(command, until)?.0)
    }

    /// The same, with what it has said so far.
    fn started(command: &mut Command, until: &[&str]) -> Result<(Self, String)> {
        let mut child = command.stderr(Stdio::piped()).spawn().context("start gpuwhy")?;
        let mut lines = BufReader::new(child.stderr.take().context("no output")?).lines().map_while(Result::ok);
        let mut said = String::new();
        while !until.iter().all(|words| said.contains(words)) {
            match lines.next() {
                Some(line) => said += &format!("{line}\n"),
                None => bail!("gpuwhy ended before it traced: {said}"),
            }
        }
        let so_far = said.clone();
        let log = std::thread::spawn(move || lines.fold(said, |said, line| said + &line + "\n"));
        Ok((Self { child, log: Some(log) }, so_far))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(self) -> Result<()> {
        self.signal(libc::SIGINT);
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Result<()> {
        let status = self.child.wait()?;
        let said = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        ensure!(status.success(), "gpuwhy failed: {said}");
        Ok(())
    }
}

fn command(binary: &Path, pids: &[u32], out: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["trace", "--live", "never"])
        .args(pids.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]))
        .args(options)
        .arg("--out")
        .arg(out);
    command
}

impl Drop for Gpuwhy {
    fn drop(&mut self) {
        // Both fail only when the child is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
