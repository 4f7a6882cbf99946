//! Whom to trace: everybody, named processes with their descendants, a user, or a command that is started for it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
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
    /// The named processes. One that does not exist is an error.
    pub fn hold(&self) -> Result<Vec<Named>> {
        self.pids.iter().map(|&pid| Named::hold(pid)).collect()
    }

    /// Everybody of the named user, or everybody but this process.
    pub fn among(&self, procfs: &Procfs) -> Vec<u32> {
        let is_wanted =
            |pid: &u32| *pid != std::process::id() && self.uid.is_none_or(|uid| procfs.uid(*pid) == Some(uid));
        procfs.pids().into_iter().filter(is_wanted).collect()
    }

    /// The named processes and all their present descendants.
    pub fn with_descendants(&self, procfs: &Procfs) -> Vec<u32> {
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
        family
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

/// A named process, held by a descriptor, so that its number does not come to mean another one.
pub struct Named(OwnedFd);

impl Named {
    fn hold(pid: u32) -> Result<Self> {
        // SAFETY: pidfd_open takes two numbers and returns a descriptor or -1.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
        if descriptor >= 0 {
            // SAFETY: the descriptor was opened a moment ago and belongs to nobody else.
            return Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ESRCH) => bail!("there is no process {pid}"),
            Some(libc::EINVAL | libc::ENOENT) => bail!("{pid} is not a process; is it one of its threads?"),
            _ => Err(error).with_context(|| format!("hold process {pid}")),
        }
    }

    /// Whether all its threads are gone, also while its parent has not asked for its exit code yet.
    pub fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid entry, and the call does not wait.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
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
        let mut family = Target { pids: vec![10], ..Default::default() }.with_descendants(&procfs);
        family.sort_unstable();
        assert_eq!(family, [10, 11, 12]);
    }

    #[test]
    fn a_process_that_ended_is_gone_before_anybody_has_waited_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let named = Named::hold(child.id()).unwrap();
        assert!(!named.has_ended());
        drop(child.stdin.take());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !named.has_ended() {
            assert!(std::time::Instant::now() < deadline);
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_is_named() {
        let error = |pid| Target { pids: vec![pid], ..Default::default() }.hold().err().unwrap().to_string();
        assert_eq!(error(0x3fff_fff0), "there is no process 1073741808");
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            error(unsafe { libc::gettid() } as u32)
        });
        assert!(thread.join().unwrap().contains("is not a process"));
    }
}
