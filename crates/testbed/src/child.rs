//! A child process that is talked to in lines, never waited for without a deadline, and never outlives its owner.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct LineChild {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    deadline: Instant,
}

impl LineChild {
    /// Starts the command. Everything it does must be over after `limit`.
    pub(crate) fn spawn(mut command: Command, limit: Duration) -> Result<Self> {
        let deadline = Instant::now() + limit;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_when_not_busy(&mut command, deadline)
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the child has no stdout")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { stdin: child.stdin.take(), child, lines, deadline })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the child's stdin is closed")?;
        writeln!(stdin, "{line}").with_context(|| format!("send {line:?} to the child"))
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line, or `None` when the child has closed its stdout.
    pub(crate) fn next_line(&mut self) -> Result<Option<String>> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("the child wrote no line in time"),
        }
    }

    /// Waits for the line that says the child is ready.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        self.ready_words().map(drop)
    }

    /// The same, with what the line says after the pid.
    pub(crate) fn ready_words(&mut self) -> Result<Vec<String>> {
        match self.next_line()? {
            Some(line) if line.starts_with("ready ") => Ok(line.split(' ').skip(2).map(str::to_owned).collect()),
            other => bail!("expected the child to be ready, got {other:?}"),
        }
    }

    /// Whatever it still does must be over after `limit`.
    pub(crate) fn shorten_limit(&mut self, limit: Duration) {
        self.deadline = self.deadline.min(Instant::now() + limit);
    }

    pub(crate) fn wait_exit(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= self.deadline {
                bail!("the child did not exit in time");
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for LineChild {
    fn drop(&mut self) {
        // Both fail only when the child is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file written a moment ago is "busy" while another thread's fork still holds it open for writing.
fn spawn_when_not_busy(command: &mut Command, deadline: Instant) -> std::io::Result<Child> {
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                thread::sleep(POLL);
            }
            other => return other,
        }
    }
}
