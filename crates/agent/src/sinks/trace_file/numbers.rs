//! From the numbers of a session to those of the file, which may hold other sessions too.

use gpuwhy_model::{
    Annotation, Call, CallStats, CpuTaker, FabricEvent, IoRequest, IoUsage, KernelWork, ModuleId, OpId, ProcessId,
    RungChange, StackId, StackSample, Standstill, Stretch, TargetId, TcpEvent, ThreadId, ThreadTimes, Wait, WaitTarget,
};
use gpuwhy_store::{StoreError, Writer};
use hashbrown::HashMap;

#[derive(Default)]
pub struct Numbers {
    pub ops: HashMap<OpId, OpId>,
    pub modules: HashMap<ModuleId, ModuleId>,
    pub processes: HashMap<ProcessId, ProcessId>,
    pub threads: HashMap<ThreadId, ThreadId>,
    /// With the file's number of their process. The file gives a target a number when a row cites it.
    pub targets: HashMap<TargetId, WaitTarget>,
    pub stacks: HashMap<StackId, StackId>,
}

impl Numbers {
    // A number is 0, which no row has, where its name did not come. Names always come before rows that cite them.

    pub fn process(&self, id: ProcessId) -> ProcessId {
        self.processes.get(&id).copied().unwrap_or(ProcessId(0))
    }

    pub fn thread(&self, id: ThreadId) -> ThreadId {
        self.threads.get(&id).copied().unwrap_or(ThreadId(0))
    }

    fn op(&self, id: OpId) -> OpId {
        self.ops.get(&id).copied().unwrap_or(OpId(0))
    }

    pub fn stack(&mut self, id: StackId, writer: &mut Writer) -> Result<StackId, StoreError> {
        if let Some(&known) = self.stacks.get(&id) {
            return Ok(known);
        }
        let number = writer.reserve_stack()?;
        self.stacks.insert(id, number);
        Ok(number)
    }

    fn cited(&mut self, id: Option<StackId>, writer: &mut Writer) -> Result<Option<StackId>, StoreError> {
        id.map(|id| self.stack(id, writer)).transpose()
    }

    pub fn add_target(&mut self, id: TargetId, target: &WaitTarget) {
        let process = self.process(target.process);
        self.targets.insert(id, WaitTarget { process, ..target.clone() });
    }

    fn target(&self, id: Option<TargetId>, writer: &mut Writer) -> Result<Option<TargetId>, StoreError> {
        let target = id.and_then(|id| self.targets.get(&id));
        target.map(|target| writer.target(target)).transpose()
    }

    pub fn call(&mut self, call: &Call, writer: &mut Writer) -> Result<Call, StoreError> {
        let other = |thread: Option<ThreadId>| thread.map(|thread| self.thread(thread));
        let wait = |wait: Wait| Wait {
            reason: wait.reason,
            woken_by: other(wait.woken_by),
            preempted_by: other(wait.preempted_by),
        };
        Ok(Call {
            thread: self.thread(call.thread),
            op: self.op(call.op),
            caller: call.caller.and_then(|module| self.modules.get(&module).copied()),
            wait: call.wait.map(wait),
            stack_id: self.cited(call.stack_id, writer)?,
            ..call.clone()
        })
    }

    pub fn stretch(&mut self, stretch: &Stretch, writer: &mut Writer) -> Result<Stretch, StoreError> {
        let taker = |taker: CpuTaker| CpuTaker { thread: self.thread(taker.thread), ns: taker.ns };
        Ok(Stretch {
            thread: self.thread(stretch.thread),
            op: stretch.op.map(|op| self.op(op)),
            woken_by: stretch.woken_by.map(|thread| self.thread(thread)),
            taken_by: stretch.taken_by.map(|taken| taken.map(taker)),
            target: self.target(stretch.target, writer)?,
            stack: self.cited(stretch.stack, writer)?,
            waker_stack: self.cited(stretch.waker_stack, writer)?,
            ..stretch.clone()
        })
    }

    pub fn kernel_work(&self, work: &KernelWork, writer: &mut Writer) -> Result<KernelWork, StoreError> {
        Ok(KernelWork {
            thread: self.thread(work.thread),
            op: work.op.map(|op| self.op(op)),
            target: self.target(work.target, writer)?,
            ..work.clone()
        })
    }

    pub fn io_request(&self, request: &IoRequest) -> IoRequest {
        IoRequest {
            issuer: request.issuer.map(|thread| self.thread(thread)),
            waiter: self.thread(request.waiter),
            ..request.clone()
        }
    }

    pub fn call_stats(&self, stats: &CallStats) -> CallStats {
        CallStats { thread: self.thread(stats.thread), op: self.op(stats.op), ..stats.clone() }
    }

    pub fn thread_times(&self, times: &ThreadTimes) -> ThreadTimes {
        ThreadTimes { thread: self.thread(times.thread), ..times.clone() }
    }

    pub fn standstill(&mut self, one: &Standstill, writer: &mut Writer) -> Result<Standstill, StoreError> {
        Ok(Standstill {
            thread: self.thread(one.thread),
            op: one.op.map(|op| self.op(op)),
            stack: self.cited(one.stack, writer)?,
            ..one.clone()
        })
    }

    pub fn io_usage(&self, usage: &IoUsage) -> IoUsage {
        IoUsage { process: self.process(usage.process), ..usage.clone() }
    }

    pub fn tcp_event(&self, event: &TcpEvent) -> TcpEvent {
        TcpEvent { process: event.process.map(|process| self.process(process)), ..event.clone() }
    }

    pub fn fabric_event(&self, event: &FabricEvent) -> FabricEvent {
        FabricEvent { process: self.process(event.process), ..event.clone() }
    }

    pub fn annotation(&self, one: &Annotation) -> Annotation {
        Annotation { process: one.process.map(|process| self.process(process)), ..one.clone() }
    }

    pub fn stack_sample(&mut self, sample: &StackSample, writer: &mut Writer) -> Result<StackSample, StoreError> {
        Ok(StackSample { thread: self.thread(sample.thread), stack: self.stack(sample.stack, writer)?, ..*sample })
    }

    pub fn rung_change(&self, change: &RungChange) -> RungChange {
        RungChange { process: self.process(change.process), op: self.op(change.op), ..change.clone() }
    }
}
