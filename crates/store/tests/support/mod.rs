//! A small trace to write and read. Each test uses its own part of it.
#![allow(dead_code)]

pub mod capped;

use std::path::{Path, PathBuf};

use gpuwhy_model::{
    Calibration, Call, CallClass, IoRequest, KernelWork, Layer, ModuleId, OpId, Process, ProcessId, Session,
    SessionEnd, StandsFor, Stretch, TargetKind, ThreadId, WaitReason, WaitTarget, WorkKind,
};
use gpuwhy_store::{Answer, Limits, Options, Trace, Value, Writer};
use tempfile::TempDir;

pub const START_NS: u64 = 1_790_000_000_000_000_000;

pub fn temporary() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    (directory, path)
}

pub fn session() -> Session {
    Session { started_ns: START_NS, host: "node7".into(), gpus: vec!["H200".into()], ..Session::default() }
}

pub fn calibration(what: &str, ns: f64) -> Calibration {
    Calibration { what: what.into(), ns }
}

pub fn writer(path: &Path) -> Writer {
    Writer::open(path, &session(), &Options::default()).unwrap()
}

pub fn end() -> SessionEnd {
    SessionEnd { ended_ns: START_NS + 1_000_000_000, reason: "finished".into(), ..SessionEnd::default() }
}

/// Who makes the calls of a test.
#[derive(Clone, Copy)]
pub struct Cast {
    pub process: ProcessId,
    pub thread: ThreadId,
    pub other_thread: ThreadId,
    pub launch: OpId,
    pub runtime_launch: OpId,
    pub alloc: OpId,
    pub cudart: ModuleId,
    pub program: ModuleId,
}

impl Cast {
    pub fn new(writer: &mut Writer) -> Self {
        let process = Process { pid: 100, comm: "python".into(), cgroup_id: u64::MAX, ..Process::default() };
        let process = writer.process(&process).unwrap();
        let mut op = |name, layer, class, runtime| writer.op(name, layer, class, runtime).unwrap();
        let launch = op("cuLaunchKernel", Layer::Driver, CallClass::Launch, Some("cudaLaunchKernel"));
        let runtime_launch = op("cudaLaunchKernel", Layer::Runtime, CallClass::Launch, None);
        let alloc = op("cuMemAlloc_v2", Layer::Driver, CallClass::Alloc, Some("cudaMalloc"));
        Self {
            process,
            thread: writer.thread(process, 100, "python").unwrap(),
            other_thread: writer.thread(process, 101, "worker").unwrap(),
            launch,
            runtime_launch,
            alloc,
            cudart: writer.module("/lib/libcudart.so.12", true).unwrap(),
            program: writer.module("/usr/bin/python", false).unwrap(),
        }
    }

    pub fn call(&self, offset_ns: u64) -> Call {
        Call { device: Some(0), ..Call::new(self.thread, self.launch, START_NS + offset_ns, 5_000) }
    }

    pub fn target(&self, name: &str) -> WaitTarget {
        WaitTarget { process: self.process, kind: TargetKind::Lock, name: name.into() }
    }

    /// Blocked on a futex that somebody unknown ended.
    pub fn stretch(&self, offset_ns: u64) -> Stretch {
        Stretch {
            start_ns: START_NS + offset_ns,
            thread: self.thread,
            blocked_ns: 60_000,
            runqueue_ns: 4_000,
            is_throttled: false,
            reason: Some(WaitReason::Futex),
            op: None,
            target: None,
            woken_by: None,
            taken_by: [None; 2],
            all: StandsFor { count: 1, blocked_ns: 60_000, runqueue_ns: 4_000 },
            stack: None,
            waker_stack: None,
        }
    }

    pub fn reclaim(&self, offset_ns: u64) -> KernelWork {
        KernelWork {
            start_ns: START_NS + offset_ns,
            thread: self.thread,
            kind: WorkKind::Reclaim,
            duration_ns: 70_000,
            op: None,
            target: None,
            code: None,
            all_count: 1,
            all_ns: 70_000,
        }
    }

    pub fn read(&self, offset_ns: u64) -> IoRequest {
        IoRequest {
            start_ns: START_NS + offset_ns,
            duration_ns: 90_000,
            device: "nvme0n1".into(),
            bytes: 4096,
            is_write: false,
            issuer: None,
            waiter: self.thread,
        }
    }
}

pub fn query(path: &Path, sql: &str) -> Answer {
    Trace::open(path).unwrap().query(sql, &Limits::default()).unwrap()
}

pub fn rows(path: &Path, sql: &str) -> Vec<Vec<Value>> {
    query(path, sql).rows
}

pub fn number(path: &Path, sql: &str) -> i64 {
    match rows(path, sql)[0][0] {
        Value::Integer(number) => number,
        ref other => panic!("{sql}: {other:?}"),
    }
}

/// A row as text, for short comparisons.
pub fn line(row: &[Value]) -> String {
    let cell = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        other => other.to_json().to_string(),
    };
    row.iter().map(cell).collect::<Vec<_>>().join(" ")
}

pub fn lines(path: &Path, sql: &str) -> Vec<String> {
    rows(path, sql).iter().map(|row| line(row)).collect()
}

/// What SQLite itself says about the file, without our guard.
pub fn integrity(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}
