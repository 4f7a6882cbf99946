//! Time off the CPU, kernel work and requests to block devices, as the kernel side tells of them.

use std::net::Ipv6Addr;

use gpuwhy_apis::row;
use gpuwhy_model::{TargetKind, WaitReason, WorkKind};

use super::tcp::address;
use super::{StackHash, TaskId, read, task, types};

/// Time off the CPU, see [`gpuwhy_model::Stretch`].
#[derive(Clone, Debug, PartialEq)]
pub struct RawStretch {
    pub task: TaskId,
    pub end_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub is_throttled: bool,
    pub reason: Option<WaitReason>,
    /// The row of the innermost call.
    pub row: Option<u16>,
    pub target: Option<Target>,
    pub woken_by: Option<TaskId>,
    pub taken_by: [Option<(TaskId, u64)>; 2],
    pub all_count: u64,
    pub all_blocked_ns: u64,
    pub all_runqueue_ns: u64,
    pub io: Option<FinishedIo>,
    /// Where it began to wait, and what whoever ended the wait was doing.
    pub stack: Option<StackHash>,
    pub waker_stack: Option<StackHash>,
}

/// What a thread waited on, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub kind: TargetKind,
    pub name: TargetName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetName {
    /// Of a futex, in the memory of whoever waits.
    Address(u64),
    Inode {
        device: Device,
        inode: u64,
    },
    Peer {
        address: Ipv6Addr,
        /// 0 for a socket that others connect to.
        port: u16,
        own_port: u16,
    },
    Device(Device),
}

/// A device's number, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(u32);

impl Device {
    pub fn major(self) -> u32 {
        self.0 >> 20
    }

    pub fn minor(self) -> u32 {
        self.0 & 0xfffff
    }
}

/// A request to a block device that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedIo {
    pub end_ns: u64,
    pub duration_ns: u64,
    pub device: Device,
    pub bytes: u64,
    pub is_write: bool,
    pub issuer: Option<TaskId>,
}

/// A span of kernel work, see [`gpuwhy_model::KernelWork`].
#[derive(Clone, Debug, PartialEq)]
pub struct RawWork {
    pub task: TaskId,
    pub end_ns: u64,
    pub duration_ns: u64,
    pub kind: WorkKind,
    pub row: Option<u16>,
    pub target: Option<Target>,
    pub code: Option<u32>,
    pub all_count: u64,
    pub all_ns: u64,
}

/// What a process has asked of a block device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoSums {
    pub requests: u64,
    pub bytes: u64,
    pub busy_ns: u64,
}

/// Decodes an entry of the map of sums per device and process.
pub(crate) fn io_entry(key: &[u8], value: &[u8]) -> Option<((Device, u32), IoSums)> {
    let key: types::io_key = read(key)?;
    let types::io_sums { requests, bytes, busy_ns } = read(value)?;
    Some(((Device(key.device), key.pid), IoSums { requests, bytes, busy_ns }))
}

/// Rows travel plus one, so that zero is none.
fn row_of(api: u16) -> Option<u16> {
    api.checked_sub(1).filter(|&index| row(index.into()).is_some())
}

pub(super) fn decode_stretch(raw: types::stretch_record) -> RawStretch {
    let io = raw.io;
    RawStretch {
        task: TaskId { pid: raw.head.pid, tid: raw.tid },
        end_ns: raw.head.at_ns,
        blocked_ns: raw.blocked_ns,
        runqueue_ns: raw.runqueue_ns,
        is_throttled: raw.throttled != 0,
        reason: WaitReason::from_index(raw.wait_reason.into()),
        row: row_of(raw.api),
        target: decode_target(raw.target),
        woken_by: task(raw.woken_by),
        taken_by: raw.taken_by.map(|taker| task(taker.task).map(|task| (task, taker.ns))),
        all_count: raw.all_count,
        all_blocked_ns: raw.all_blocked_ns,
        all_runqueue_ns: raw.all_runqueue_ns,
        io: (io.at_ns != 0).then_some(FinishedIo {
            end_ns: io.at_ns,
            duration_ns: io.duration_ns,
            device: Device(io.device),
            bytes: io.bytes.into(),
            is_write: io.is_write != 0,
            issuer: task(io.issuer),
        }),
        stack: StackHash::new(raw.stack),
        waker_stack: StackHash::new(raw.waker_stack),
    }
}

pub(super) fn decode_work(raw: types::work_record) -> Option<RawWork> {
    let kind = WorkKind::from_index(raw.kind.into())?;
    Some(RawWork {
        task: TaskId { pid: raw.head.pid, tid: raw.tid },
        end_ns: raw.head.at_ns,
        duration_ns: raw.duration_ns,
        kind,
        row: row_of(raw.api),
        target: decode_target(raw.target),
        code: (kind == WorkKind::Ioctl).then_some(raw.code),
        all_count: raw.all_count.into(),
        all_ns: raw.all_ns,
    })
}

fn decode_target(raw: types::wait_target) -> Option<Target> {
    let kind = TargetKind::from_index(raw.kind.into())?;
    let device = Device(raw.device);
    let name = match kind {
        TargetKind::Lock | TargetKind::Signal | TargetKind::Gil => TargetName::Address(raw.name[0]),
        TargetKind::Tcp | TargetKind::Socket => {
            TargetName::Peer { address: address(raw.name), port: raw.port, own_port: raw.device as u16 }
        }
        TargetKind::Device => TargetName::Device(device),
        _ => TargetName::Inode { device, inode: raw.name[0] },
    };
    Some(Target { kind, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Record, bytes_of};

    fn target(kind: TargetKind, name: [u64; 2], device: u32, port: u16) -> Option<Target> {
        decode_target(types::wait_target { name, device, port, kind: kind as u16 })
    }

    #[test]
    fn a_peer_is_named_by_its_address() {
        let address = u64::from(u32::from_ne_bytes([10, 0, 0, 2])) << 32 | 0xffff_0000;
        let TargetName::Peer { address, port, .. } = target(TargetKind::Tcp, [0, address], 0, 8080).unwrap().name
        else {
            panic!("no peer")
        };
        assert_eq!((address.to_ipv4_mapped().unwrap().to_string(), port), ("10.0.0.2".to_owned(), 8080));
    }

    #[test]
    fn a_stretch_keeps_what_the_kernel_saw_and_names_nobody_else() {
        let taker = types::cpu_taker { task: types::task_id { pid: 5, tid: 6 }, ns: 40 };
        let raw = types::stretch_record {
            head: types::record_head { kind: 9, pid: 7, at_ns: 900 },
            tid: 8,
            wait_reason: WaitReason::ALL.len() as u8,
            runqueue_ns: 50,
            taken_by: [taker, types::cpu_taker::default()],
            target: types::wait_target { kind: TargetKind::ALL.len() as u16, ..Default::default() },
            all_runqueue_ns: 60,
            all_count: 2,
            ..Default::default()
        };
        let Some(Record::Stretch(stretch)) = Record::decode(bytes_of(&raw)) else { panic!("not a stretch") };
        assert_eq!((stretch.task, stretch.end_ns), (TaskId { pid: 7, tid: 8 }, 900));
        assert_eq!((stretch.reason, stretch.row, stretch.target, stretch.woken_by), (None, None, None, None));
        assert_eq!(stretch.taken_by, [Some((TaskId { pid: 5, tid: 6 }, 40)), None]);
        assert_eq!((stretch.runqueue_ns, stretch.all_runqueue_ns, stretch.all_count), (50, 60, 2));
        assert!(stretch.io.is_none());
    }
}
