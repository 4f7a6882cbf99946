//! Who made the calls.

use crate::api::words;

/// A process image: what a pid ran between two execs. Every string is the traced program's own word: hostile input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub pid: u32,
    pub parent_pid: u32,
    /// When the image started (the process, or its last exec).
    pub started_ns: u64,
    pub uid: u32,
    pub comm: String,
    pub exe: String,
    pub cmdline: String,
    pub cgroup_id: u64,
    pub cgroup: String,
    pub container_id: Option<String>,
    /// CPUs the cgroup may use, where it has a quota: 0.5 is half of one.
    pub cpu_quota: Option<f64>,
    /// Bytes the cgroup may use, where it has a limit.
    pub memory_limit: Option<u64>,
}

words! {
    /// A turn in a process's life.
    LifeKind {
        Fork = "fork",
        Exec = "exec",
        /// The last thread is gone.
        Exit = "exit",
        /// The kernel chose it to be killed because memory ran out.
        OomKill = "oom_kill",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLife {
    pub at_ns: u64,
    pub kind: LifeKind,
    pub pid: u32,
    /// The new process of a fork.
    pub child_pid: Option<u32>,
    /// The wait status of an exit, as `waitpid` reports it.
    pub status: Option<i32>,
    pub comm: String,
}
