//! A program written for one test, talked to in lines; killed when dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::LIMIT;

pub struct Script {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Script {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { stdin: child.stdin.take(), child, lines }
    }

    pub fn shell(text: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-ec", text, "sh"]).args(arguments);
        Self::start(command)
    }

    /// Python with `say(word)` to here and `wait()` for a line from here.
    pub fn python(text: &str, arguments: &[&str]) -> Self {
        const START: &str = "import ctypes, mmap, os, sys, threading\n\
             def say(word): print(word, flush=True)\n\
             def wait(): sys.stdin.readline()\n";
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{START}{text}")]).args(arguments);
        Self::start(command)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).unwrap()
    }

    pub fn wait_for(&mut self, line: &str) -> &mut Self {
        assert_eq!(self.line(), line);
        self
    }

    /// Closes its input, and waits for its end.
    pub fn finish(mut self) -> ExitStatus {
        self.stdin = None;
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
