//! Whom to trace: everybody, named processes with their descendants, a user, or a command that is started for it.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::procfs::Procfs;

#[derive(Clone, Debug, Default)]
pub struct Target {
    pub pids: Vec<u32>,
    pub uid: Option<u32>,
    pub command: Option<Vec<OsString>>,
    /// Keep stdout clean: the command's output goes to stderr.
    pub command_to_stderr: bool,
}

impl Target {
    /// The named processes and all their present descendants. A process that does not exist is an error.
    pub fn with_descendants(&self, procfs: &Procfs) -> Result<Vec<u32>> {
        for &pid in &self.pids {
            if !procfs.exists(pid) {
                bail!("there is no process {pid}");
            }
        }
        let parents: Vec<(u32, u32)> =
            procfs.pids().into_iter().filter_map(|pid| Some((pid, procfs.parent(pid)?))).collect();
        let mut family = self.pids.clone();
        let mut at = 0;
        while let Some(&parent) = family.get(at) {
            let children = parents.iter().filter(|&&(_, of)| of == parent).map(|&(pid, _)| pid);
            let new: Vec<u32> = children.filter(|pid| !family.contains(pid)).collect();
            family.extend(new);
            at += 1;
        }
        Ok(family)
    }

    pub fn is_limited(&self) -> bool {
        !self.pids.is_empty() || self.command.is_some()
    }

    pub fn spawn(&self) -> Result<Option<Child>> {
        let Some([program, arguments @ ..]) = self.command.as_deref() else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(arguments);
        if self.command_to_stderr {
            let stderr = io::stderr().as_fd().try_clone_to_owned().context("duplicate stderr")?;
            command.stdout(Stdio::from(stderr));
        }
        let child = command.spawn().with_context(|| format!("start {}", program.to_string_lossy()))?;
        Ok(Some(child))
    }
}

/// A command's exit code, or 128 plus the signal that ended it, as shells report it.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// A user by name or number.
pub fn user_id(name: &str) -> Result<u32> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    let users = std::fs::read("/etc/passwd").context("read /etc/passwd")?;
    let users = String::from_utf8_lossy(&users);
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.with_context(|| format!("there is no user {name:?} in /etc/passwd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(user_id("root").unwrap(), 0);
        assert_eq!(user_id("1234").unwrap(), 1234);
        assert!(user_id("nobody-of-this-name").is_err());
    }

    #[test]
    fn descendants_of_a_named_process_are_traced_too() {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent) in [(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)] {
            let dir = root.path().join(pid.to_string());
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("stat"), "").unwrap();
            std::fs::write(dir.join("status"), format!("PPid:\t{parent}\n")).unwrap();
        }
        let procfs = Procfs::new(root.path());
        let mut family = Target { pids: vec![10], ..Default::default() }.with_descendants(&procfs).unwrap();
        family.sort_unstable();
        assert_eq!(family, [10, 11, 12]);
        let error = Target { pids: vec![99], ..Default::default() }.with_descendants(&procfs).unwrap_err();
        assert_eq!(error.to_string(), "there is no process 99");
    }
}
