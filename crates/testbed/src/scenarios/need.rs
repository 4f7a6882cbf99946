//! What a scenario needs of the machine, and whether it is there: tried, not guessed.

use crate::Testbed;
use anyhow::{Context, Result};
use std::io::ErrorKind;
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A `python3` on the path.
    Python,
    /// The right to make a control group with a CPU quota.
    CpuCgroup,
    /// The right to make a control group with a memory limit.
    MemoryCgroup,
    /// A folder for scratch files on a disk that can be read past the page cache.
    DirectIo,
    /// The same folder on a file system that lists a file's extents.
    Extents,
}

impl Need {
    /// Why it is not met, or nothing.
    pub fn unmet(self, testbed: &Testbed) -> Result<Option<String>> {
        match self {
            Self::Python => python(),
            Self::CpuCgroup => peer(testbed, &["cgroup", "--controller", "cpu", "--limit", "50000 100000"]),
            Self::MemoryCgroup => peer(testbed, &["cgroup", "--controller", "memory", "--limit", "33554432"]),
            Self::DirectIo => peer(testbed, &["check-direct-io"]),
            Self::Extents => peer(testbed, &["check-extents"]),
        }
    }
}

/// Lets a peer get ready in this role; it ends at once since nobody talks to it.
fn peer(testbed: &Testbed, role: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new(testbed.scenario_peer());
    let output = command.arg("--role").args(role).stdin(Stdio::null()).output().context("start scenario_peer")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success()).then(|| reason.trim().trim_start_matches("scenario: ").to_owned()))
}

fn python() -> Result<Option<String>> {
    match Command::new("python3").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(None),
        Ok(output) => Ok(Some(format!("python3 does not run: {}", output.status))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some("there is no python3 on the path".to_owned())),
        Err(error) => Err(error).context("start python3"),
    }
}
