//! From what the kernel says about waits to what the trace says: things that are waited on get names.

use std::path::Path;

use gpuwhy_capture::{Device, FinishedIo, IoSums, RawStretch, RawWork, StackHash, Target, TargetName, TaskId};
use gpuwhy_model::{
    CpuTaker, Forgotten, IoRequest, IoUsage, KernelWork, Name, OpId, Row, StackId, StandsFor, Stretch, TargetId,
    TargetKind, ThreadId, WaitTarget,
};
use hashbrown::HashMap;

use crate::clock::Clock;
use crate::processes::Processes;
use crate::stacks::StackNumbers;

/// Remembers names and sums that the kernel counts up.
#[derive(Default)]
pub struct Waits {
    devices: HashMap<(DeviceKind, Device), String>,
    /// What a process's addresses and descriptors are.
    targets: HashMap<(u32, Target), TargetId>,
    /// Numbers given out so far, and how many of them were forgotten.
    targets_met: u32,
    targets_forgotten: u32,
    io: HashMap<(Device, u32), IoSums>,
}

/// Targets to remember; most are met again and again, and those that are not would add up.
const MOST_TARGETS: u32 = 4096;

/// What it takes to turn a record into a row.
pub struct Naming<'a> {
    pub clock: &'a Clock,
    pub processes: &'a mut Processes,
    pub ops: &'a [OpId],
    pub stacks: &'a mut StackNumbers,
    /// Where new names go.
    pub rows: &'a mut Vec<Row>,
}

impl Naming<'_> {
    fn thread(&mut self, task: TaskId, at_ns: u64) -> ThreadId {
        self.processes.thread(task, at_ns, self.rows)
    }

    fn other(&mut self, task: Option<TaskId>, at_ns: u64) -> Option<ThreadId> {
        task.map(|task| self.thread(task, at_ns))
    }

    fn taker(&mut self, taken: Option<(TaskId, u64)>, at_ns: u64) -> Option<CpuTaker> {
        taken.map(|(task, ns)| CpuTaker { thread: self.thread(task, at_ns), ns })
    }

    fn stack(&mut self, hash: Option<StackHash>) -> Option<StackId> {
        hash.map(|hash| self.stacks.id(hash))
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
    pub fn stretch(&mut self, raw: &RawStretch, naming: &mut Naming<'_>) -> Stretch {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        let [first, second] = raw.taken_by;
        let length_ns = raw.blocked_ns.saturating_add(raw.runqueue_ns);
        Stretch {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(length_ns)),
            thread: naming.thread(raw.task, end_ns),
            blocked_ns: raw.blocked_ns,
            runqueue_ns: raw.runqueue_ns,
            is_throttled: raw.is_throttled,
            reason: raw.reason,
            op: naming.op(raw.row),
            target: self.target(raw.target, raw.task.pid, end_ns, naming),
            woken_by: naming.other(raw.woken_by, end_ns),
            taken_by: [naming.taker(first, end_ns), naming.taker(second, end_ns)],
            all: StandsFor { count: raw.all_count, blocked_ns: raw.all_blocked_ns, runqueue_ns: raw.all_runqueue_ns },
            stack: naming.stack(raw.stack),
            waker_stack: naming.stack(raw.waker_stack),
        }
    }

    pub fn work(&mut self, raw: &RawWork, naming: &mut Naming<'_>) -> KernelWork {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        KernelWork {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(raw.duration_ns)),
            thread: naming.thread(raw.task, end_ns),
            kind: raw.kind,
            duration_ns: raw.duration_ns,
            op: naming.op(raw.row),
            target: self.target(raw.target, raw.task.pid, end_ns, naming),
            code: raw.code,
            all_count: raw.all_count,
            all_ns: raw.all_ns,
        }
    }

    /// The request that ended a wait of this thread.
    pub fn io(&mut self, raw: &FinishedIo, waiter: TaskId, naming: &mut Naming<'_>) -> IoRequest {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        IoRequest {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(raw.duration_ns)),
            duration_ns: raw.duration_ns,
            device: self.device(DeviceKind::Block, raw.device).to_owned(),
            bytes: raw.bytes,
            is_write: raw.is_write,
            issuer: naming.other(raw.issuer, end_ns),
            waiter: naming.thread(waiter, end_ns),
        }
    }

    /// What was asked of devices since the last time. `is_wanted` says whether anybody watched waited for one.
    pub fn io_usage(
        &mut self,
        sums: &[((Device, u32), IoSums)],
        is_wanted: bool,
        bucket_ns: u64,
        naming: &mut Naming<'_>,
    ) -> Vec<IoUsage> {
        let mut usage = Vec::new();
        for &((device, pid), now) in sums {
            let last = self.io.get(&(device, pid)).copied().unwrap_or_default();
            if !is_wanted || pid == 0 || now.requests <= last.requests {
                continue;
            }
            usage.push(IoUsage {
                bucket_ns,
                process: naming.processes.id(pid, bucket_ns, naming.rows),
                device: self.device(DeviceKind::Block, device).to_owned(),
                requests: now.requests - last.requests,
                bytes: now.bytes.saturating_sub(last.bytes),
                busy_ns: now.busy_ns.saturating_sub(last.busy_ns),
            });
        }
        self.io = sums.iter().copied().collect();
        usage
    }

    fn target(&mut self, target: Option<Target>, pid: u32, at_ns: u64, naming: &mut Naming<'_>) -> Option<TargetId> {
        let target = target?;
        if let Some(&known) = self.targets.get(&(pid, target)) {
            return Some(known);
        }
        let process = naming.processes.id(pid, at_ns, naming.rows);
        let kind = match (target.kind, target.name) {
            (TargetKind::Signal | TargetKind::Lock, TargetName::Address(address))
                if naming.processes.is_interpreter_lock(pid, address) =>
            {
                TargetKind::Gil
            }
            (kind, _) => kind,
        };
        self.targets_met += 1;
        let id = TargetId(self.targets_met);
        let named = WaitTarget { process, kind, name: self.name(target) };
        naming.rows.push(Row::Name(Name::Target { id, target: named }));
        self.targets.insert((pid, target), id);
        Some(id)
    }

    /// Keeps the memory for targets small. Between two batches, so that all rows that cite one were handed on.
    pub fn forget_many(&mut self) -> Option<Row> {
        if self.targets_met - self.targets_forgotten < MOST_TARGETS {
            return None;
        }
        self.targets_forgotten = self.targets_met;
        self.targets.clear();
        Some(Row::Name(Name::Forgotten(Forgotten::Targets)))
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
