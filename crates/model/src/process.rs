//! Who made the calls.

use crate::api::words;
use crate::record::record;

record! {
    /// A process image: what a pid ran between two execs. Every string is the traced program's own word: hostile input.
    #[derive(Clone, Debug, Default, PartialEq)]
    Process in processes (id) since 1 "One row per process image: a pid between two execs."
    given 0 {
        /// Names the image.
        id: u32;
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// Process.
        pid: u32;
        /// Its parent.
        parent_pid: u32;
        /// Start of the process or of its last exec.
        started_ns: u64 [unit("ns since epoch")];
        /// User.
        uid: u32;
        /// The process's name.
        comm: String;
        /// Executable.
        exe: String;
        /// Command line.
        cmdline: String;
        /// cgroup (v2), 64 bits shown as a signed number.
        cgroup_id: u64 as Bits;
        /// cgroup path.
        cgroup: String;
        /// Container, where there is one.
        container_id: Option<String>;
        /// CPUs the cgroup may use, where it has a quota: 0.5 is half of one.
        cpu_quota: Option<f64> as NotNegative [unit("CPUs"), since(3)];
        /// Memory the cgroup may use, where it has a limit.
        memory_limit: Option<u64> [unit("bytes"), since(3)];
    }
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

record! {
    /// A turn in a process's life, and when.
    #[derive(Clone, Debug, PartialEq, Eq)]
    ProcessLife in process_life () since 1 "Turns in the lives of processes."
    given 0 {
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// When.
        at_ns: u64 [unit("ns since epoch")];
        /// `fork`, `exec`, `exit` (the last thread is gone) or `oom_kill` (chosen to be killed because memory ran out).
        kind: LifeKind;
        /// Process.
        pid: u32;
        /// The new process of a fork.
        child_pid: Option<u32>;
        /// Wait status of an exit, as `waitpid` reports it.
        status: Option<i32>;
        /// Name.
        comm: String;
    }
}
