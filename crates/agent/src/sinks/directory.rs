//! What the numbers in rows stand for, for sinks that show names.

use gpuwhy_model::{Forgotten, Layer, Meaning, Name, OpId, ProcessId, ThreadId};
use hashbrown::HashMap;

#[derive(Default)]
pub struct Directory {
    ops: HashMap<OpId, KnownOp>,
    processes: HashMap<ProcessId, KnownProcess>,
    threads: HashMap<ThreadId, KnownThread>,
}

#[derive(Clone, Copy)]
pub struct KnownOp {
    pub name: &'static str,
    pub layer: Layer,
    pub meaning: Meaning,
}

struct KnownProcess {
    pid: u32,
    comm: String,
}

struct KnownThread {
    process: ProcessId,
    tid: u32,
    comm: String,
    has_launched: bool,
}

/// A thread as people know it.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    pub pid: u32,
    pub tid: u32,
    /// The thread's name, and its process's.
    pub comm: &'a str,
    pub process_comm: &'a str,
}

impl Directory {
    pub fn learn(&mut self, name: &Name) {
        match name {
            &Name::Op { id, name, layer, meaning, .. } => drop(self.ops.insert(id, KnownOp { name, layer, meaning })),
            Name::Process { id, process } => {
                self.processes.insert(*id, KnownProcess { pid: process.pid, comm: process.comm.clone() });
            }
            Name::Thread { id, process, tid, comm } => {
                self.threads
                    .insert(*id, KnownThread { process: *process, tid: *tid, comm: comm.clone(), has_launched: false });
            }
            Name::ThreadName { id, comm } => {
                if let Some(thread) = self.threads.get_mut(id) {
                    thread.comm.clone_from(comm);
                }
            }
            Name::Forgotten(Forgotten::Process(id)) => drop(self.processes.remove(id)),
            Name::Forgotten(Forgotten::Thread(id)) => drop(self.threads.remove(id)),
            Name::Module { .. }
            | Name::Target { .. }
            | Name::Label { .. }
            | Name::Kernel { .. }
            | Name::Forgotten(_) => {}
        }
    }

    pub fn op(&self, id: OpId) -> Option<KnownOp> {
        self.ops.get(&id).copied()
    }

    /// Whether some process has this pid and name.
    pub fn has_process(&self, pid: u32, comm: &str) -> bool {
        self.processes.values().any(|process| process.pid == pid && process.comm == comm)
    }

    /// A process's pid and name.
    pub fn process(&self, id: ProcessId) -> Option<(u32, &str)> {
        self.processes.get(&id).map(|process| (process.pid, process.comm.as_str()))
    }

    /// The thread has launched work.
    pub fn launched(&mut self, id: ThreadId) {
        self.threads.get_mut(&id).into_iter().for_each(|thread| thread.has_launched = true);
    }

    pub fn has_launched(&self, id: ThreadId) -> bool {
        self.threads.get(&id).is_some_and(|thread| thread.has_launched)
    }

    pub fn process_of(&self, id: ThreadId) -> Option<ProcessId> {
        self.threads.get(&id).map(|thread| thread.process)
    }

    pub fn who(&self, id: ThreadId) -> Option<Who<'_>> {
        let thread = self.threads.get(&id)?;
        let process = self.processes.get(&thread.process)?;
        Some(Who { pid: process.pid, tid: thread.tid, comm: &thread.comm, process_comm: &process.comm })
    }
}
