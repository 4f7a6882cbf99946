//! The real binary, built and run as a user runs it.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::query::LinkInfoIter;

use crate::docs;

/// Builds it and says where it is.
pub fn build() -> Result<PathBuf> {
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--release", "-p", "gpuwhy"]).status()?;
    ensure!(built.success(), "build gpuwhy");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| docs::root().join("target"), PathBuf::from);
    Ok(target.join("release/gpuwhy"))
}

/// For finding a moment without a burst: so many looks are sure to see one.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(30);

/// A `gpuwhy trace` of one process. It is killed when this is dropped.
pub struct Gpuwhy {
    child: Child,
    log: Option<JoinHandle<String>>,
    /// Links of all programs in the kernel while it has no burst open, as far as is known, and looks at them so far.
    fewest_links: Cell<usize>,
    looks: Cell<usize>,
}

impl Gpuwhy {
    /// Starts it and waits until it traces.
    pub fn trace(binary: &Path, pid: u32, out: &Path, options: &[&str]) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["trace", "--live", "never", "-p", &pid.to_string()])
            .args(options)
            .arg("--out")
            .arg(out)
            .stderr(Stdio::piped())
            .spawn()
            .context("start gpuwhy")?;
        let mut lines = BufReader::new(child.stderr.take().context("no output")?).lines().map_while(Result::ok);
        let mut said = String::new();
        while !said.contains("tracing ") {
            match lines.next() {
                Some(line) => said += &format!("{line}\n"),
                None => bail!("gpuwhy ended before it traced: {said}"),
            }
        }
        let log = std::thread::spawn(move || lines.fold(said, |said, line| said + &line + "\n"));
        Ok(Self { child, log: Some(log), fewest_links: Cell::new(usize::MAX), looks: Cell::new(0) })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Stops it when it has no burst open: in a burst there is a link more than otherwise.
    pub fn halt(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.signal(libc::SIGSTOP);
            std::thread::sleep(LOOK_EVERY / 4);
            let links = LinkInfoIter::default().count();
            self.fewest_links.set(self.fewest_links.get().min(links));
            self.looks.set(self.looks.get() + 1);
            if self.looks.get() > LOOKS && links == self.fewest_links.get() {
                return Ok(());
            }
            self.signal(libc::SIGCONT);
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("gpuwhy has a burst open all the time")
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

impl Drop for Gpuwhy {
    fn drop(&mut self) {
        // Both fail only when the child is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
