//! From what the kernel says about waits to what the trace says: things that are waited on get names.

use std::path::Path;

use gpuwhy_capture::{Device, FinishedIo, IoSums, RawStretch, RawWork, StackHash, Target, TargetName, TaskId};
use gpuwhy_model::{
    CpuTaker, IoRequest, IoUsage, KernelWork, OpId, StackId, StandsFor, Stretch, TargetId, TargetKind, ThreadId,
    WaitTarget,
};
use gpuwhy_store::{StoreError, Writer};
use hashbrown::HashMap;

use crate::clock::Clock;
use crate::processes::Processes;
use crate::stacks::StackNumbers;

/// Remembers names and sums that the kernel counts up.
#[derive(Default)]
pub struct Waits {
    devices: HashMap<(DeviceKind, Device), String>,
    /// What a process's addresses and descriptors are.
    targets: HashMap<(u32, Target), WaitTarget>,
    io: HashMap<(Device, u32), IoSums>,
}

/// Targets to remember; most are met again and again, and those that are not would add up.
const MOST_TARGETS: usize = 4096;

/// What it takes to turn a record into a row.
pub struct Naming<'a> {
    pub clock: &'a Clock,
    pub processes: &'a mut Processes,
    pub writer: &'a mut Writer,
    pub ops: &'a [OpId],
    pub stacks: &'a mut StackNumbers,
}

impl Naming<'_> {
    fn thread(&mut self, task: TaskId, at_ns: u64) -> Result<ThreadId, StoreError> {
        self.processes.thread(task, at_ns, self.writer)
    }

    fn other(&mut self, task: Option<TaskId>, at_ns: u64) -> Result<Option<ThreadId>, StoreError> {
        task.map(|task| self.thread(task, at_ns)).transpose()
    }

    fn taker(&mut self, taken: Option<(TaskId, u64)>, at_ns: u64) -> Result<Option<CpuTaker>, StoreError> {
        taken.map(|(task, ns)| Ok(CpuTaker { thread: self.thread(task, at_ns)?, ns })).transpose()
    }

    fn stack(&mut self, hash: Option<StackHash>) -> Result<Option<StackId>, StoreError> {
        self.stacks.optional(hash, self.writer)
    }

    fn op(&self, row: Option<u16>) -> Option<OpId> {
        self.ops.get(usize::from(row?)).copied()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum DeviceKind {
    Block,
    Character,
}

impl Waits {
    pub fn stretch(&mut self, raw: &RawStretch, naming: &mut Naming<'_>) -> Result<Stretch, StoreError> {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        let [first, second] = raw.taken_by;
        let length_ns = raw.blocked_ns.saturating_add(raw.runqueue_ns);
        Ok(Stretch {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(length_ns)),
            thread: naming.thread(raw.task, end_ns)?,
            blocked_ns: raw.blocked_ns,
            runqueue_ns: raw.runqueue_ns,
            is_throttled: raw.is_throttled,
            reason: raw.reason,
            op: naming.op(raw.row),
            target: self.target(raw.target, raw.task.pid, end_ns, naming)?,
            woken_by: naming.other(raw.woken_by, end_ns)?,
            taken_by: [naming.taker(first, end_ns)?, naming.taker(second, end_ns)?],
            all: StandsFor { count: raw.all_count, blocked_ns: raw.all_blocked_ns, runqueue_ns: raw.all_runqueue_ns },
            stack: naming.stack(raw.stack)?,
            waker_stack: naming.stack(raw.waker_stack)?,
        })
    }

    pub fn work(&mut self, raw: &RawWork, naming: &mut Naming<'_>) -> Result<KernelWork, StoreError> {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        Ok(KernelWork {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(raw.duration_ns)),
            thread: naming.thread(raw.task, end_ns)?,
            kind: raw.kind,
            duration_ns: raw.duration_ns,
            op: naming.op(raw.row),
            target: self.target(raw.target, raw.task.pid, end_ns, naming)?,
            code: raw.code,
            all_count: raw.all_count,
            all_ns: raw.all_ns,
        })
    }

    /// The request that ended a wait of this thread.
    pub fn io(&mut self, raw: &FinishedIo, waiter: TaskId, naming: &mut Naming<'_>) -> Result<IoRequest, StoreError> {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        Ok(IoRequest {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(raw.duration_ns)),
            duration_ns: raw.duration_ns,
            device: self.device(DeviceKind::Block, raw.device).to_owned(),
            bytes: raw.bytes,
            is_write: raw.is_write,
            issuer: naming.other(raw.issuer, end_ns)?,
            waiter: naming.thread(waiter, end_ns)?,
        })
    }

    /// What was asked of devices since the last time. `is_wanted` says whether anybody watched waited for one.
    pub fn io_usage(
        &mut self,
        sums: &[((Device, u32), IoSums)],
        is_wanted: bool,
        bucket_ns: u64,
        naming: &mut Naming<'_>,
    ) -> Result<Vec<IoUsage>, StoreError> {
        let mut usage = Vec::new();
        for &((device, pid), now) in sums {
            let last = self.io.get(&(device, pid)).copied().unwrap_or_default();
            if !is_wanted || pid == 0 || now.requests <= last.requests {
                continue;
            }
            usage.push(IoUsage {
                bucket_ns,
                process: naming.processes.id(pid, bucket_ns, naming.writer)?,
                device: self.device(DeviceKind::Block, device).to_owned(),
                requests: now.requests - last.requests,
                bytes: now.bytes.saturating_sub(last.bytes),
                busy_ns: now.busy_ns.saturating_sub(last.busy_ns),
            });
        }
        self.io = sums.iter().copied().collect();
        Ok(usage)
    }

    fn target(
        &mut self,
        target: Option<Target>,
        pid: u32,
        at_ns: u64,
        naming: &mut Naming<'_>,
    ) -> Result<Option<TargetId>, StoreError> {
        let Some(target) = target else { return Ok(None) };
        if let Some(known) = self.targets.get(&(pid, target)) {
            return naming.writer.target(known).map(Some);
        }
        let process = naming.processes.id(pid, at_ns, naming.writer)?;
        let kind = match (target.kind, target.name) {
            (TargetKind::Signal | TargetKind::Lock, TargetName::Address(address))
                if naming.processes.is_interpreter_lock(pid, address) =>
            {
                TargetKind::Gil
            }
            (kind, _) => kind,
        };
        let found = WaitTarget { process, kind, name: self.name(target) };
        let id = naming.writer.target(&found)?;
        if self.targets.len() >= MOST_TARGETS {
            self.targets.clear();
        }
        self.targets.insert((pid, target), found);
        Ok(Some(id))
    }

    /// The process is gone; its addresses mean something else from now on.
    pub fn process_gone(&mut self, pid: u32) {
        self.targets.retain(|&(of, _), _| of != pid);
    }

    fn name(&mut self, target: Target) -> String {
        match target.name {
            TargetName::Address(address) => format!("{address:#x}"),
            TargetName::Inode { device, inode } if target.kind == TargetKind::File => {
                format!("inode {inode} on {}", self.device(DeviceKind::Block, device))
            }
            TargetName::Inode { inode, .. } => format!("{}:[{inode}]", target.kind),
            TargetName::Peer { address, port } => match address.to_ipv4_mapped() {
                Some(address) => format!("{address}:{port}"),
                None => format!("[{address}]:{port}"),
            },
            TargetName::Device(device) => self.device(DeviceKind::Character, device).to_owned(),
        }
    }

    fn device(&mut self, kind: DeviceKind, device: Device) -> &str {
        self.devices.entry((kind, device)).or_insert_with(|| device_name(Path::new("/sys/dev"), kind, device))
    }
}

/// The kernel's name for a device, or its number.
fn device_name(root: &Path, kind: DeviceKind, device: Device) -> String {
    let number = format!("{}:{}", device.major(), device.minor());
    let folder = match kind {
        DeviceKind::Block => "block",
        DeviceKind::Character => "char",
    };
    let uevent = std::fs::read_to_string(root.join(folder).join(&number).join("uevent")).unwrap_or_default();
    uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map_or(number, str::to_owned)
}
