//! bpftrace on the same function, as something to compare with.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Counts the calls and their durations.
pub const HISTOGRAM: &str = "uprobe:LIBRARY:FUNCTION { @start[tid] = nsecs; } \
     uretprobe:LIBRARY:FUNCTION /@start[tid]/ { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }";
/// Prints a line per call.
pub const PRINT: &str = "uprobe:LIBRARY:FUNCTION { @start[tid] = nsecs; } \
     uretprobe:LIBRARY:FUNCTION /@start[tid]/ { printf(\"%d %d %lu %lu\\n\", pid, tid, @start[tid], nsecs - @start[tid]); \
     delete(@start[tid]); }";

/// A bpftrace that runs until it is dropped.
pub struct Bpftrace(Child);

impl Bpftrace {
    pub fn start(library: &Path, function: &str, script: &str) -> Result<Self> {
        let script = script.replace("LIBRARY", &library.to_string_lossy()).replace("FUNCTION", function);
        let script = format!("{script} BEGIN {{ printf(\"attached\\n\"); }}");
        let mut child = Command::new("bpftrace")
            .args(["-e", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start bpftrace; hint: apt-get install bpftrace")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        while !line.contains("attached") {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                bail!("bpftrace ended before it attached");
            }
        }
        // BEGIN runs before the probes are in place: wait until the library is patched, which costs it its first line.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        std::thread::sleep(Duration::from_millis(1500));
        Ok(Self(child))
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let _ = self.0.wait();
    }
}
