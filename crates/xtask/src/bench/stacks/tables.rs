//! What compiling the unwind tables of large files takes, each in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::gpuwhy::release_folder;

/// Where large libraries lie, besides what belongs to the compiler.
const FOLDERS: &[&str] = &["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
const FILES: usize = 4;

pub fn run() -> Result<Value> {
    let build = ["build", "--quiet", "--release", "-p", "gpuwhy-stacks", "--example", "table_build"];
    let built = Command::new(env!("CARGO")).args(build).status()?;
    ensure!(built.success(), "build table_build");
    let program = release_folder().join("examples/table_build");
    largest_libraries().iter().map(|file| once(&program, file)).collect()
}

/// The largest libraries of this machine, one of each name.
fn largest_libraries() -> Vec<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let folders = FOLDERS.iter().map(PathBuf::from).chain([Path::new(&sysroot).join("lib")]);
    let mut files: Vec<(u64, PathBuf)> = folders.flat_map(|folder| libraries(&folder)).collect();
    files.sort_by(|left, right| right.cmp(left));
    files.dedup_by(|left, right| left.1.file_name() == right.1.file_name());
    files.into_iter().take(FILES).map(|(_, path)| path).collect()
}

fn libraries(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let library = |entry: std::fs::DirEntry| {
        // Links are left out: what they lead to is another entry.
        let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let is_library = entry.file_name().to_string_lossy().contains(".so");
        is_library.then(|| (metadata.len(), entry.path()))
    };
    entries.filter_map(library).collect()
}

fn once(program: &Path, file: &Path) -> Result<Value> {
    let mut child = Command::new(program).arg(file).stdout(Stdio::piped()).spawn().context("start table_build")?;
    let said = std::io::read_to_string(child.stdout.take().context("no output")?)?;
    let cpu_seconds = wait(child.id())?;
    let Said { eh_frame_mb, rows, peak_mb } = figures(&said).with_context(|| format!("table_build said {said:?}"))?;
    Ok(json!({
        "file": file.file_name().map(|name| name.to_string_lossy()),
        "file_mb": std::fs::metadata(file)?.len() as f64 / 1e6,
        "eh_frame_mb": eh_frame_mb,
        "rows": rows,
        "cpu_seconds": cpu_seconds,
        "peak_mb": peak_mb,
    }))
}

/// The CPU time of a child, once it has ended. The most memory that the kernel tells here is not its own: a child begins
/// with what its parent has.
fn wait(pid: u32) -> Result<f64> {
    let mut status = 0;
    // SAFETY: rusage is a struct of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and has not been waited for; both places outlive the call.
    let waited = unsafe { libc::wait4(pid as i32, &mut status, 0, &mut usage) };
    ensure!(waited == pid as i32, "wait for table_build");
    let status = ExitStatus::from_raw(status);
    ensure!(status.success(), "table_build: {status}");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// What the program prints of a file.
#[derive(Debug, PartialEq)]
struct Said {
    eh_frame_mb: f64,
    rows: u64,
    peak_mb: f64,
}

/// From the lines `.eh_frame 1.5 MB, 20000 rows, 0.2 MB` and `0.012 s, peak so far 5.1 MB`.
fn figures(said: &str) -> Option<Said> {
    let source = said.lines().find_map(|line| line.trim().strip_prefix(".eh_frame "))?;
    let peak = said.lines().find_map(|line| line.split_once("peak so far "))?.1;
    let mut parts = source.split(", ");
    Some(Said {
        eh_frame_mb: parts.next()?.strip_suffix(" MB")?.parse().ok()?,
        rows: parts.next()?.strip_suffix(" rows")?.parse().ok()?,
        peak_mb: peak.strip_suffix(" MB")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_example_prints_is_read() {
        let said = "/usr/lib/libbig.so\n  .eh_frame 17.7 MB, 1482345 rows, 11.9 MB\n  0.412 s, peak so far 60.1 MB\n";
        assert_eq!(figures(said), Some(Said { eh_frame_mb: 17.7, rows: 1_482_345, peak_mb: 60.1 }));
        assert_eq!(figures("/usr/lib/libbig.so: not an ELF file\n"), None);
    }
}
