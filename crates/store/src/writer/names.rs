//! Functions, modules, processes, threads, stacks and what threads wait on: rows that get an id once and are cited ever after.
//!
//! Callers keep the ids, so they must outlive a failed write: rows wait here until they are committed, and are written
//! again with the next transaction when one fails.

use std::sync::LazyLock;

use gpuwhy_model::{
    Cell, Frame, GraphStep, Layer, Meaning, MemoryKind, ModuleId, OpId, Process, ProcessId, Record, Scalar, StackId,
    TargetId, ThreadId, WaitTarget,
};
use hashbrown::HashMap;
use rusqlite::{Connection, params};

use super::rows::Insert;
use super::stacks::NamedStack;
use super::{Writer, bits};
use crate::StoreError;
use crate::cells::{cut, cut_to};

/// The most rows that wait for a commit. Only a file that cannot be written for long lets so many gather.
const MOST_UNCOMMITTED: usize = 100_000;

/// The longest name of a target. There are many of them.
pub(super) const MOST_TARGET_BYTES: usize = 1 << 10;

static PROCESS: LazyLock<Insert> = LazyLock::new(Insert::new::<Process>);
static TARGET: LazyLock<Insert> = LazyLock::new(Insert::new::<WaitTarget>);
static FRAME: LazyLock<Insert> = LazyLock::new(Insert::new::<Frame>);

pub(super) struct Names {
    ops: HashMap<(String, &'static str), OpId>,
    modules: HashMap<(String, bool), ModuleId>,
    next_op: u32,
    next_module: u32,
    next_process: u32,
    next_thread: u32,
    uncommitted: Vec<Name>,
    /// How many of them are in the open transaction.
    written: usize,
}

pub(super) enum Name {
    Op { id: OpId, name: String, layer: Layer, meaning: Meaning, runtime_name: Option<String> },
    Module { id: ModuleId, path: String, is_runtime: bool },
    Process { id: ProcessId, process: Process },
    Thread { id: ThreadId, process: ProcessId, tid: u32, comm: String },
    Rename { id: ThreadId, comm: String },
    Target { id: TargetId, target: WaitTarget },
    StackNumber { id: StackId },
    Frame { id: u32, frame: Frame },
    Stack(NamedStack),
    Kernel { process: ProcessId, handle: u64, name: String },
    Label { process: ProcessId, key: String, value: String },
    Series { id: u32, name: String, unit: String, device: Option<String> },
}

impl Writer {
    /// The id of a traced function; the same for every session of the file.
    pub fn op(
        &mut self,
        name: &str,
        layer: Layer,
        meaning: impl Into<Meaning>,
        runtime_name: Option<&str>,
    ) -> Result<OpId, StoreError> {
        let key = (name.to_owned(), layer.as_str());
        if let Some(&id) = self.names.ops.get(&key) {
            return Ok(id);
        }
        let id = OpId(self.names.next_op);
        let runtime_name = runtime_name.map(str::to_owned);
        self.name(Name::Op { id, name: name.to_owned(), layer, meaning: meaning.into(), runtime_name })?;
        self.names.next_op += 1;
        self.names.ops.insert(key, id);
        Ok(id)
    }

    /// The id of a file that calls are issued from. `is_runtime` tells a CUDA runtime, on whose behalf a driver call
    /// also carries the runtime's name.
    pub fn module(&mut self, path: &str, is_runtime: bool) -> Result<ModuleId, StoreError> {
        let key = (path.to_owned(), is_runtime);
        if let Some(&id) = self.names.modules.get(&key) {
            return Ok(id);
        }
        let id = ModuleId(self.names.next_module);
        self.name(Name::Module { id, path: path.to_owned(), is_runtime })?;
        self.names.next_module += 1;
        self.names.modules.insert(key, id);
        Ok(id)
    }

    /// A new process image. The caller knows when it meets one again, and keeps the id.
    pub fn process(&mut self, process: &Process) -> Result<ProcessId, StoreError> {
        let id = ProcessId(self.names.next_process);
        self.name(Name::Process { id, process: process.clone() })?;
        self.names.next_process += 1;
        Ok(id)
    }

    /// A new thread. The caller knows when it meets one again, and keeps the id.
    pub fn thread(&mut self, process: ProcessId, tid: u32, comm: &str) -> Result<ThreadId, StoreError> {
        let id = ThreadId(self.names.next_thread);
        self.name(Name::Thread { id, process, tid, comm: comm.to_owned() })?;
        self.names.next_thread += 1;
        Ok(id)
    }

    pub fn rename_thread(&mut self, id: ThreadId, comm: &str) -> Result<(), StoreError> {
        self.name(Name::Rename { id, comm: comm.to_owned() })
    }

    /// The id of something that threads wait on. Ask again after each commit: what is not asked for again may be
    /// forgotten, and be deleted under a size cap.
    pub fn target(&mut self, target: &WaitTarget) -> Result<TargetId, StoreError> {
        if target.name.len() > MOST_TARGET_BYTES {
            let name = cut_to(MOST_TARGET_BYTES, &target.name).to_owned();
            return self.target(&WaitTarget { name, ..*target });
        }
        if let Some(id) = self.dictionaries.targets.find(target) {
            return Ok(TargetId(id));
        }
        self.make_room_for_names()?;
        let id = TargetId(self.dictionaries.targets.next());
        self.name(Name::Target { id, target: target.clone() })?;
        self.dictionaries.targets.add(target.clone());
        Ok(id)
    }

    /// Launches of a process with this handle launch that kernel.
    pub fn kernel(&mut self, process: ProcessId, handle: u64, name: &str) -> Result<(), StoreError> {
        self.make_room_for_names()?;
        self.name(Name::Kernel { process, handle, name: name.to_owned() })
    }

    /// Under a size cap, many new names do not wait for the rows that cite them: no transaction may outgrow the cap.
    pub(super) fn make_room_for_names(&mut self) -> Result<(), StoreError> {
        if self.names.uncommitted.len() < self.sums_per_transaction() {
            return Ok(());
        }
        self.make_room()?;
        self.write_names()?;
        self.flush()
    }

    pub(super) fn name(&mut self, name: Name) -> Result<(), StoreError> {
        if self.names.uncommitted.len() >= MOST_UNCOMMITTED {
            self.write_names()?;
            self.flush()?;
        }
        self.names.uncommitted.push(name);
        Ok(())
    }

    /// Brings the open transaction up to date.
    pub(super) fn write_names(&mut self) -> Result<(), StoreError> {
        self.write(|writer| writer.names.write(&writer.connection, writer.session))
    }
}

impl Names {
    pub fn load(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            ops: load_ops(connection)?,
            modules: load_modules(connection)?,
            next_op: next_id(connection, "ops")?,
            next_module: next_id(connection, "modules")?,
            next_process: next_id(connection, "processes")?,
            next_thread: next_id(connection, "threads")?,
            uncommitted: Vec::new(),
            written: 0,
        })
    }

    pub fn committed(&mut self) {
        self.uncommitted.clear();
        self.written = 0;
    }

    pub fn rolled_back(&mut self) {
        self.written = 0;
    }

    fn write(&mut self, connection: &Connection, session: i64) -> rusqlite::Result<()> {
        for name in &self.uncommitted[self.written..] {
            name.write(connection, session)?;
        }
        self.written = self.uncommitted.len();
        Ok(())
    }
}

impl Name {
    fn write(&self, connection: &Connection, session: i64) -> rusqlite::Result<()> {
        let insert = |sql, values: &[&dyn rusqlite::ToSql]| connection.prepare_cached(sql)?.execute(values).map(drop);
        match self {
            Self::Op { id, name, layer, meaning, runtime_name } => insert(
                "INSERT INTO ops VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                params![
                    id.0,
                    cut(name),
                    layer.as_str(),
                    meaning.class.as_str(),
                    runtime_name.as_deref().map(cut),
                    meaning.is_launch,
                    meaning.is_async,
                    meaning.is_wait,
                    meaning.is_followed,
                    meaning.memory.map(MemoryKind::as_str),
                    meaning.graph_step.map(GraphStep::as_str),
                ],
            ),
            Self::Module { id, path, is_runtime } => {
                insert("INSERT INTO modules VALUES (?, ?, ?)", params![id.0, cut(path), is_runtime])
            }
            Self::Process { id, process } => {
                insert_record(&PROCESS, connection, &[id.to_cell(), session.to_cell()], process)
            }
            Self::Thread { id, process, tid, comm } => {
                insert("INSERT INTO threads VALUES (?, ?, ?, ?)", params![id.0, process.0, tid, cut(comm)])
            }
            Self::Rename { id, comm } => insert("UPDATE threads SET comm = ? WHERE id = ?", params![cut(comm), id.0]),
            Self::Target { id, target } => insert_record(&TARGET, connection, &[id.to_cell()], target),
            Self::StackNumber { id } => insert("INSERT INTO stacks (id) VALUES (?)", params![id.0]),
            Self::Frame { id, frame } => insert_record(&FRAME, connection, &[id.to_cell()], frame),
            Self::Stack(stack) => stack.write(connection),
            Self::Kernel { process, handle, name } => {
                insert("INSERT OR REPLACE INTO kernels VALUES (?, ?, ?)", params![process.0, bits(*handle), cut(name)])
            }
            Self::Label { process, key, value } => insert(
                "INSERT OR REPLACE INTO process_labels VALUES (?, ?, ?)",
                params![process.0, cut(key), cut(value)],
            ),
            Self::Series { id, name, unit, device } => insert(
                "INSERT INTO sample_series VALUES (?, ?, ?, ?, ?)",
                params![id, session, cut(name), cut(unit), device.as_deref().map(cut)],
            ),
        }
    }
}

fn insert_record<R: Record>(
    insert: &Insert,
    connection: &Connection,
    given: &[Cell<'_>],
    record: &R,
) -> rusqlite::Result<()> {
    insert.row(connection, given, record).map(drop)
}

fn load_ops(connection: &Connection) -> rusqlite::Result<HashMap<(String, &'static str), OpId>> {
    let mut statement = connection.prepare("SELECT name, layer, id FROM ops")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, OpId(row.get(2)?))))?;
    let known = |layer: &str| Layer::ALL.iter().map(|known| known.as_str()).find(|known| *known == layer);
    rows.map(|row| row.map(|(name, layer, id)| ((name, known(&layer).unwrap_or_default()), id))).collect()
}

fn load_modules(connection: &Connection) -> rusqlite::Result<HashMap<(String, bool), ModuleId>> {
    let mut statement = connection.prepare("SELECT path, is_runtime, id FROM modules")?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), ModuleId(row.get(2)?))))?;
    rows.collect()
}

pub(super) fn next_id(connection: &Connection, table: &'static str) -> rusqlite::Result<u32> {
    connection.query_row(&format!("SELECT IFNULL(MAX(id), 0) + 1 FROM {table}"), [], |row| row.get(0))
}
