//! From what was drained to named rows: adds who and where. It knows nothing of who receives them.

use std::path::PathBuf;
use std::time::Instant;

use gpuwhy_apis::rows;
use gpuwhy_capture::{Device, IoSums, Life, RawCall, Record, Retransmit, Standing, TaskId, ThreadSnapshot, WalkCount};
use gpuwhy_model::{
    AgentUsage, Annotation, Call, CallClass, CallStats, FabricEvent, FabricEventKind, Forgotten, IoRequest, KernelWork,
    LifeKind, Meaning, Name, Note, NoteKind, OpId, ProcessLife, PythonEnd, Row, RungChange, StackId, StackMoment,
    StackSample, StackWalks, Standstill, Stretch, TcpEvent, TcpEventKind, ThreadId, ThreadTimes, Totals, Wait,
    WaitReason, WalkEnd, WorkKind,
};
use hashbrown::{HashMap, HashSet};

use crate::annotations::Heard;
use crate::clock::{Clock, Reading};
use crate::collectives::{Collectives, Told};
use crate::items::{Counted, Item, RungNews, ThreadReport, Tick, Usage};
use crate::processes::{Introduction, Processes};
use crate::stacks::StackNumbers;
use crate::waits::{Naming, Waits};

pub struct Pipeline {
    clock: Clock,
    processes: Processes,
    waits: Waits,
    stacks: StackNumbers,
    collectives: Collectives,
    /// How many walks have ended how, and how long they took.
    walks: HashMap<(StackMoment, WalkEnd, PythonEnd), (u64, u64)>,
    /// When threads that make calls were seen running; of others, in this bucket of time.
    samples: HashMap<(u64, ThreadId, StackId), u64>,
    /// Threads that have made calls.
    callers: HashSet<ThreadId>,
    /// Of each row of the call table.
    ops: Vec<OpId>,
    meanings: Vec<Meaning>,
    totals: Totals,
    started: Instant,
    bucket_ns: u64,
    clocks: HashMap<TaskId, ThreadSnapshot>,
    /// Whether a watched thread waited for a device in this bucket of time.
    waited_for_io: bool,
}

/// Reasons of waits that block devices end.
const DEVICES: [usize; 2] = [WaitReason::Io as usize, WaitReason::Fault as usize];

/// What a thread is in for so long is told although it has not ended, and again after each such time.
const LONG_NS: u64 = 2_000_000_000;

impl Pipeline {
    pub fn new(clock: Clock, processes: Processes) -> Self {
        Self {
            bucket_ns: clock.unix_ns(Reading::now().monotonic_ns),
            clock,
            processes,
            waits: Waits::default(),
            stacks: StackNumbers::default(),
            collectives: Collectives::default(),
            walks: HashMap::new(),
            samples: HashMap::new(),
            callers: HashSet::new(),
            ops: op_ids(),
            meanings: rows().map(|row| row.meaning()).collect(),
            totals: Totals::default(),
            started: Instant::now(),
            clocks: HashMap::new(),
            waited_for_io: false,
        }
    }

    /// What is known before anything is seen.
    pub fn first_rows(&self) -> Vec<Row> {
        let anchor = self.clock.first();
        let mut first = vec![Row::ClockAnchor { monotonic_ns: anchor.monotonic_ns, unix_offset_ns: anchor.offset_ns }];
        for (index, (row, &id)) in rows().zip(&self.ops).enumerate() {
            if id.0 as usize == index {
                let (layer, meaning) = (row.layer(), row.meaning());
                let runtime_name = row.api.runtime_name;
                first.push(Row::Name(Name::Op { id, name: row.api.name, layer, meaning, runtime_name }));
            }
        }
        first
    }

    /// A process that uses one of the libraries; it may be gone before its first record is read.
    pub fn meet(&mut self, pid: u32) -> Vec<Row> {
        let mut rows = Vec::new();
        self.processes.meet(pid, Reading::now().unix_ns, &mut rows);
        rows
    }

    /// Calls that come from this file are made on behalf of a CUDA runtime.
    pub fn add_runtime(&mut self, path: PathBuf) {
        self.processes.add_runtime(path);
    }

    /// Numbers of stacks are given out anew from now on, with their frames.
    pub fn forget_stacks(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        self.stack_samples(&mut rows);
        rows.push(self.stacks.forget());
        rows
    }

    /// Whether [`Pipeline::forget_stacks`] is due, so that memory stays small.
    pub fn has_many_stacks(&self) -> bool {
        self.stacks.is_full()
    }

    /// What was drained together. Names come first, and what happened at the end of a second last.
    pub fn name(&mut self, items: Vec<Item>) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut calls = Vec::with_capacity(items.len());
        let mut held_up = HeldUp::default();
        let mut tick = None;
        for item in items {
            match item {
                Item::Record(Record::Call(raw)) if self.is_of_fabric(raw.row) => {
                    held_up.news.extend(self.fabric_event(&raw, &mut rows));
                }
                Item::Record(Record::Call(raw)) => calls.push((raw.task.pid, self.call(&raw, &mut rows))),
                Item::Record(record) => self.record(&record, &mut held_up, &mut rows),
                Item::Counts(counts) => self.counts(&counts, &mut rows),
                Item::ThreadEnd(report) => self.thread_end(&report, &mut rows),
                Item::Rung(news) => self.rung(news, &mut rows),
                Item::Kernel { pid, handle, name: kernel } => {
                    let process = self.processes.id(pid, Reading::now().unix_ns, &mut rows);
                    rows.push(Row::Name(Name::Kernel { process, handle, kernel }));
                }
                Item::Stack(hash, stack) => rows.extend(self.stacks.frames(hash, stack)),
                Item::Samples(samples) => push_unless_empty(&mut rows, samples, Row::Samples),
                Item::Annotations(heard) => {
                    let annotations = heard.into_iter().map(|one| self.annotation(one)).collect();
                    push_unless_empty(&mut rows, annotations, Row::Annotations);
                }
                Item::Tick(ended) => tick = Some(ended),
            }
        }
        calls.sort_unstable_by_key(|(_, call)| {
            (call.start_ns, u64::MAX - call.duration_ns, call.parent_start_ns.is_some())
        });
        let mut told = Told::default();
        let mut last = None;
        for (pid, call) in &calls {
            // A set that is asked for each call would cost more than all the rest.
            if last.replace(call.thread) != Some(call.thread) {
                self.callers.insert(call.thread);
            }
            self.collectives.see(*pid, call, &self.meanings[call.op.0 as usize], &mut told);
        }
        let HeldUp { stretches, work, requests, retransmits, news, gone } = held_up;
        gone.iter().for_each(|pid| self.collectives.process_gone(*pid));
        push_unless_empty(&mut rows, calls.into_iter().map(|(_, call)| call).collect(), Row::Calls);
        push_unless_empty(&mut rows, told.captures, Row::CollectiveCaptures);
        push_unless_empty(&mut rows, told.replays, Row::CollectiveReplays);
        push_unless_empty(&mut rows, told.waits, Row::CollectiveWaits);
        push_unless_empty(&mut rows, stretches, Row::Stretches);
        push_unless_empty(&mut rows, work, Row::KernelWork);
        push_unless_empty(&mut rows, requests, Row::IoRequests);
        push_unless_empty(&mut rows, retransmits, Row::TcpEvents);
        push_unless_empty(&mut rows, news, Row::FabricEvents);
        if let Some(tick) = tick {
            self.tick(&tick, &mut rows);
        }
        rows.extend(self.waits.forget_many());
        if self.processes.has_forgotten() {
            self.stack_samples(&mut rows);
            for forgotten in self.processes.take_forgotten() {
                if let Row::Name(Name::Forgotten(Forgotten::Thread(thread))) = &forgotten {
                    self.callers.remove(thread);
                }
                rows.push(forgotten);
            }
        }
        rows
    }

    /// What the session has come to.
    pub fn totals(&self) -> Totals {
        Totals { elapsed: self.started.elapsed(), ..self.totals.clone() }
    }

    fn record(&mut self, record: &Record, held_up: &mut HeldUp, rows: &mut Vec<Row>) {
        let Self { clock, processes, ops, waits, stacks, .. } = self;
        let naming = &mut Naming { clock, processes, ops, stacks, rows };
        match record {
            Record::Stretch(raw) => {
                held_up.stretches.push(waits.stretch(raw, naming));
                if let Some(io) = &raw.io {
                    held_up.requests.push(waits.io(io, raw.task, naming));
                }
            }
            Record::Work(raw) => held_up.work.push(waits.work(raw, naming)),
            Record::Thread(seen) => {
                let at_ns = self.clock.unix_ns(seen.at_ns);
                let introduction = Introduction { comm: &seen.comm, cgroup_id: seen.cgroup_id };
                self.processes.introduce(seen.task, introduction, at_ns, rows);
            }
            Record::Life(life) => {
                rows.push(Row::Life(self.life(life)));
                match life.kind {
                    LifeKind::Exec => self.processes.image_gone(life.pid),
                    LifeKind::Exit => self.processes.process_gone(life.pid),
                    LifeKind::Fork | LifeKind::OomKill => return,
                }
                self.waits.process_gone(life.pid);
                held_up.gone.push(life.pid);
            }
            Record::Sample(sample) => {
                let at_ns = self.clock.unix_ns(sample.at_ns);
                let thread = self.processes.thread(sample.task, at_ns, rows);
                let seen_ns = if self.callers.contains(&thread) { at_ns } else { self.bucket_ns };
                *self.samples.entry((seen_ns, thread, self.stacks.id(sample.stack))).or_default() += 1;
            }
            Record::Retransmit(retransmit) => held_up.retransmits.extend(self.retransmit(retransmit, rows)),
            Record::Call(_) | Record::File(_) | Record::ThreadExit(_) => {}
            // They have a thread of their own.
            Record::Stack(_) | Record::Code(_) => {}
        }
    }

    fn thread_end(&mut self, report: &ThreadReport, rows: &mut Vec<Row>) {
        self.thread_times(std::slice::from_ref(report), rows);
        self.clocks.remove(&report.snapshot.owner.task);
        self.processes.thread_gone(report.snapshot.owner.task);
    }

    fn rung(&mut self, news: RungNews, rows: &mut Vec<Row>) {
        let at_ns = self.clock.unix_ns(news.at_ns);
        let process = self.processes.id(news.pid, at_ns, rows);
        let RungNews { row: op, rung, fraction, reason, .. } = news;
        rows.push(Row::RungChange(RungChange { at_ns, process, op: self.ops[op as usize], rung, fraction, reason }));
    }

    fn annotation(&self, heard: Heard) -> Annotation {
        let Heard { at_ns, pid, key, value } = heard;
        Annotation { at_ns, pid, key, value, process: pid.and_then(|pid| self.processes.known(pid)) }
    }

    fn call(&mut self, raw: &RawCall, rows: &mut Vec<Row>) -> Call {
        let start_ns = self.clock.unix_ns(raw.end_ns - raw.duration_ns);
        let thread = self.processes.thread(raw.task, start_ns, rows);
        let mut other = |task: Option<TaskId>| task.map(|task| self.processes.thread(task, start_ns, rows));
        let wait =
            Wait { reason: raw.wait_reason, woken_by: other(raw.woken_by), preempted_by: other(raw.preempted_by) };
        Call {
            start_ns,
            duration_ns: raw.duration_ns,
            runqueue_ns: raw.runqueue_ns,
            blocked_ns: raw.blocked_ns,
            thread,
            op: self.ops[raw.row as usize],
            device: self.processes.device(raw.task.pid, raw.device),
            stream: raw.stream,
            direction: raw.direction,
            handle: raw.handle,
            caller: self.processes.module(raw.task.pid, raw.caller, rows),
            bytes: raw.bytes,
            address: raw.address,
            ret_code: raw.ret,
            parent_start_ns: raw.parent_start_ns.map(|start| self.clock.unix_ns(start)),
            wait: (wait != Wait::default()).then_some(wait),
            stack_id: raw.stack.map(|hash| self.stacks.id(hash)),
            own: raw.own.clone(),
        }
    }

    fn counts(&mut self, counts: &[Counted], rows: &mut Vec<Row>) {
        let mut stats = Vec::with_capacity(counts.len());
        for counted in counts {
            let delta = &counted.delta;
            if self.is_of_fabric(delta.row) {
                continue;
            }
            self.totals.seen += delta.count;
            let thread = self.processes.thread(delta.task, self.bucket_ns, rows);
            self.callers.insert(thread);
            stats.push(CallStats {
                bucket_ns: self.bucket_ns,
                thread,
                op: self.ops[delta.row as usize],
                count: delta.count,
                sum_ns: delta.sum_ns,
                min_ns: delta.min_ns,
                max_ns: delta.max_ns,
                runqueue_ns: delta.runqueue_ns,
                blocked_ns: delta.blocked_ns,
                bytes: delta.bytes,
                errors: delta.errors,
                histogram: delta.histogram.clone(),
                fraction: counted.fraction(),
                estimate: counted.estimate,
                variance: counted.variance,
            });
        }
        push_unless_empty(rows, stats, Row::CallStats);
    }

    /// What happened to each thread since its last snapshot, or since its first call.
    fn thread_times(&mut self, reports: &[ThreadReport], rows: &mut Vec<Row>) {
        let mut times = Vec::with_capacity(reports.len());
        let mut standstills = Vec::new();
        for ThreadReport { snapshot: now, taken_ns } in reports {
            let last = self.clocks.insert(now.owner.task, now.clone()).unwrap_or_else(|| first_snapshot(now));
            let thread = self.processes.thread(now.owner.task, self.bucket_ns, rows);
            self.processes.rename(now.owner.task, &now.comm, rows);
            let is_told = |standing: &&Standing| {
                let waits_for_news = standing.call.is_some_and(|call| self.is_of_fabric(call.row));
                !waits_for_news && is_due(standing.since_ns, last.at_ns, now.at_ns)
            };
            let standing = now.standing.as_ref().filter(is_told);
            standstills.extend(standing.map(|standing| self.standstill(thread, standing, now.at_ns)));
            times.push(ThreadTimes {
                bucket_ns: self.clock.unix_ns(last.at_ns),
                thread,
                wall_ns: now.at_ns.saturating_sub(last.at_ns),
                runqueue_ns: now.runqueue_ns.saturating_sub(last.runqueue_ns),
                blocked_ns: std::array::from_fn(|i| now.blocked_ns[i].saturating_sub(last.blocked_ns[i])),
                in_calls_ns: now.in_calls_ns.saturating_sub(last.in_calls_ns),
                in_calls_runqueue_ns: now.in_calls_runqueue_ns.saturating_sub(last.in_calls_runqueue_ns),
                in_calls_blocked_ns: now.in_calls_blocked_ns.saturating_sub(last.in_calls_blocked_ns),
                tracer_ns: *taken_ns,
                throttled_ns: now.throttled_ns.saturating_sub(last.throttled_ns),
                work_ns: std::array::from_fn(|i| now.work_ns[i].saturating_sub(last.work_ns[i])),
                major_faults: now.major_faults.saturating_sub(last.major_faults),
                minor_faults: now.minor_faults.saturating_sub(last.minor_faults),
                system_ns: now.system_ns.saturating_sub(last.system_ns),
            });
        }
        let for_a_device = |times: &ThreadTimes| DEVICES.iter().any(|&reason| times.blocked_ns[reason] > 0);
        self.waited_for_io |= times.iter().any(for_a_device);
        push_unless_empty(rows, times, Row::ThreadTimes);
        push_unless_empty(rows, standstills, Row::Standstills);
    }

    fn standstill(&mut self, thread: ThreadId, standing: &Standing, seen_ns: u64) -> Standstill {
        Standstill {
            thread,
            start_ns: self.clock.unix_ns(standing.since_ns),
            seen_ns: self.clock.unix_ns(seen_ns),
            op: standing.call.map(|call| self.ops[usize::from(call.row)]),
            reason: standing.wait_reason,
            stack: standing.stack.map(|hash| self.stacks.id(hash)),
        }
    }

    fn life(&self, life: &Life) -> ProcessLife {
        ProcessLife {
            at_ns: self.clock.unix_ns(life.at_ns),
            kind: life.kind,
            pid: life.pid,
            child_pid: (life.kind == LifeKind::Fork).then_some(life.child_pid),
            status: (life.kind == LifeKind::Exit).then_some(life.status),
            comm: if life.comm.is_empty() {
                self.processes.process_name(life.pid).to_owned()
            } else {
                life.comm.clone()
            },
        }
    }

    /// Of a process that is known. What others send again is not told.
    fn retransmit(&mut self, raw: &Retransmit, rows: &mut Vec<Row>) -> Option<TcpEvent> {
        let pid = self.processes.owner_of_socket(raw.inode)?;
        let at_ns = self.clock.unix_ns(raw.at_ns);
        Some(TcpEvent {
            at_ns,
            pid: Some(pid),
            kind: TcpEventKind::Retransmit,
            saddr: Some(raw.local.ip().to_string()),
            sport: Some(raw.local.port()),
            daddr: Some(raw.remote.ip().to_string()),
            dport: Some(raw.remote.port()),
            process: Some(self.processes.id(pid, at_ns, rows)),
            round_trip_ns: Some(u64::from(raw.round_trip_us) * 1000),
        })
    }

    /// Whether calls bring news of the fabric between hosts. They are not kept, but what they bring.
    fn is_of_fabric(&self, row: u16) -> bool {
        self.meanings[self.ops[usize::from(row)].0 as usize].class == CallClass::Fabric
    }

    fn fabric_event(&mut self, raw: &RawCall, rows: &mut Vec<Row>) -> Option<FabricEvent> {
        let number = raw.handle.filter(|_| raw.ret == 0)?;
        let kind = FabricEventKind::from_index(usize::try_from(number).ok()?)?;
        let at_ns = self.clock.unix_ns(raw.end_ns);
        let process = self.processes.id(raw.task.pid, at_ns, rows);
        Some(FabricEvent { at_ns, pid: raw.task.pid, kind, is_fabric_error: kind.is_fabric_error(), process })
    }

    fn tick(&mut self, tick: &Tick, rows: &mut Vec<Row>) {
        self.thread_times(&tick.threads, rows);
        self.io_usage(&tick.io, rows);
        self.stack_walks(&tick.walks, rows);
        self.stack_samples(rows);
        let now = Reading::now();
        if let Some(anchor) = self.clock.check(now) {
            rows.push(Row::ClockAnchor { monotonic_ns: anchor.monotonic_ns, unix_offset_ns: anchor.offset_ns });
            let text = "the wall clock was set during the trace; later times follow the new setting";
            rows.push(Row::Note { at_ns: now.unix_ns, note: Note::new(NoteKind::Clock, text) });
        }
        let Usage { wall_ns, cpu_ns, hooks_ns, call_program_ns } = tick.usage;
        let bucket_ns = self.bucket_ns;
        rows.push(Row::AgentUsage(AgentUsage { bucket_ns, wall_ns, cpu_ns, hooks_ns, call_program_ns }));
        rows.push(Row::Losses(tick.losses));
        self.bucket_ns = self.clock.unix_ns(now.monotonic_ns);
        self.processes.tick();
        self.totals.cost.add_second(tick.worst, cpu_ns as f64 / wall_ns.max(1) as f64);
        self.totals.losses = tick.losses;
        self.totals.probes = tick.probes;
        rows.push(Row::Second(self.totals()));
    }

    /// How many walks have ended how since the last tick.
    fn stack_walks(&mut self, counts: &[WalkCount], rows: &mut Vec<Row>) {
        let mut walks = Vec::new();
        for &WalkCount { moment, end, python_end, count, ns } in counts {
            let before = self.walks.insert((moment, end, python_end), (count, ns)).unwrap_or_default();
            let (count, ns) = (count - before.0, ns - before.1);
            if count > 0 {
                let bucket_ns = self.bucket_ns;
                walks.push(StackWalks { bucket_ns, moment, end, python_end, count, ns });
            }
        }
        push_unless_empty(rows, walks, Row::StackWalks);
    }

    fn stack_samples(&mut self, rows: &mut Vec<Row>) {
        let sample = |((bucket_ns, thread, stack), count)| StackSample { bucket_ns, thread, stack, count };
        let samples: Vec<StackSample> = self.samples.drain().map(sample).collect();
        push_unless_empty(rows, samples, Row::StackSamples);
    }

    fn io_usage(&mut self, sums: &[((Device, u32), IoSums)], rows: &mut Vec<Row>) {
        let is_wanted = std::mem::take(&mut self.waited_for_io);
        let Self { clock, processes, ops, waits, stacks, .. } = self;
        let usage =
            waits.io_usage(sums, is_wanted, self.bucket_ns, &mut Naming { clock, processes, ops, stacks, rows });
        push_unless_empty(rows, usage, Row::IoUsage);
    }
}

/// What held threads up.
#[derive(Default)]
struct HeldUp {
    stretches: Vec<Stretch>,
    work: Vec<KernelWork>,
    requests: Vec<IoRequest>,
    retransmits: Vec<TcpEvent>,
    news: Vec<FabricEvent>,
    /// Processes whose last calls may come later.
    gone: Vec<u32>,
}

/// Whether something that goes on has become another [`LONG_NS`] older since the last look.
fn is_due(since_ns: u64, last_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(since_ns) / LONG_NS > last_ns.saturating_sub(since_ns) / LONG_NS
}

fn push_unless_empty<T>(rows: &mut Vec<Row>, of_one_kind: Vec<T>, row: fn(Vec<T>) -> Row) {
    if !of_one_kind.is_empty() {
        rows.push(row(of_one_kind));
    }
}

/// Rows of the call table that differ in their signature only are one function: the first of them gives the number.
fn op_ids() -> Vec<OpId> {
    let mut first = HashMap::new();
    let id = |(index, row): (usize, gpuwhy_apis::Row)| {
        *first.entry((row.api.name, row.layer())).or_insert(OpId(index as u32))
    };
    rows().enumerate().map(id).collect()
}

/// A thread's clocks start at zero with its first call.
fn first_snapshot(now: &ThreadSnapshot) -> ThreadSnapshot {
    ThreadSnapshot {
        at_ns: now.since_ns,
        runqueue_ns: 0,
        blocked_ns: [0; WaitReason::COUNT],
        in_calls_ns: 0,
        in_calls_runqueue_ns: 0,
        in_calls_blocked_ns: 0,
        throttled_ns: 0,
        work_ns: [0; WorkKind::COUNT],
        ..now.clone()
    }
}
