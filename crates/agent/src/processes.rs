//! Who the tids and addresses in records are: processes, threads, and the modules calls come from.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpuwhy_capture::{Image, TaskId};
use gpuwhy_model::{Forgotten, Label, ModuleId, Name, ProcessId, Row, ThreadId};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::gpus::Gpus;
use crate::labels::{Surroundings, labels_of};
use crate::procfs::{Mapping, Procfs};
use crate::sockets::Sockets;
use crate::stacks::find_python_state;

/// The processes and threads seen in this session that are still there. Gives them their numbers.
pub struct Processes {
    procfs: Procfs,
    gpus: Gpus,
    /// What the user calls all processes of the trace.
    given_labels: Vec<Label>,
    by_pid: HashMap<u32, Known>,
    threads: HashMap<TaskId, KnownThread>,
    runtimes: HashMap<PathBuf, bool>,
    modules: HashMap<(PathBuf, bool), ModuleId>,
    /// Numbers given out so far.
    processes_met: u32,
    threads_met: u32,
    /// Those that no later row cites.
    forgotten: Vec<Forgotten>,
    sockets: Sockets,
}

struct Known {
    id: ProcessId,
    comm: String,
    visible_devices: Option<String>,
    code: Vec<Mapping>,
    code_read: Instant,
    callers: HashMap<u64, ModuleId>,
    /// Where Python keeps the state of its interpreters, their locks among it; looked for once.
    python: Option<Option<Range<u64>>>,
    leaving: Option<Leaving>,
}

struct KnownThread {
    id: ThreadId,
    comm: String,
    makes_calls: bool,
    leaving: Option<Leaving>,
}

/// What is gone is remembered a little longer: a record that names it may still be on its way, written by a thread that
/// it woke just before its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Soon,
    Next,
}

/// What the kernel says about a thread. The cgroup is known for one that makes calls.
#[derive(Clone, Copy, Default)]
pub struct Introduction<'a> {
    pub comm: &'a str,
    pub cgroup_id: Option<u64>,
}

/// A process that maps code all the time must not make us read its map all the time.
const READ_CODE_AGAIN: Duration = Duration::from_millis(200);

impl Processes {
    pub fn new(procfs: Procfs, gpus: Gpus, given_labels: Vec<Label>) -> Self {
        Self {
            procfs,
            gpus,
            given_labels,
            by_pid: HashMap::new(),
            threads: HashMap::new(),
            runtimes: HashMap::new(),
            modules: HashMap::new(),
            processes_met: 0,
            threads_met: 0,
            forgotten: Vec::new(),
            sockets: Sockets::default(),
        }
    }

    /// `thread` is what the kernel says about one of its threads, for a process that is gone already.
    fn process(&mut self, pid: u32, at_ns: u64, thread: Introduction<'_>, rows: &mut Vec<Row>) -> &mut Known {
        match self.by_pid.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut process = self.procfs.describe(pid, at_ns);
                process.cgroup_id = thread.cgroup_id.unwrap_or(process.cgroup_id);
                if process.comm.is_empty() {
                    thread.comm.clone_into(&mut process.comm);
                }
                self.processes_met += 1;
                let id = ProcessId(self.processes_met);
                let comm = process.comm.clone();
                let environment = self.procfs.environment(pid);
                let surroundings = Surroundings {
                    process: &process,
                    environment: &environment,
                    given: &self.given_labels,
                    root: Path::new("/"),
                };
                let labels = labels_of(&surroundings);
                rows.push(Row::Name(Name::Process { id, process }));
                rows.extend(labels.into_iter().map(|label| Row::Name(Name::Label { process: id, label })));
                place.insert(Known {
                    id,
                    comm,
                    visible_devices: environment.get("CUDA_VISIBLE_DEVICES").map(str::to_owned),
                    code: self.procfs.code(pid).unwrap_or_default(),
                    code_read: Instant::now(),
                    callers: HashMap::new(),
                    python: None,
                    leaving: None,
                })
            }
        }
    }

    pub fn id(&mut self, pid: u32, at_ns: u64, rows: &mut Vec<Row>) -> ProcessId {
        self.process(pid, at_ns, Introduction::default(), rows).id
    }

    /// The number of a process, if it has one.
    pub fn known(&self, pid: u32) -> Option<ProcessId> {
        self.by_pid.get(&pid).map(|known| known.id)
    }

    /// Which of the processes that are known has a socket.
    pub fn owner_of_socket(&mut self, inode: u64) -> Option<u32> {
        self.sockets.owner(inode, &self.procfs, self.by_pid.keys().copied())
    }

    /// Reads what there is to know about a process while it is there.
    pub fn meet(&mut self, pid: u32, at_ns: u64, rows: &mut Vec<Row>) {
        if self.procfs.exists(pid) {
            self.process(pid, at_ns, Introduction::default(), rows);
        }
    }

    /// A thread the kernel has just introduced.
    pub fn introduce(
        &mut self,
        task: TaskId,
        introduction: Introduction<'_>,
        at_ns: u64,
        rows: &mut Vec<Row>,
    ) -> ThreadId {
        let Introduction { comm, cgroup_id } = introduction;
        self.forget_namesake(task);
        if let Some(known) = self.threads.get_mut(&task)
            && (known.comm == comm || known.makes_calls)
        {
            known.makes_calls |= cgroup_id.is_some();
            return known.id;
        }
        let process = self.process(task.pid, at_ns, introduction, rows).id;
        self.threads_met += 1;
        let id = ThreadId(self.threads_met);
        rows.push(Row::Name(Name::Thread { id, process, tid: task.tid, comm: comm.to_owned() }));
        let known = KnownThread { id, comm: comm.to_owned(), makes_calls: cgroup_id.is_some(), leaving: None };
        let namesake = self.threads.insert(task, known);
        self.forgotten.extend(namesake.map(|thread| Forgotten::Thread(thread.id)));
        id
    }

    /// The thread of a record, also when its introduction was lost.
    pub fn thread(&mut self, task: TaskId, at_ns: u64, rows: &mut Vec<Row>) -> ThreadId {
        if let Some(known) = self.threads.get(&task) {
            return known.id;
        }
        let comm = self.process(task.pid, at_ns, Introduction::default(), rows).comm.clone();
        self.introduce(task, Introduction { comm: &comm, cgroup_id: None }, at_ns, rows)
    }

    pub fn process_name(&self, pid: u32) -> &str {
        self.by_pid.get(&pid).map_or("", |process| &process.comm)
    }

    /// A thread's name may change while it runs.
    pub fn rename(&mut self, task: TaskId, comm: &str, rows: &mut Vec<Row>) {
        if let Some(thread) = self.threads.get_mut(&task)
            && thread.comm != comm
        {
            comm.clone_into(&mut thread.comm);
            rows.push(Row::Name(Name::ThreadName { id: thread.id, comm: comm.to_owned() }));
        }
    }

    /// A file that carries a CUDA runtime, found while its users were there.
    pub fn add_runtime(&mut self, path: PathBuf) {
        self.runtimes.insert(path, true);
    }

    pub fn thread_gone(&mut self, task: TaskId) {
        if let Some(thread) = self.threads.get_mut(&task) {
            thread.leaving = Some(Leaving::Soon);
        }
    }

    pub fn process_gone(&mut self, pid: u32) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.leaving = Some(Leaving::Soon);
        }
        for (_, thread) in self.threads.iter_mut().filter(|(task, _)| task.pid == pid) {
            thread.leaving = Some(Leaving::Soon);
        }
    }

    /// The process runs another program from now on.
    pub fn image_gone(&mut self, pid: u32) {
        let process = self.by_pid.remove(&pid);
        let threads = self.threads.extract_if(|task, _| task.pid == pid);
        self.forgotten.extend(threads.map(|(_, thread)| Forgotten::Thread(thread.id)));
        self.forgotten.extend(process.map(|process| Forgotten::Process(process.id)));
    }

    /// Forgets what has been gone for at least one tick.
    pub fn tick(&mut self) {
        let goes = |leaving: &mut Option<Leaving>| {
            let was_leaving = std::mem::replace(leaving, leaving.map(|_| Leaving::Next));
            was_leaving == Some(Leaving::Next)
        };
        let threads = self.threads.extract_if(|_, thread| goes(&mut thread.leaving));
        self.forgotten.extend(threads.map(|(_, thread)| Forgotten::Thread(thread.id)));
        let processes = self.by_pid.extract_if(|_, process| goes(&mut process.leaving));
        self.forgotten.extend(processes.map(|(_, process)| Forgotten::Process(process.id)));
    }

    pub fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Whose numbers are not cited any more, since this was last asked.
    pub fn take_forgotten(&mut self) -> impl Iterator<Item = Row> {
        self.forgotten.drain(..).map(|forgotten| Row::Name(Name::Forgotten(forgotten)))
    }

    /// The kernel introduces somebody whose number belonged to one that is gone.
    fn forget_namesake(&mut self, task: TaskId) {
        if self.by_pid.get(&task.pid).is_some_and(|process| process.leaving.is_some()) {
            self.image_gone(task.pid);
        }
        if self.threads.get(&task).is_some_and(|thread| thread.leaving.is_some()) {
            self.forgotten.extend(self.threads.remove(&task).map(|thread| Forgotten::Thread(thread.id)));
        }
    }

    /// The GPU that a process numbers `ordinal`, as the host numbers it.
    pub fn device(&self, pid: u32, ordinal: Option<u16>) -> Option<u16> {
        let visible = self.by_pid.get(&pid).and_then(|process| process.visible_devices.as_deref());
        self.gpus.host_number(ordinal, visible)
    }

    /// Whether an address that a process waits on is in the state of a Python runtime: its interpreter lock.
    pub fn is_interpreter_lock(&mut self, pid: u32, address: u64) -> bool {
        let Some(process) = self.by_pid.get_mut(&pid) else { return false };
        let procfs = &self.procfs;
        let python = process.python.get_or_insert_with(|| find_python_state(procfs, pid, &process.code));
        python.as_ref().is_some_and(|state| state.contains(&address))
    }

    /// The module an address of a process lies in.
    pub fn module(&mut self, pid: u32, address: u64, rows: &mut Vec<Row>) -> Option<ModuleId> {
        let process = self.by_pid.get_mut(&pid)?;
        if let Some(&module) = process.callers.get(&address) {
            return Some(module);
        }
        let mut mapping = find(&process.code, address);
        if mapping.is_none() && process.code_read.elapsed() > READ_CODE_AGAIN {
            process.code = self.procfs.code(pid).unwrap_or_default();
            process.code_read = Instant::now();
            mapping = find(&process.code, address);
        }
        let mapping = mapping?;
        let is_runtime = is_runtime(&mut self.runtimes, &self.procfs, pid, mapping);
        let met = self.modules.len() as u32;
        let module = *self.modules.entry((mapping.path.clone(), is_runtime)).or_insert_with(|| {
            let (id, path) = (ModuleId(met + 1), mapping.path.to_string_lossy().into_owned());
            rows.push(Row::Name(Name::Module { id, path, is_runtime }));
            id
        });
        process.callers.insert(address, module);
        Some(module)
    }
}

fn find(code: &[Mapping], address: u64) -> Option<&Mapping> {
    code.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
}

fn is_runtime(cache: &mut HashMap<PathBuf, bool>, procfs: &Procfs, pid: u32, mapping: &Mapping) -> bool {
    if let Some(&known) = cache.get(&mapping.path) {
        return known;
    }
    // A process that is gone says nothing about its files.
    let Ok(image) = Image::read(&procfs.openable(pid, mapping)) else { return false };
    cache.insert(mapping.path.clone(), image.has_runtime);
    image.has_runtime
}
