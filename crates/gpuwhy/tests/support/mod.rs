//! The real binary, run as a user runs it, and the trace it leaves behind.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gpuwhy_store::{Answer, Limits, Trace, Value};
use gpuwhy_testbed::{Testbed, Truth, Workload};
pub use gpuwhy_testbed::{needs_root, stolen_ns};
use tempfile::TempDir;

pub mod mounts;
pub mod pty;
pub mod script;
pub mod small_trace;

pub const LIMIT: Duration = Duration::from_secs(60);

/// A folder with the fakes and room for a trace.
pub struct Place {
    pub dir: TempDir,
    pub testbed: Testbed,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let testbed = Testbed::unpack(dir.path()).unwrap();
        Self { dir, testbed }
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("trace.db")
    }

    /// `gpuwhy trace` into this place's file; without a budget unless one is given, so that every call is kept.
    pub fn trace(&self, arguments: &[&str]) -> Tracing {
        let file = self.file();
        let mut all = vec!["trace", "--out", file.to_str().unwrap()];
        if !arguments.contains(&"--budget") {
            all.extend(["--budget", "0"]);
        }
        all.extend(arguments);
        Tracing::start(gpuwhy(&all), file)
    }
}

pub fn gpuwhy(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
    command.args(arguments);
    command
}

/// A tracer that was started; killed when dropped, and when the test is killed.
pub struct Tracing {
    child: Child,
    lines: Receiver<String>,
    pub log: Vec<String>,
    file: PathBuf,
}

impl Tracing {
    pub fn start(command: Command, file: PathBuf) -> Self {
        Self::spawn(command, Stdio::null(), file)
    }

    /// One that can be talked to, or whose command can.
    pub fn start_with_input(command: Command, file: PathBuf) -> Self {
        Self::spawn(command, Stdio::piped(), file)
    }

    fn spawn(mut command: Command, input: Stdio, file: PathBuf) -> Self {
        command.stderr(Stdio::piped()).stdin(input);
        // SAFETY: a plain system call, which a child may make after a fork.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, log: Vec::new(), file }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says something with these words.
    pub fn wait_for(&mut self, words: &str) -> &mut Self {
        let deadline = Instant::now() + LIMIT;
        while !self.log.iter().any(|line| line.contains(words)) {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("{words:?} was never said: {:#?}", self.log),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without saying {words:?}: {:#?}", self.log),
            }
        }
        self
    }

    pub fn wait_ready(&mut self) -> &mut Self {
        self.wait_for("tracing ")
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    pub fn wait_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.log.extend(self.lines.iter());
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {:#?}", self.log);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// How long it takes to end after a signal, as far as it has a CPU whenever it wants one.
    pub fn end_by(&mut self, signal: i32) -> (Duration, ExitStatus) {
        let mut queued = Queued::since_now(self.pid());
        let start = Instant::now();
        self.signal(signal);
        let status = wait_until("it ends", || {
            queued.look();
            self.child.try_wait().unwrap()
        });
        self.log.extend(self.lines.iter());
        (start.elapsed().saturating_sub(queued.total()), status)
    }

    /// Ctrl-C, and the finished trace.
    pub fn stop(mut self) -> Finished {
        self.signal(libc::SIGINT);
        let status = self.wait_exit();
        assert!(status.success(), "{status}: {:#?}", self.log);
        Finished::open(&self.file, std::mem::take(&mut self.log))
    }

    /// The finished trace of a tracer that ends by itself.
    pub fn wait_finished(mut self) -> (ExitStatus, Finished) {
        let status = self.wait_exit();
        (status, Finished::open(&self.file, std::mem::take(&mut self.log)))
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a process is without a CPU, by the kernel's own clocks: its threads wait for one, or the host has taken it.
pub struct Queued {
    pid: u32,
    stolen_ns: f64,
    /// Of each thread: when looked at first, and last. A thread that has ended keeps its last.
    threads: HashMap<u32, (u64, u64)>,
}

impl Queued {
    pub fn since_now(pid: u32) -> Self {
        let mut queued = Self { pid, stolen_ns: stolen_ns(), threads: HashMap::new() };
        queued.look();
        queued
    }

    pub fn look(&mut self) {
        for entry in std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten() {
            let clocks = std::fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            let queued = clocks.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
            let tid = entry.file_name().to_str().and_then(|tid| tid.parse().ok());
            if let (Some(tid), Some(ns)) = (tid, queued) {
                self.threads.entry(tid).or_insert((ns, ns)).1 = ns;
            }
        }
    }

    pub fn total(&self) -> Duration {
        let waited_ns = self.threads.values().map(|(first, last)| last - first).sum();
        Duration::from_nanos(waited_ns) + Duration::from_nanos((stolen_ns() - self.stolen_ns) as u64)
    }
}

pub struct Finished {
    pub trace: Trace,
    pub log: Vec<String>,
}

impl Finished {
    pub fn open(file: &Path, log: Vec<String>) -> Self {
        Self { trace: Trace::open(file).unwrap_or_else(|error| panic!("{error}: {log:#?}")), log }
    }

    pub fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        let limits = Limits { rows: 10_000_000, bytes: 1 << 30, time: LIMIT };
        let Answer { rows, truncated, .. } =
            self.trace.query(sql, &limits).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(truncated.is_none(), "{sql}");
        rows
    }

    pub fn number(&self, sql: &str) -> i64 {
        match self.rows(sql).first().and_then(|row| row.first()) {
            Some(Value::Integer(number)) => *number,
            other => panic!("{sql} gives {other:?}"),
        }
    }

    pub fn text(&self, sql: &str) -> String {
        match self.rows(sql).first().and_then(|row| row.first()) {
            Some(Value::Text(text)) => text.clone(),
            other => panic!("{sql} gives {other:?}"),
        }
    }

    /// The invariants of every trace.
    pub fn check(&self) -> &Self {
        let worst =
            "SELECT coalesce(max(abs(duration_ns - running_ns - runqueue_ns - blocked_ns)), 0) FROM cuda_events";
        assert!(self.number(worst) <= 1000, "a split does not add up");
        assert_eq!(self.number("SELECT count(*) FROM cuda_events WHERE running_ns < 0"), 0);
        let seen = self.number("SELECT coalesce(sum(count), 0) FROM call_stats");
        assert_eq!(seen, self.number("SELECT seen FROM sessions"));
        let stored = self.number("SELECT count(*) FROM cuda_events");
        let lost = self.lost_calls();
        assert_eq!(seen, stored + lost, "seen = stored + losses; {:#?}", self.log);
        assert_eq!(self.number("SELECT count(*) FROM cuda_events WHERE parent_id IS NOT NULL AND parent_id > id"), 0);
        self
    }

    pub fn lost_calls(&self) -> i64 {
        self.number(
            "SELECT coalesce(sum(count), 0) FROM losses \
             WHERE reason IN ('ring_full', 'malformed', 'expired', 'not_written')",
        )
    }

    pub fn loss(&self, reason: &str) -> i64 {
        self.number(&format!("SELECT coalesce(sum(count), 0) FROM losses WHERE reason = '{reason}'"))
    }
}

/// A server of ours and where it listens. It ends when this is dropped.
pub struct Listening {
    child: Child,
    pub address: String,
    /// Where it keeps something, and nobody else does.
    _data: Option<TempDir>,
}

impl Listening {
    pub fn start(mut command: Command) -> Self {
        command.env_remove("GPUWHY_TOKEN");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let address = line.split("://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        // What it puts on record is taken off its hands.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { child, address, _data: None }
    }

    /// A fleet, which keeps what it is told in a folder of its own.
    pub fn fleet(arguments: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut listening = Self::start(fleet_at(data.path(), "127.0.0.1:0", arguments));
        listening._data = Some(data);
        listening
    }

    /// Ends it as a user does.
    pub fn end(mut self) {
        // SAFETY: a plain system call. The server has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

/// A fleet that keeps what it is told in this folder.
pub fn fleet_at(data: &Path, address: &str, arguments: &[&str]) -> Command {
    let mut command = gpuwhy(&["fleet", "serve", "--addr", address, "--data", data.to_str().unwrap()]);
    command.args(arguments);
    command
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is there, or true.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The number that a statement gives of a file that is written meanwhile, once there is one.
pub fn number_so_far(file: &Path, sql: &str) -> Option<i64> {
    let limits = Limits { time: LIMIT, ..Limits::default() };
    let Answer { rows, .. } = Trace::open(file).ok()?.query(sql, &limits).ok()?;
    if let Value::Integer(number) = rows.first()?.first()? { Some(*number) } else { None }
}

/// What SQLite itself says about a file, without our guard.
pub fn integrity(file: &Path) -> String {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// A command's exit code and what it printed to stdout and stderr.
pub fn output(mut command: Command) -> (i32, String, String) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).unwrap();
        text
    });
    let mut errors = Vec::new();
    stderr.read_to_end(&mut errors).unwrap();
    let status = child.wait().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(reader.join().unwrap()), text(errors))
}

/// Runs a workload to its end under a tracer that was attached before its first call.
pub fn traced(place: &Place, workload: Workload, arguments: &[&str]) -> (Truth, Finished) {
    let mut running = workload.start().unwrap();
    running.wait_ready().unwrap();
    let pid = running.pid().to_string();
    let mut tracing = place.trace(&[&["-p", pid.as_str()], arguments].concat());
    tracing.wait_ready();
    let truth = running.finish().unwrap();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{status}");
    (truth, finished)
}

/// What the workload says it called, per thread and function, equals what was counted.
pub fn counts_agree(truth: &Truth, finished: &Finished, layer: &str) {
    let mut made = BTreeMap::new();
    for calls in truth.calls.iter().filter(|calls| calls.layer == layer) {
        *made.entry((calls.pid, calls.tid, calls.op.as_str())).or_insert(0) += calls.calls;
    }
    for ((pid, tid, op), made) in made {
        let counted = finished.number(&format!(
            "SELECT coalesce(sum(count), 0) FROM call_stats \
             WHERE pid = {pid} AND tid = {tid} AND op = '{op}' AND layer = '{layer}'"
        ));
        assert_eq!(counted as u64, made, "{op} of thread {tid}");
    }
}

/// A program of a source in C.
pub fn compiled(folder: &Path, name: &str, source: &str, more: &[&str]) -> PathBuf {
    let (file, made) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-omit-frame-pointer", "-w"]).arg(&file).args(more).arg("-o").arg(&made);
    assert!(compiler.status().unwrap().success());
    made
}

pub fn compiled_library(folder: &Path, name: &str, source: &str) -> PathBuf {
    compiled(folder, name, source, &["-shared", "-fPIC", &format!("-Wl,-soname,{name}")])
}
