//! From kernel records to rows: adds who and where, and hands everything to the store in time order.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpuwhy_apis::{row, rows};
use gpuwhy_capture::{Device, IoSums, Life, RawCall, Record, StackHash, TaskId, ThreadSnapshot, WalkCount};
use gpuwhy_model::{
    AgentUsage, Call, CallStats, IoRequest, KernelWork, LifeKind, LossReason, Losses, OpId, ProcessLife, PythonEnd,
    RungChange, SessionEnd, Stack, StackId, StackMoment, StackSample, StackWalks, Stretch, ThreadId, ThreadTimes, Wait,
    WaitReason, WalkEnd, WorkKind,
};
use gpuwhy_store::{StoreError, Writer};
use hashbrown::HashMap;

use crate::clock::{Clock, Reading};
use crate::governor::{Counted, RungNews, Usage};
use crate::live::{CallSeen, Live, Watch};
use crate::processes::{Introduction, Processes};
use crate::stacks::StackNumbers;
use crate::waits::{Naming, Waits};

/// What was drained from the kernel, in the order of time.
pub enum Item {
    Record(Record),
    /// The last counts of a thread or program stand before its end.
    Counts(Vec<Counted>),
    /// A thread ended.
    ThreadEnd(ThreadReport),
    Rung(RungNews),
    /// The frames of a stack that records name by its hash.
    Stack(StackHash, Stack),
    /// Launches of a process with this handle launch that kernel.
    Kernel {
        pid: u32,
        handle: u64,
        name: String,
    },
    Tick(Tick),
}

/// A thread's clocks, and what tracing took from it since the last report.
pub struct ThreadReport {
    pub snapshot: ThreadSnapshot,
    pub taken_ns: u64,
}

/// The end of a bucket of time.
pub struct Tick {
    pub threads: Vec<ThreadReport>,
    pub losses: Losses,
    pub probes: usize,
    /// What every process has asked of every block device so far.
    pub io: Vec<((Device, u32), IoSums)>,
    pub usage: Usage,
    /// The thread from which most was taken in this bucket, and the share of its time.
    pub worst: Option<(TaskId, f64)>,
    /// How walks over stacks have ended so far.
    pub walks: Vec<WalkCount>,
}

pub struct Pipeline {
    writer: Writer,
    clock: Clock,
    processes: Processes,
    waits: Waits,
    stacks: StackNumbers,
    /// How many walks have ended how, and how long they took.
    walks: HashMap<(StackMoment, WalkEnd, PythonEnd), (u64, u64)>,
    /// Of this bucket of time.
    samples: HashMap<(ThreadId, StackId), u64>,
    ops: Vec<OpId>,
    watch: Box<dyn Watch>,
    live: Live,
    started: Instant,
    bucket_ns: u64,
    clocks: HashMap<TaskId, ThreadSnapshot>,
    /// Whether a watched thread waited for a device in this bucket of time.
    waited_for_io: bool,
    kernel_losses: Losses,
    not_written: u64,
    last_commit: Instant,
}

/// Reasons of waits that block devices end.
const DEVICES: [usize; 2] = [WaitReason::Io as usize, WaitReason::Fault as usize];

/// A crash loses at most this much, plus what is on its way.
const COMMIT_EVERY: Duration = Duration::from_millis(400);

impl Pipeline {
    pub fn new(
        mut writer: Writer,
        clock: Clock,
        processes: Processes,
        watch: Box<dyn Watch>,
    ) -> Result<Self, StoreError> {
        let anchor = clock.first();
        writer.clock_anchor(anchor.monotonic_ns, anchor.offset_ns)?;
        let ops = rows()
            .map(|row| writer.op(row.api.name, row.layer(), row.class(), row.api.runtime_name))
            .collect::<Result<_, _>>()?;
        let now = Reading::now();
        writer.commit(now.unix_ns)?;
        Ok(Self {
            bucket_ns: clock.unix_ns(now.monotonic_ns),
            writer,
            clock,
            processes,
            waits: Waits::default(),
            stacks: StackNumbers::default(),
            walks: HashMap::new(),
            samples: HashMap::new(),
            ops,
            watch,
            live: Live::default(),
            started: Instant::now(),
            clocks: HashMap::new(),
            waited_for_io: false,
            kernel_losses: Losses::default(),
            not_written: 0,
            last_commit: Instant::now(),
        })
    }

    pub fn note(&mut self, text: &str) -> Result<(), StoreError> {
        self.tell(text);
        self.writer.warn(Reading::now().unix_ns, text)
    }

    /// The same, when it can no longer be written.
    pub fn tell(&mut self, text: &str) {
        self.watch.note(text);
    }

    /// A process that uses one of the libraries; it may be gone before its first record is read.
    pub fn meet(&mut self, pid: u32) -> Result<(), StoreError> {
        self.processes.meet(pid, Reading::now().unix_ns, &mut self.writer)
    }

    /// Calls that come from this file are made on behalf of a CUDA runtime.
    pub fn add_runtime(&mut self, path: PathBuf) {
        self.processes.add_runtime(path);
    }

    pub fn take(&mut self, items: Vec<Item>) -> Result<(), StoreError> {
        let mut in_hand = calls_in(&items);
        let result = self.try_take(items, &mut in_hand);
        if result.is_err() {
            self.not_written += in_hand;
            self.take_back();
        }
        result
    }

    /// Calls that were given to the writer and are not in the file, because a write failed.
    fn take_back(&mut self) {
        let taken_back = self.writer.take_not_written();
        self.live.stored -= taken_back;
        self.not_written += taken_back;
    }

    /// After a failed write: counts what can no longer be stored.
    pub fn give_up(&mut self, items: &[Item]) {
        self.not_written += calls_in(items);
        for item in items {
            match item {
                Item::Counts(counts) => {
                    for counted in counts {
                        self.live.add(counted, self.processes.process_name(counted.delta.task.pid));
                    }
                }
                Item::Tick(tick) => self.kernel_losses = tick.losses,
                Item::Record(_) | Item::ThreadEnd(_) | Item::Rung(_) | Item::Stack(..) | Item::Kernel { .. } => {}
            }
        }
    }

    /// `in_hand` counts the calls that the writer has not been given yet.
    fn try_take(&mut self, items: Vec<Item>, in_hand: &mut u64) -> Result<(), StoreError> {
        let mut calls = Vec::with_capacity(items.len());
        let mut held_up = HeldUp::default();
        let mut tick = None;
        for item in items {
            match item {
                Item::Record(Record::Call(raw)) => calls.push(self.call(&raw)?),
                Item::Record(record) => self.record(&record, &mut held_up)?,
                Item::Counts(counts) => self.counts(&counts)?,
                Item::ThreadEnd(report) => self.thread_end(&report)?,
                Item::Rung(news) => self.rung(&news)?,
                Item::Kernel { pid, handle, name } => {
                    let process = self.processes.id(pid, Reading::now().unix_ns, &mut self.writer)?;
                    self.writer.kernel(process, handle, &name)?;
                }
                Item::Stack(hash, stack) => self.stacks.write(hash, &stack, &mut self.writer)?,
                Item::Tick(ended) => tick = Some(ended),
            }
        }
        self.live.stored += calls.len() as u64;
        *in_hand = 0;
        self.writer.calls(&mut calls)?;
        self.writer.stretches(&held_up.stretches)?;
        self.writer.kernel_work(&held_up.work)?;
        self.writer.io_requests(&held_up.requests)?;
        if let Some(tick) = tick {
            self.tick(&tick)?;
        }
        self.commit_when_due()
    }

    fn record(&mut self, record: &Record, held_up: &mut HeldUp) -> Result<(), StoreError> {
        let Self { clock, processes, writer, ops, waits, stacks, .. } = self;
        let naming = &mut Naming { clock, processes, writer, ops, stacks };
        match record {
            Record::Stretch(raw) => {
                held_up.stretches.push(waits.stretch(raw, naming)?);
                if let Some(io) = &raw.io {
                    held_up.requests.push(waits.io(io, raw.task, naming)?);
                }
            }
            Record::Work(raw) => held_up.work.push(waits.work(raw, naming)?),
            Record::Thread(seen) => {
                let at_ns = self.clock.unix_ns(seen.at_ns);
                let introduction = Introduction { comm: &seen.comm, cgroup_id: seen.cgroup_id };
                self.processes.introduce(seen.task, introduction, at_ns, &mut self.writer)?;
            }
            Record::Life(life) => {
                self.life(life)?;
                match life.kind {
                    LifeKind::Exec => self.processes.image_gone(life.pid),
                    LifeKind::Exit => self.processes.process_gone(life.pid),
                    LifeKind::Fork | LifeKind::OomKill => return Ok(()),
                }
                self.waits.process_gone(life.pid);
            }
            Record::Call(_) | Record::File(_) | Record::ThreadExit(_) => {}
            Record::Sample(sample) => {
                let at_ns = self.clock.unix_ns(sample.at_ns);
                let thread = self.processes.thread(sample.task, at_ns, &mut self.writer)?;
                let stack = self.stacks.id(sample.stack, &mut self.writer)?;
                *self.samples.entry((thread, stack)).or_default() += 1;
            }
            // They have a thread of their own.
            Record::Stack(_) | Record::Code(_) => {}
        }
        Ok(())
    }

    fn thread_end(&mut self, report: &ThreadReport) -> Result<(), StoreError> {
        self.thread_times(std::slice::from_ref(report))?;
        self.clocks.remove(&report.snapshot.owner.task);
        self.processes.thread_gone(report.snapshot.owner.task);
        self.live.thread_gone(report.snapshot.owner.task);
        Ok(())
    }

    fn rung(&mut self, news: &RungNews) -> Result<(), StoreError> {
        let at_ns = self.clock.unix_ns(news.at_ns);
        let process = self.processes.id(news.pid, at_ns, &mut self.writer)?;
        let RungNews { row: op, rung, fraction, ref reason, pid, .. } = *news;
        let name = row(op.into()).map_or("?", |row| row.api.name);
        let who = self.processes.process_name(pid);
        self.watch.note(&format!("{name} of {who} ({pid}): {rung}; {reason}"));
        let (op, reason) = (self.ops[op as usize], reason.clone());
        self.writer.rung_change(&RungChange { at_ns, process, op, rung, fraction, reason })
    }

    fn call(&mut self, raw: &RawCall) -> Result<Call, StoreError> {
        let start_ns = self.clock.unix_ns(raw.end_ns - raw.duration_ns);
        let writer = &mut self.writer;
        let thread = self.processes.thread(raw.task, start_ns, writer)?;
        let mut other =
            |task: Option<TaskId>| task.map(|task| self.processes.thread(task, start_ns, writer)).transpose();
        let wait =
            Wait { reason: raw.wait_reason, woken_by: other(raw.woken_by)?, preempted_by: other(raw.preempted_by)? };
        let call = Call {
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
            caller: self.processes.module(raw.task.pid, raw.caller, &mut self.writer)?,
            bytes: raw.bytes,
            address: raw.address,
            ret_code: raw.ret,
            parent_start_ns: raw.parent_start_ns.map(|start| self.clock.unix_ns(start)),
            wait: (wait != Wait::default()).then_some(wait),
            stack_id: self.stacks.optional(raw.stack, &mut self.writer)?,
            own: raw.own.clone(),
        };
        if self.watch.wants_calls()
            && let Some(row) = row(raw.row.into())
        {
            self.watch.call(&CallSeen {
                call: &call,
                pid: raw.task.pid,
                tid: raw.task.tid,
                comm: self.processes.thread_name(raw.task),
                op: row.api.name,
                layer: row.layer().as_str(),
            });
        }
        Ok(call)
    }

    fn counts(&mut self, counts: &[Counted]) -> Result<(), StoreError> {
        let mut stats = Vec::with_capacity(counts.len());
        for counted in counts {
            let delta = &counted.delta;
            self.live.add(counted, self.processes.process_name(delta.task.pid));
            stats.push(CallStats {
                bucket_ns: self.bucket_ns,
                thread: self.processes.thread(delta.task, self.bucket_ns, &mut self.writer)?,
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
        self.writer.stats(&stats)
    }

    /// What happened to each thread since its last snapshot, or since its first call.
    fn thread_times(&mut self, reports: &[ThreadReport]) -> Result<(), StoreError> {
        let mut times = Vec::with_capacity(reports.len());
        for ThreadReport { snapshot: now, taken_ns } in reports {
            let last = self.clocks.insert(now.owner.task, now.clone()).unwrap_or_else(|| first_snapshot(now));
            let thread = self.processes.thread(now.owner.task, self.bucket_ns, &mut self.writer)?;
            self.processes.rename(now.owner.task, &now.comm, &mut self.writer)?;
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
            });
            if let Some(times) = times.last() {
                self.live.add_thread(now.owner.task, &now.comm, times);
            }
        }
        let for_a_device = |times: &ThreadTimes| DEVICES.iter().any(|&reason| times.blocked_ns[reason] > 0);
        self.waited_for_io |= times.iter().any(for_a_device);
        self.writer.thread_times(&times)
    }

    fn life(&mut self, life: &Life) -> Result<(), StoreError> {
        self.writer.life(&[ProcessLife {
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
        }])
    }

    fn tick(&mut self, tick: &Tick) -> Result<(), StoreError> {
        self.thread_times(&tick.threads)?;
        self.io_usage(&tick.io)?;
        self.stack_walks(&tick.walks)?;
        self.stack_samples()?;
        self.kernel_losses = tick.losses;
        let now = Reading::now();
        if let Some(anchor) = self.clock.check(now) {
            self.writer.clock_anchor(anchor.monotonic_ns, anchor.offset_ns)?;
            self.note("the wall clock was set during the trace; later times follow the new setting")?;
        }
        let Usage { wall_ns, cpu_ns, hooks_ns, call_program_ns } = tick.usage;
        let bucket_ns = self.bucket_ns;
        self.writer.agent_usage(&AgentUsage { bucket_ns, wall_ns, cpu_ns, hooks_ns, call_program_ns })?;
        self.bucket_ns = self.clock.unix_ns(now.monotonic_ns);
        self.writer.losses(&tick.losses)?;
        self.processes.tick();
        self.live.note_cost(&tick.usage, tick.worst);
        self.live.losses = self.losses();
        self.live.probes = tick.probes;
        self.live.elapsed = self.started.elapsed();
        self.watch.second(&self.live);
        self.live.start_second();
        Ok(())
    }

    /// How many walks have ended how since the last tick.
    fn stack_walks(&mut self, counts: &[WalkCount]) -> Result<(), StoreError> {
        let mut walks = Vec::new();
        for &WalkCount { moment, end, python_end, count, ns } in counts {
            let before = self.walks.insert((moment, end, python_end), (count, ns)).unwrap_or_default();
            let (count, ns) = (count - before.0, ns - before.1);
            if count > 0 {
                let bucket_ns = self.bucket_ns;
                walks.push(StackWalks { bucket_ns, moment, end, python_end, count, ns });
            }
        }
        self.writer.stack_walks(&walks)
    }

    fn stack_samples(&mut self) -> Result<(), StoreError> {
        let bucket_ns = self.bucket_ns;
        let sample = |((thread, stack), count)| StackSample { bucket_ns, thread, stack, count };
        let samples: Vec<StackSample> = self.samples.drain().map(sample).collect();
        self.writer.stack_samples(&samples)
    }

    /// Whether the kernel side has to tell of stacks again.
    pub fn has_forgotten_stacks(&mut self) -> bool {
        self.stacks.has_forgotten()
    }

    fn io_usage(&mut self, sums: &[((Device, u32), IoSums)]) -> Result<(), StoreError> {
        let is_wanted = std::mem::take(&mut self.waited_for_io);
        let Self { clock, processes, writer, ops, waits, stacks, .. } = self;
        let naming = &mut Naming { clock, processes, writer, ops, stacks };
        let usage = waits.io_usage(sums, is_wanted, self.bucket_ns, naming)?;
        self.writer.io_usage(&usage)
    }

    fn commit_when_due(&mut self) -> Result<(), StoreError> {
        if self.last_commit.elapsed() < COMMIT_EVERY {
            return Ok(());
        }
        self.last_commit = Instant::now();
        self.writer.commit(Reading::now().unix_ns)
    }

    fn losses(&self) -> Losses {
        let mut losses = self.kernel_losses;
        losses.add(LossReason::NotWritten, self.not_written);
        losses
    }

    /// Closes the session. Returns the totals.
    pub fn finish(mut self, reason: &str, agent_cpu_ns: u64) -> Result<Live, StoreError> {
        self.take_back();
        self.live.losses = self.losses();
        self.live.elapsed = self.started.elapsed();
        let end = SessionEnd {
            ended_ns: Reading::now().unix_ns,
            seen: self.live.seen,
            losses: self.live.losses,
            agent_cpu_ns,
            reason: reason.to_owned(),
        };
        self.writer.finish(&end)?;
        Ok(self.live)
    }
}

/// What held threads up, to be written together.
#[derive(Default)]
struct HeldUp {
    stretches: Vec<Stretch>,
    work: Vec<KernelWork>,
    requests: Vec<IoRequest>,
}

fn calls_in(items: &[Item]) -> u64 {
    items.iter().filter(|item| matches!(item, Item::Record(Record::Call(_)))).count() as u64
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
