//! py-spy, a profiler that reads Python's stacks by itself: fetched once into the cache outside of the source tree, and
//! run by its path.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use gpuwhy_testbed::stacks::PythonFrame;
use serde_json::Value;

pub const NAME: &str = "py-spy 0.4.3";
const REQUIREMENT: &str = "py-spy==0.4.3";
const FOLDER: &str = "wheels/py-spy-0.4.3";

pub struct PySpy {
    path: PathBuf,
}

/// A thread as py-spy sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its `pthread_self()`.
    pub id: u64,
    /// Innermost first.
    pub frames: Vec<PythonFrame>,
}

impl PySpy {
    pub fn fetch() -> Result<Self> {
        let place = cache_dir()?.join(FOLDER);
        let path = place.join("bin/py-spy");
        if !path.exists() {
            install(&place).context("fetch py-spy")?;
        }
        Ok(Self { path })
    }

    /// The stacks of all threads, without stopping them.
    pub fn dump(&self, pid: u32) -> Result<Vec<Thread>> {
        let output = Command::new(&self.path)
            .args(["dump", "--nonblocking", "--json", "--pid", &pid.to_string()])
            .output()
            .context("start py-spy")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("py-spy: {}", said.lines().next().unwrap_or("no word"));
        }
        parse(&output.stdout)
    }
}

fn parse(json: &[u8]) -> Result<Vec<Thread>> {
    let threads: Vec<Value> = serde_json::from_slice(json).context("py-spy's answer is no JSON")?;
    threads.iter().map(|thread| read_thread(thread).with_context(|| format!("no thread: {thread}"))).collect()
}

fn read_thread(thread: &Value) -> Option<Thread> {
    let frame = |frame: &Value| {
        let text = |key: &str| frame[key].as_str().map(str::to_owned);
        let line = u32::try_from(frame["line"].as_i64()?).ok()?;
        Some(PythonFrame { function: text("name")?, file: text("filename")?, line })
    };
    let frames = thread["frames"].as_array()?.iter().map(frame).collect::<Option<_>>()?;
    Some(Thread { id: thread["thread_id"].as_u64()?, frames })
}

/// Whoever comes first puts it in place.
fn install(place: &Path) -> Result<()> {
    let partial = place.with_extension(std::process::id().to_string());
    let mut pip = Command::new("python3");
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--timeout", "60"]);
    let status = pip.arg("--target").arg(&partial).arg(REQUIREMENT).status().context("start pip")?;
    if !status.success() {
        bail!("{pip:?} failed: {status}");
    }
    if std::fs::rename(&partial, place).is_err() && !place.is_dir() {
        bail!("move it to {}", place.display());
    }
    Ok(())
}

fn cache_dir() -> Result<PathBuf> {
    let own = std::env::var_os("GPUWHY_CACHE").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/gpuwhy"));
    own.or_else(home).context("neither GPUWHY_CACHE nor HOME is set")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests end that way")]

    use super::*;

    #[test]
    fn threads_have_their_id_and_frames() {
        let json = br#"[{"thread_id": 7, "frames": [{"name": "f", "filename": "/a.py", "line": 3}]}]"#;
        let frame = PythonFrame { function: "f".into(), file: "/a.py".into(), line: 3 };
        assert_eq!(parse(json).unwrap(), [Thread { id: 7, frames: vec![frame] }]);
    }

    #[test]
    fn an_answer_without_frames_is_an_error_and_not_an_empty_stack() {
        let error = parse(br#"[{"thread_id": 7}]"#).unwrap_err();
        assert!(format!("{error:#}").contains("no thread"), "{error:#}");
    }
}
