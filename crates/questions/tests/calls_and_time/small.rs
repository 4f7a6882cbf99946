//! A small trace to ask about. Times are offsets from `START_NS`.

use std::path::{Path, PathBuf};

use gpuwhy_model::{
    Call, CallClass, CallStats, Frame, FrameKind, Layer, ModuleId, OpId, Process, Session, SessionEnd, Stack, StackId,
    StandsFor, Stretch, ThreadId, WaitReason, WalkEnd,
};
use gpuwhy_questions::{AskError, Asked, NoHost, Traces, find};
use gpuwhy_store::{Options, Writer};
use serde_json::Value;
use tempfile::TempDir;

pub const START_NS: u64 = 1_790_000_000_000_000_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

pub fn ask_all(files: &[&Path], name: &str, parameters: Value) -> Result<Value, AskError> {
    let traces = Traces::new(files.iter().map(|file| file.to_path_buf()));
    let asked = Asked::new(&traces, &NoHost);
    find(name).unwrap().ask(parameters, &asked)
}

pub fn ask(file: &Path, name: &str, parameters: Value) -> Value {
    ask_all(&[file], name, parameters).unwrap()
}

pub fn array<'v>(answer: &'v Value, pointer: &str) -> &'v [Value] {
    answer.pointer(pointer).and_then(Value::as_array).unwrap()
}

/// A file that is being written: a program of two threads and one that feeds it.
pub struct Small {
    pub writer: Writer,
    pub path: PathBuf,
    /// 100 of process 100.
    pub main: ThreadId,
    /// 101 of process 100.
    pub worker: ThreadId,
    /// 200 of process 200.
    pub loader: ThreadId,
    pub launch: OpId,
    pub alloc: OpId,
    pub sync: OpId,
    pub cudart: ModuleId,
    _folder: TempDir,
}

impl Small {
    pub fn new() -> Self {
        Self::named("python")
    }

    /// Every name that a traced program chooses is this one.
    pub fn named(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.db");
        let session = Session { started_ns: START_NS, host: name.into(), command: name.into(), ..Session::default() };
        let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
        let mut process = |pid, comm: &str| {
            let process = Process { pid, comm: comm.into(), cmdline: name.repeat(100), ..Process::default() };
            writer.process(&process).unwrap()
        };
        let (python, other) = (process(100, name), process(200, "loader"));
        let mut op = |name, class, runtime| writer.op(name, Layer::Driver, class, runtime).unwrap();
        Self {
            launch: op("cuLaunchKernel", CallClass::Launch, Some("cudaLaunchKernel")),
            alloc: op("cuMemAlloc_v2", CallClass::Alloc, Some("cudaMalloc")),
            sync: op("cuStreamSynchronize", CallClass::Sync, Some("cudaStreamSynchronize")),
            main: writer.thread(python, 100, name).unwrap(),
            worker: writer.thread(python, 101, "worker").unwrap(),
            loader: writer.thread(other, 200, "loader").unwrap(),
            cudart: writer.module("/lib/libcudart.so.12", true).unwrap(),
            writer,
            path,
            _folder: folder,
        }
    }

    /// A call of the main thread.
    pub fn call(&self, op: OpId, offset_ns: u64, duration_ns: u64) -> Call {
        Call { caller: Some(self.cudart), ..Call::new(self.main, op, START_NS + offset_ns, duration_ns) }
    }

    pub fn write(&mut self, calls: impl IntoIterator<Item = Call>) {
        let mut calls: Vec<Call> = calls.into_iter().collect();
        self.writer.calls(&mut calls).unwrap();
    }

    /// A second in which the main thread made calls of one length, of which all were seen.
    pub fn second(&self, op: OpId, offset_ns: u64, count: u64, each_ns: u64) -> CallStats {
        CallStats::alike(START_NS + offset_ns, self.main, op, count, each_ns)
    }

    /// The main thread blocked, until `woken_by` ends it.
    pub fn wait(&self, offset_ns: u64, blocked_ns: u64, woken_by: Option<ThreadId>) -> Stretch {
        Stretch {
            start_ns: START_NS + offset_ns,
            thread: self.main,
            blocked_ns,
            runqueue_ns: 0,
            is_throttled: false,
            reason: Some(WaitReason::Futex),
            op: None,
            target: None,
            woken_by,
            taken_by: [None; 2],
            all: StandsFor { count: 1, blocked_ns, runqueue_ns: 0 },
            stack: None,
            waker_stack: None,
        }
    }

    /// A stack of one Python line above one native function.
    pub fn stack(&mut self, file: &str, line: u32) -> StackId {
        let native = Frame { function: "cuLaunchKernel".into(), address: 0x10, ..Frame::default() };
        let python = Frame {
            kind: FrameKind::Python,
            function: "forward".into(),
            file: Some(file.into()),
            line: Some(line),
            ..Frame::default()
        };
        let stack = Stack { frames: vec![native, python], end: WalkEnd::Complete, ..Stack::default() };
        let id = self.writer.reserve_stack().unwrap();
        self.writer.stack(id, &stack).unwrap();
        id
    }

    /// Ends the session after `seconds`. The file stays as long as what is returned.
    pub fn finish(self, seconds: u64) -> Finished {
        let end =
            SessionEnd { ended_ns: START_NS + seconds * SECOND, reason: "finished".into(), ..SessionEnd::default() };
        self.writer.finish(&end).unwrap();
        Finished { path: self.path, _folder: self._folder }
    }
}

pub struct Finished {
    pub path: PathBuf,
    _folder: TempDir,
}
