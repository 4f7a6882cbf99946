//! Windows made by hand: a training loop with known truth, and what a test does to it.
#![allow(dead_code)]

use std::sync::Arc;

use gpuwhy_apis::rows;
use gpuwhy_model::{
    Call, CpuTaker, Explanation, Finding, Frame, FrameKind, Histogram, KernelWork, LifeKind, ModuleId, OpId, Process,
    ProcessId, ProcessLife, PythonEnd, Severity, Span, StackId, StandsFor, Stretch, TargetId, TargetKind, ThreadId,
    ThreadTimes, WaitReason, WaitTarget, WalkEnd, WorkKind,
};
use gpuwhy_window::{
    CallSecond, CallSum, Collective, Covered, LoadedStack, Op, SessionFacts, Thread, ThreadSum, Window,
};

pub const START_NS: u64 = 1_790_000_000_000_000_000;
pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// Every function of a scene; its id is its place.
const OPS: &[&str] = &[
    "cuLaunchKernel",
    "cuStreamSynchronize",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuMemAlloc",
    "cuMemFree",
    "cuModuleLoadData",
    "cuStreamBeginCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "ncclAllReduce",
    "ncclCommAbort",
    "ncclCommDestroy",
];

pub fn op(name: &str) -> OpId {
    OpId(OPS.iter().position(|one| *one == name).expect("a function of the list") as u32)
}

fn meant(name: &str) -> Op {
    let row = rows().find(|row| row.api.name == name).expect("a function of the call table");
    Op { name: name.to_owned(), layer: row.layer(), meaning: row.meaning() }
}

/// Times are from the beginning of the window on.
pub struct Scene {
    pub window: Window,
}

impl Scene {
    pub fn new(length_ns: u64) -> Self {
        let span = Span { from_ns: START_NS, to_ns: START_NS + length_ns };
        let mut window = Window { from_ns: span.from_ns, to_ns: span.to_ns, ..Window::default() };
        window.ops = (0..).map(OpId).zip(OPS.iter().map(|name| meant(name))).collect();
        window.modules.insert(ModuleId(1), "/opt/train.so".to_owned());
        window.sessions.push(SessionFacts {
            started_ns: START_NS,
            command: "gpuwhy trace".into(),
            ..Default::default()
        });
        window.stretches.spans.push(span);
        window.kernel_work.spans.push(span);
        window.io_requests.spans.push(span);
        window.calls.spans.push(span);
        window.collectives.spans.push(span);
        window.memory_calls.spans.push(span);
        Self { window }
    }

    pub fn process(&mut self, pid: u32, comm: &str) -> ProcessId {
        let id = ProcessId(self.window.processes.len() as u32 + 1);
        let process = Process {
            pid,
            parent_pid: 1,
            comm: comm.into(),
            exe: format!("/usr/bin/{comm}"),
            cgroup: "/job".into(),
            ..Process::default()
        };
        self.window.processes.insert(id, process);
        id
    }

    /// A thread whose clocks are kept for the whole window.
    pub fn thread(&mut self, process: ProcessId, tid: u32, comm: &str) -> ThreadId {
        let id = ThreadId(self.window.threads.len() as u32 + 1);
        self.window.threads.insert(id, Thread { process, tid, comm: comm.into() });
        let length_ns = self.window.to_ns - self.window.from_ns;
        let times = ThreadTimes::new(START_NS, id, length_ns);
        let seconds = length_ns.div_ceil(S);
        let last_bucket_ns = START_NS + (seconds - 1) * S;
        self.window.thread_sums.push(ThreadSum { times, last_bucket_ns, seconds });
        id
    }

    /// A process with one thread of the same name and number.
    pub fn program(&mut self, pid: u32, comm: &str) -> ThreadId {
        let process = self.process(pid, comm);
        self.thread(process, pid, comm)
    }

    pub fn target(&mut self, kind: TargetKind, name: &str) -> TargetId {
        let id = TargetId(self.window.targets.len() as u32 + 1);
        self.window.targets.insert(id, WaitTarget { process: ProcessId(1), kind, name: name.into() });
        id
    }

    pub fn times(&mut self, thread: ThreadId) -> &mut ThreadTimes {
        let sum = self.window.thread_sums.iter_mut().find(|sum| sum.times.thread == thread);
        &mut sum.expect("a thread of the scene").times
    }

    /// A stretch off the CPU, also on the thread's clocks.
    pub fn stretch(&mut self, thread: ThreadId, start_ns: u64, wait: Off) {
        let times = self.times(thread);
        times.runqueue_ns += wait.runqueue_ns;
        if wait.is_throttled {
            times.throttled_ns += wait.runqueue_ns;
        }
        if let Some(reason) = wait.reason {
            times.blocked_ns[reason as usize] += wait.blocked_ns;
        }
        if wait.op.is_some() {
            times.in_calls_blocked_ns += wait.blocked_ns;
        }
        self.window.stretches.rows.push(Stretch {
            start_ns: START_NS + start_ns,
            thread,
            blocked_ns: wait.blocked_ns,
            runqueue_ns: wait.runqueue_ns,
            is_throttled: wait.is_throttled,
            reason: wait.reason,
            op: wait.op,
            target: wait.target,
            woken_by: wait.woken_by,
            taken_by: [wait.taken_by.map(|thread| CpuTaker { thread, ns: wait.runqueue_ns }), None],
            all: StandsFor { count: 1, blocked_ns: wait.blocked_ns, runqueue_ns: wait.runqueue_ns },
            stack: None,
            waker_stack: None,
        });
    }

    /// Says what the kernel did in the stretch before.
    pub fn in_kernel_function(&mut self, name: &str) {
        let frame = Frame {
            kind: FrameKind::Kernel,
            function: name.to_owned(),
            file: None,
            line: None,
            module: None,
            address: 0,
            is_inlined: false,
        };
        let (end, python_end) = (WalkEnd::Complete, PythonEnd::NotPython);
        let id = StackId(self.window.stacks.len() as u32 + 1);
        self.window.stacks.insert(id, LoadedStack { frames: vec![Arc::new(frame)], end, python_end, site: None });
        self.window.stretches.rows.last_mut().expect("a stretch").stack = Some(id);
    }

    pub fn call(&mut self, thread: ThreadId, name: &str, start_ns: u64, duration_ns: u64) -> &mut Call {
        self.window.calls.rows.push(Call {
            device: Some(0),
            caller: Some(ModuleId(1)),
            ..Call::new(thread, op(name), START_NS + start_ns, duration_ns)
        });
        self.window.calls.rows.last_mut().expect("just added")
    }

    pub fn work(&mut self, thread: ThreadId, kind: WorkKind, start_ns: u64, ns: u64, inside: Option<&str>) {
        self.times(thread).work_ns[kind as usize] += ns;
        self.window.kernel_work.rows.push(KernelWork {
            start_ns: START_NS + start_ns,
            thread,
            kind,
            duration_ns: ns,
            op: inside.map(op),
            target: None,
            code: Some(0xc020_462a),
            all_count: 1,
            all_ns: ns,
        });
    }

    /// The calls a healthy step has: launches, a copy, and a wait of `gpu_ns` for the GPU. Returns when it is over.
    pub fn step(&mut self, thread: ThreadId, start_ns: u64, launches: u64, gpu_ns: u64) -> u64 {
        let mut at_ns = start_ns;
        for _ in 0..launches {
            self.call(thread, "cuLaunchKernel", at_ns, 5 * US);
            at_ns += 20 * US;
        }
        self.call(thread, "cuMemcpyDtoHAsync", at_ns, 5 * US).bytes = Some(64);
        self.sync(thread, at_ns + 10 * US, gpu_ns)
    }

    pub fn sync(&mut self, thread: ThreadId, start_ns: u64, gpu_ns: u64) -> u64 {
        self.call(thread, "cuStreamSynchronize", start_ns, gpu_ns).blocked_ns = gpu_ns;
        let inside = Some(op("cuStreamSynchronize"));
        self.stretch(thread, start_ns, Off { op: inside, ..Off::blocked(WaitReason::Other, gpu_ns) });
        start_ns + gpu_ns
    }

    /// A rank asks for an all-reduce.
    pub fn all_reduce(&mut self, thread: ThreadId, start_ns: u64, rank: u32, ranks: u32, sequence: u64) {
        let start_ns = self.call(thread, "ncclAllReduce", start_ns, 10 * US).start_ns;
        let op = op("ncclAllReduce");
        self.window.collectives.rows.push(Collective {
            start_ns,
            thread,
            op,
            communicator: 7,
            communicator_id: 7,
            rank,
            ranks,
            sequence,
            bytes: 4096,
            has_root: false,
            done_ns: None,
            wait_ns: 0,
        });
    }

    /// Sums up the calls and puts everything in the order of time.
    pub fn finished(mut self) -> Window {
        let window = &mut self.window;
        window.stretches.rows.sort_by_key(|row| row.start_ns);
        window.kernel_work.rows.sort_by_key(|row| row.start_ns);
        window.calls.rows.sort_by_key(|row| row.start_ns);
        for one in &mut window.collectives.rows {
            let waits = |call: &&Call| call.thread == one.thread && call.op == op("cuStreamSynchronize");
            let wait = window.calls.rows.iter().find(|call| call.start_ns > one.start_ns && waits(call));
            (one.done_ns, one.wait_ns) = wait.map_or((None, 0), |wait| (Some(wait.span().to_ns), wait.duration_ns));
        }
        let memory = window.calls.rows.iter().filter(|call| call.address.is_some()).cloned().collect();
        window.memory_calls = Covered { rows: memory, spans: window.memory_calls.spans.clone() };
        for call in window.calls.rows.clone() {
            add_to_sums(window, &call);
        }
        self.window
    }

    pub fn explained(self) -> Explanation {
        gpuwhy_analysis::explain(&self.finished())
    }
}

fn add_to_sums(window: &mut Window, call: &Call) {
    let sum = match window.call_sums.iter_mut().find(|sum| sum.thread == call.thread && sum.op == call.op) {
        Some(sum) => sum,
        None => {
            window.call_sums.push(CallSum::new(call.thread, call.op));
            window.call_sums.last_mut().expect("just added")
        }
    };
    let failed = u64::from(call.ret_code != 0);
    sum.seen += 1;
    sum.calls += 1;
    sum.sum_ns += call.duration_ns;
    sum.runqueue_ns += call.runqueue_ns;
    sum.blocked_ns += call.blocked_ns;
    sum.bytes += call.bytes.unwrap_or(0);
    sum.errors += failed;
    sum.max_ns = sum.max_ns.max(call.duration_ns);
    sum.histogram.add(Histogram::index(call.duration_ns), 1);
    let bucket_ns = START_NS + (call.start_ns - START_NS) / S * S;
    let same = |one: &&mut CallSecond| one.bucket_ns == bucket_ns && one.thread == call.thread && one.op == call.op;
    match window.call_seconds.iter_mut().find(same) {
        Some(second) => {
            second.calls += 1;
            second.sum_ns += call.duration_ns;
            second.errors += failed;
        }
        None => {
            sum.seconds += 1;
            window.call_seconds.push(CallSecond {
                bucket_ns,
                thread: call.thread,
                op: call.op,
                seen: 1,
                calls: 1,
                sum_ns: call.duration_ns,
                max_ns: call.duration_ns,
                errors: failed,
            });
        }
    }
    let times = window.thread_sums.iter_mut().find(|sum| sum.times.thread == call.thread);
    times.expect("a thread of the scene").times.in_calls_ns += call.duration_ns;
}

/// The end of a process.
pub fn exit(pid: u32, at_ns: u64) -> ProcessLife {
    ProcessLife { at_ns, kind: LifeKind::Exit, pid, child_pid: None, status: Some(0), comm: String::new() }
}

/// What a stretch off the CPU was.
#[derive(Clone, Copy, Default)]
pub struct Off {
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub is_throttled: bool,
    pub reason: Option<WaitReason>,
    pub op: Option<OpId>,
    pub target: Option<TargetId>,
    pub woken_by: Option<ThreadId>,
    pub taken_by: Option<ThreadId>,
}

impl Off {
    pub fn blocked(reason: WaitReason, ns: u64) -> Self {
        Self { reason: Some(reason), blocked_ns: ns, ..Self::default() }
    }

    pub fn on(reason: WaitReason, ns: u64, target: TargetId, woken_by: ThreadId) -> Self {
        Self { target: Some(target), woken_by: Some(woken_by), ..Self::blocked(reason, ns) }
    }

    pub fn runnable(ns: u64, taken_by: Option<ThreadId>) -> Self {
        Self { runqueue_ns: ns, taken_by, ..Self::default() }
    }
}

/// A training loop of 500 steps of 20 ms: 4 ms for whatever a test puts there, 0.4 ms of launches, then the GPU.
pub fn training(mut in_step: impl FnMut(&mut Scene, ThreadId, u64)) -> Scene {
    let mut scene = Scene::new(10 * S);
    let thread = scene.program(4711, "python");
    for step in 0..500 {
        let start_ns = step * 20 * MS;
        in_step(&mut scene, thread, start_ns);
        scene.step(thread, start_ns + 8 * MS, 20, 11 * MS);
    }
    scene
}

pub fn grave(explanation: &Explanation) -> Vec<(&str, Severity)> {
    let grave = explanation.findings.iter().filter(|finding| finding.severity > Severity::Low);
    grave.map(|finding| (finding.cause.as_str(), finding.severity)).collect()
}

/// The first finding, which must be of this cause and the only grave one.
#[track_caller]
pub fn only<'e>(explanation: &'e Explanation, cause: &str) -> &'e Finding {
    let causes: Vec<&str> = grave(explanation).into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(causes, [cause], "{explanation:#?}");
    &explanation.findings[0]
}

/// Nothing above low severity, and a reason why not for this cause.
#[track_caller]
pub fn innocent(explanation: &Explanation, cause: &str) {
    assert_eq!(grave(explanation), [], "{explanation:#?}");
    let is_told = explanation.ruled_out.iter().any(|one| one.cause == cause)
        || explanation.findings.iter().any(|finding| finding.cause == cause);
    assert!(is_told, "{cause}: {explanation:#?}");
}
