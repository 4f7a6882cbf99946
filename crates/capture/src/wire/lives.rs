//! Threads, processes and the files that they map, as the kernel side tells of them.

use gpuwhy_model::{LifeKind, WaitReason, WorkKind};

use super::{Owner, StackHash, TaskId, read, types};

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSeen {
    pub at_ns: u64,
    pub task: TaskId,
    /// Known only for threads that make calls.
    pub cgroup_id: Option<u64>,
    pub comm: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSnapshot {
    pub at_ns: u64,
    pub owner: Owner,
    pub comm: String,
    pub since_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: [u64; WaitReason::COUNT],
    pub in_calls_ns: u64,
    pub in_calls_runqueue_ns: u64,
    pub in_calls_blocked_ns: u64,
    /// Probes that were hit while nobody wanted to know.
    pub skipped_hits: u64,
    /// How often it left the CPU.
    pub switches: u64,
    pub throttled_ns: u64,
    pub work_ns: [u64; WorkKind::COUNT],
    /// Since the thread began, as the next two.
    pub major_faults: u64,
    pub minor_faults: u64,
    pub system_ns: u64,
    /// Stacks that were walked on its time.
    pub stacks: u64,
    pub stacks_ns: u64,
    pub standing: Option<Standing>,
}

/// What a thread that makes calls has been in since some moment: its outermost call, or a wait outside of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub since_ns: u64,
    pub call: Option<OpenCall>,
    /// What it blocks in, if it does.
    pub wait_reason: Option<WaitReason>,
    /// The last stack that was taken since then.
    pub stack: Option<StackHash>,
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    pub row: u16,
    /// How often links of its function had been removed when it began.
    pub removals: u16,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    pub at_ns: u64,
    pub kind: LifeKind,
    pub pid: u32,
    pub child_pid: u32,
    pub status: i32,
    /// Of an exec: the thread that called it, as the program it left.
    pub left: Owner,
    pub comm: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FileMapped {
    pub at_ns: u64,
    pub pid: u32,
    pub inode: u64,
    device: u32,
    generation: u32,
}

impl FileMapped {
    /// As `file_key` in life.bpf.c.
    pub(crate) fn key(&self) -> [u8; 16] {
        let numbers = u128::from(self.inode) | u128::from(self.device) << 64 | u128::from(self.generation) << 96;
        numbers.to_le_bytes()
    }
}

impl ThreadSnapshot {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(decode_snapshot(read(bytes)?))
    }

    pub const WIRE_SIZE: usize = size_of::<types::thread_snapshot>();
}

pub(super) fn decode_thread(raw: types::thread_record) -> ThreadSeen {
    ThreadSeen {
        at_ns: raw.head.at_ns,
        task: TaskId { pid: raw.head.pid, tid: raw.tid },
        cgroup_id: (raw.cgroup_id != 0).then_some(raw.cgroup_id),
        comm: comm(&raw.comm),
    }
}

pub(super) fn decode_snapshot(raw: types::thread_snapshot) -> ThreadSnapshot {
    ThreadSnapshot {
        at_ns: raw.head.at_ns,
        owner: Owner { task: TaskId { pid: raw.head.pid, tid: raw.tid }, image: raw.image },
        comm: comm(&raw.comm),
        since_ns: raw.clocks.since_ns,
        runqueue_ns: raw.clocks.runqueue_ns,
        blocked_ns: raw.clocks.blocked_ns,
        in_calls_ns: raw.clocks.in_calls_ns,
        in_calls_runqueue_ns: raw.clocks.in_calls_runqueue_ns,
        in_calls_blocked_ns: raw.clocks.in_calls_blocked_ns,
        skipped_hits: raw.clocks.skipped_hits,
        switches: raw.clocks.switches,
        throttled_ns: raw.clocks.throttled_ns,
        work_ns: raw.clocks.work_ns,
        major_faults: raw.major_faults,
        minor_faults: raw.minor_faults,
        system_ns: raw.system_ns,
        stacks: raw.clocks.stacks,
        stacks_ns: raw.clocks.stacks_ns,
        standing: decode_standing(&raw.standing),
    }
}

fn decode_standing(raw: &types::standing) -> Option<Standing> {
    let call = raw.api.checked_sub(1).map(|row| OpenCall { row, removals: raw.removals });
    (raw.since_ns != 0).then_some(Standing {
        since_ns: raw.since_ns,
        call,
        wait_reason: WaitReason::from_index(raw.wait_reason as usize),
        stack: StackHash::new(raw.stack),
    })
}

pub(super) fn decode_life(kind: LifeKind, raw: types::life_record) -> Life {
    Life {
        at_ns: raw.head.at_ns,
        kind,
        pid: raw.head.pid,
        child_pid: raw.child_pid,
        status: raw.status,
        left: Owner { task: TaskId { pid: raw.head.pid, tid: raw.old_tid }, image: raw.old_image },
        comm: comm(&raw.comm),
    }
}

pub(super) fn decode_file(raw: types::file_record) -> FileMapped {
    FileMapped {
        at_ns: raw.head.at_ns,
        pid: raw.head.pid,
        inode: raw.inode,
        device: raw.device,
        generation: raw.generation,
    }
}

fn comm(raw: &[i8]) -> String {
    let bytes: Vec<u8> = raw.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
