//! Bytes from the kernel become records.
//!
//! The types are those of `wire.h`, as the skeleton generator read them from the compiled object.

use std::net::Ipv6Addr;

use gpuwhy_model::{Direction, LifeKind, PythonEnd, TargetKind, WaitReason, WalkEnd, WorkKind};

use crate::apis::{Operand, Way};
use crate::call_table::row;
use crate::families::calls::types;

/// Who a kernel record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub pid: u32,
    pub tid: u32,
}

/// A thread while it runs one program: an exec starts the next image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    pub task: TaskId,
    pub image: u32,
}

/// Anything the kernel reports. Times are the kernel's monotonic clock.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Call(RawCall),
    Thread(ThreadSeen),
    ThreadExit(ThreadSnapshot),
    Life(Life),
    File(FileMapped),
    Stretch(RawStretch),
    Work(RawWork),
    Stack(RawStack),
    Code(RawCode),
    Sample(RawSample),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawCall {
    pub task: TaskId,
    pub row: u16,
    pub depth: u8,
    pub end_ns: u64,
    pub duration_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub parent_start_ns: Option<u64>,
    /// The address the call returns to.
    pub caller: u64,
    pub stream: Option<u64>,
    pub handle: Option<u64>,
    pub bytes: Option<u64>,
    pub address: Option<u64>,
    pub direction: Option<Direction>,
    pub device: Option<u16>,
    pub ret: i32,
    pub wait_reason: Option<WaitReason>,
    pub woken_by: Option<TaskId>,
    pub preempted_by: Option<TaskId>,
    pub stack: Option<StackHash>,
}

/// What a record calls a stack by, see [`RawStack`].
pub type StackHash = std::num::NonZeroU64;

/// A stack that was not told of before. Frames are from the innermost outwards.
#[derive(Clone, Debug, PartialEq)]
pub struct RawStack {
    pub at_ns: u64,
    pub hash: StackHash,
    pub task: TaskId,
    /// As told to [`crate::StackTables::set_process`].
    pub identity: u32,
    pub kernel: Vec<u64>,
    pub python: Vec<RawPythonFrame>,
    /// Instruction pointers. All but the first are where calls return to, unless a signal came in between.
    pub native: Vec<u64>,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPythonFrame {
    pub code: u64,
    /// As the layout of the version says.
    pub instruction: i32,
    /// Of the code object, without its highest bit.
    pub fingerprint: u32,
    /// Whether it began an evaluation loop.
    pub is_entry: bool,
}

/// A watched thread was running when the clock ticked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    pub at_ns: u64,
    pub task: TaskId,
    pub stack: StackHash,
}

/// A code object of Python that was not told of before, as pieces of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RawCode {
    pub at_ns: u64,
    pub pid: u32,
    /// As in [`RawStack`].
    pub identity: u32,
    pub code: u64,
    pub fingerprint: u32,
    /// Addresses, and what lies there.
    pub memory: Vec<(u64, Vec<u8>)>,
}

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
    /// Since the thread began.
    pub major_faults: u64,
    /// Stacks that were walked on its time.
    pub stacks: u64,
    pub stacks_ns: u64,
}

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
        port: u16,
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

#[derive(Clone, Copy, Debug, PartialEq)]
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

impl Record {
    /// When the kernel wrote it.
    pub fn at_ns(&self) -> u64 {
        match self {
            Self::Call(call) => call.end_ns,
            Self::Thread(thread) => thread.at_ns,
            Self::ThreadExit(snapshot) => snapshot.at_ns,
            Self::Life(life) => life.at_ns,
            Self::File(file) => file.at_ns,
            Self::Stretch(stretch) => stretch.end_ns,
            Self::Work(work) => work.end_ns,
            Self::Stack(stack) => stack.at_ns,
            Self::Code(code) => code.at_ns,
            Self::Sample(sample) => sample.at_ns,
        }
    }

    /// The process it is about.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Call(call) => call.task.pid,
            Self::Thread(thread) => thread.task.pid,
            Self::ThreadExit(snapshot) => snapshot.owner.task.pid,
            Self::Life(life) => life.pid,
            Self::File(file) => file.pid,
            Self::Stretch(stretch) => stretch.task.pid,
            Self::Work(work) => work.task.pid,
            Self::Stack(stack) => stack.task.pid,
            Self::Code(code) => code.pid,
            Self::Sample(sample) => sample.task.pid,
        }
    }

    /// `None` for bytes that are no record of ours.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        use types::record_kind as kind;
        let head: types::record_head = read(bytes.get(..size_of::<types::record_head>())?)?;
        match kind(head.kind) {
            kind::RECORD_CALL => decode_call(read(bytes)?, types::call_details::default()).map(Self::Call),
            kind::RECORD_DETAILED_CALL => {
                let types::detailed_call { call, details } = read(bytes)?;
                decode_call(call, details).map(Self::Call)
            }
            kind::RECORD_THREAD => Some(Self::Thread(decode_thread(read(bytes)?))),
            kind::RECORD_THREAD_EXIT => Some(Self::ThreadExit(decode_snapshot(read(bytes)?))),
            kind::RECORD_FORK => Some(Self::Life(decode_life(LifeKind::Fork, read(bytes)?))),
            kind::RECORD_EXEC => Some(Self::Life(decode_life(LifeKind::Exec, read(bytes)?))),
            kind::RECORD_EXIT => Some(Self::Life(decode_life(LifeKind::Exit, read(bytes)?))),
            kind::RECORD_OOM_KILL => Some(Self::Life(decode_life(LifeKind::OomKill, read(bytes)?))),
            kind::RECORD_STRETCH => Some(Self::Stretch(decode_stretch(read(bytes)?))),
            kind::RECORD_WORK => decode_work(read(bytes)?).map(Self::Work),
            kind::RECORD_SAMPLE => decode_sample(read(bytes)?).map(Self::Sample),
            kind::RECORD_CODE => Some(Self::Code(decode_code(&read(bytes)?))),
            kind::RECORD_STACK => decode_stack(bytes).map(Self::Stack),
            kind::RECORD_FILE => Some(Self::File(decode_file(read(bytes)?))),
            _ => None,
        }
    }
}

impl ThreadSnapshot {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(decode_snapshot(read(bytes)?))
    }

    pub const WIRE_SIZE: usize = size_of::<types::thread_snapshot>();
}

/// Types of `wire.h` that consist of integers only, so that any bytes of the right length are a value.
///
/// # Safety
/// Implement it for such types only.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ident)+) => {$(
        // SAFETY: the struct has integer fields only, and wire.h is compiled with -Wpadded as an error.
        unsafe impl Plain for types::$name {}
    )+};
}
plain! {
    record_head call_record detailed_call thread_record thread_snapshot life_record file_record stretch_record work_record
    io_key io_sums api_spec code_mapping walked_process python_layout stack_settings walk_counts code_record sample_record
}

/// The bytes of a value, as a map takes them.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: plain types have no padding, so all of their bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() != size_of::<T>() {
        return None;
    }
    // SAFETY: the length was checked, the read is unaligned, and any bytes are a valid `Plain`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn decode_call(raw: types::call_record, details: types::call_details) -> Option<RawCall> {
    let row = row(raw.api as usize)?;
    let reads = &row.api.reads;
    let has = |operand: Operand, value: u64| (operand != Operand::None).then_some(value);
    Some(RawCall {
        task: TaskId { pid: raw.head.pid, tid: raw.tid },
        row: raw.api,
        depth: raw.depth,
        end_ns: raw.head.at_ns,
        duration_ns: raw.duration_ns,
        runqueue_ns: details.runqueue_ns,
        blocked_ns: details.blocked_ns,
        parent_start_ns: (raw.parent_start_ns != 0).then_some(raw.parent_start_ns),
        caller: raw.caller,
        stream: has(reads.stream, raw.stream),
        handle: has(reads.handle, raw.handle),
        bytes: (!reads.bytes.is_empty()).then_some(details.bytes),
        address: has(reads.address, details.address),
        direction: match reads.direction {
            Way::None => None,
            _ => Direction::from_index(raw.direction as usize),
        },
        device: u16::try_from(raw.device).ok(),
        ret: raw.ret,
        wait_reason: WaitReason::from_index(raw.wait_reason as usize),
        woken_by: task(details.woken_by),
        preempted_by: task(details.preempted_by),
        stack: StackHash::new(raw.stack),
    })
}

fn task(id: types::task_id) -> Option<TaskId> {
    (id.tid != 0).then_some(TaskId { pid: id.pid, tid: id.tid })
}

/// Rows travel plus one, so that zero is none.
fn row_of(api: u16) -> Option<u16> {
    api.checked_sub(1).filter(|&index| row(index.into()).is_some())
}

fn decode_stretch(raw: types::stretch_record) -> RawStretch {
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

/// `None` when the frames it claims are not there.
fn decode_stack(bytes: &[u8]) -> Option<RawStack> {
    const HEAD: usize = std::mem::offset_of!(types::stack_record, words);
    let (head, words) = bytes.split_at_checked(HEAD)?;
    let field = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]) as usize;
    let record_head: types::record_head = read(head.get(..size_of::<types::record_head>())?)?;
    let kernel = field(std::mem::offset_of!(types::stack_record, kernel_frames));
    let python = field(std::mem::offset_of!(types::stack_record, python_frames));
    let native = field(std::mem::offset_of!(types::stack_record, native_frames));
    let number = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let hash = head.get(std::mem::offset_of!(types::stack_record, hash)..)?.get(..8)?;
    let words: Vec<u64> = words.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    if words.len() != kernel + 2 * python + native {
        return None;
    }
    let (kernel, rest) = words.split_at(kernel);
    let (python, native) = rest.split_at(2 * python);
    Some(RawStack {
        at_ns: record_head.at_ns,
        hash: StackHash::new(u64::from_ne_bytes(hash.try_into().ok()?))?,
        task: TaskId { pid: record_head.pid, tid: number(std::mem::offset_of!(types::stack_record, tid))? },
        identity: number(std::mem::offset_of!(types::stack_record, identity))?,
        kernel: kernel.to_vec(),
        python: decode_python(python),
        native: native.to_vec(),
        end: WalkEnd::from_index(head[std::mem::offset_of!(types::stack_record, end)].into())?,
        python_end: PythonEnd::from_index(head[std::mem::offset_of!(types::stack_record, python_end)].into())?,
    })
}

fn decode_sample(raw: types::sample_record) -> Option<RawSample> {
    let task = TaskId { pid: raw.head.pid, tid: raw.tid };
    Some(RawSample { at_ns: raw.head.at_ns, task, stack: StackHash::new(raw.stack)? })
}

fn decode_code(raw: &types::code_record) -> RawCode {
    let parts: [&[u8]; 4] = [&raw.code_head, &raw.filename, &raw.name, &raw.linetable];
    let memory = parts.into_iter().zip(raw.addresses).zip(raw.bytes);
    let memory = memory.filter_map(|((part, address), bytes)| Some((address, part.get(..bytes.into())?.to_vec())));
    RawCode {
        at_ns: raw.head.at_ns,
        pid: raw.head.pid,
        identity: raw.identity,
        code: raw.code,
        fingerprint: raw.fingerprint,
        memory: memory.filter(|(_, bytes)| !bytes.is_empty()).collect(),
    }
}

/// A frame without a code object says that the one before it began an evaluation loop.
fn decode_python(words: &[u64]) -> Vec<RawPythonFrame> {
    let mut frames: Vec<RawPythonFrame> = Vec::new();
    for &[code, rest] in words.as_chunks::<2>().0 {
        if code == 0 {
            if let Some(last) = frames.last_mut() {
                last.is_entry = true;
            }
            continue;
        }
        frames.push(RawPythonFrame {
            code,
            instruction: (rest as u32).cast_signed(),
            fingerprint: (rest >> 32) as u32 & 0x7fff_ffff,
            is_entry: rest >> 63 != 0,
        });
    }
    frames
}

fn decode_work(raw: types::work_record) -> Option<RawWork> {
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
            // The bytes stand in memory as they do on the wire.
            let [first, second] = raw.name.map(|half| u128::from(half.swap_bytes()));
            TargetName::Peer { address: Ipv6Addr::from(first << 64 | second), port: raw.port }
        }
        TargetKind::Device => TargetName::Device(device),
        _ => TargetName::Inode { device, inode: raw.name[0] },
    };
    Some(Target { kind, name })
}

fn decode_thread(raw: types::thread_record) -> ThreadSeen {
    ThreadSeen {
        at_ns: raw.head.at_ns,
        task: TaskId { pid: raw.head.pid, tid: raw.tid },
        cgroup_id: (raw.cgroup_id != 0).then_some(raw.cgroup_id),
        comm: comm(&raw.comm),
    }
}

fn decode_snapshot(raw: types::thread_snapshot) -> ThreadSnapshot {
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
        stacks: raw.clocks.stacks,
        stacks_ns: raw.clocks.stacks_ns,
    }
}

fn decode_life(kind: LifeKind, raw: types::life_record) -> Life {
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

fn decode_file(raw: types::file_record) -> FileMapped {
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

#[cfg(test)]
mod tests {
    use gpuwhy_model::{Histogram, LossReason};
    use proptest::prelude::*;

    use super::*;
    use crate::call_table::rows;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Record::decode(&bytes);
        }

        #[test]
        fn a_record_with_a_known_head_and_arbitrary_content_decodes_or_is_refused(
            kind in 0u32..16,
            rest in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend(rest);
            let _ = Record::decode(&bytes);
        }
    }

    #[test]
    fn a_call_record_keeps_every_field() {
        let row_index = rows().position(|row| row.api.name == "cuLaunchKernel").unwrap();
        let call = types::call_record {
            head: types::record_head { kind: 8, pid: 7, at_ns: 900 },
            tid: 8,
            api: row_index as u16,
            duration_ns: 100,
            parent_start_ns: 750,
            stream: 0x55,
            ret: -3,
            device: 1,
            wait_reason: 1,
            ..Default::default()
        };
        let details = types::call_details {
            runqueue_ns: 20,
            blocked_ns: 30,
            woken_by: types::task_id { pid: 9, tid: 10 },
            ..Default::default()
        };
        let raw = types::detailed_call { call, details };
        let Some(Record::Call(call)) = Record::decode(bytes_of(&raw)) else { panic!("not a call") };
        assert_eq!(call.task, TaskId { pid: 7, tid: 8 });
        assert_eq!((call.end_ns, call.duration_ns, call.runqueue_ns, call.blocked_ns), (900, 100, 20, 30));
        assert_eq!((call.parent_start_ns, call.stream, call.ret, call.device), (Some(750), Some(0x55), -3, Some(1)));
        assert_eq!(call.wait_reason, Some(WaitReason::Io));
        assert_eq!((call.woken_by, call.preempted_by), (Some(TaskId { pid: 9, tid: 10 }), None));
        assert_eq!((call.bytes, call.address, call.direction), (None, None, None));
    }

    fn target(kind: TargetKind, name: [u64; 2], device: u32, port: u16) -> Option<Target> {
        decode_target(types::wait_target { name, device, port, kind: kind as u16 })
    }

    #[test]
    fn a_peer_is_named_by_its_address() {
        let address = u64::from(u32::from_ne_bytes([10, 0, 0, 2])) << 32 | 0xffff_0000;
        let TargetName::Peer { address, port } = target(TargetKind::Tcp, [0, address], 0, 8080).unwrap().name else {
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

    #[test]
    fn words_shared_with_the_kernel_have_the_same_numbers() {
        assert_eq!(types::wait_reason::WAIT_REASONS.0 as usize, WaitReason::COUNT);
        assert_eq!(types::wait_reason::WAIT_IOCTL.0, WaitReason::Ioctl as u32);
        assert_eq!(types::loss_reason::LOSS_LIFE_RING_FULL.0, LossReason::LifeRingFull as u32);
        assert_eq!(types::loss_reason::LOSS_RING_FULL.0, LossReason::RingFull as u32);
        assert_eq!(types::loss_reason::LOSS_UNMATCHED.0, LossReason::Unmatched as u32);
        assert_eq!(types::loss_reason::LOSS_WAIT_RING_FULL.0, LossReason::WaitRingFull as u32);
        assert_eq!(types::loss_reason::LOSS_STACK_RING_FULL.0, LossReason::StackRingFull as u32);
        assert_eq!(types::walk_end::WALK_ENDS.0 as usize, WalkEnd::ALL.len());
        assert_eq!(types::walk_end::WALK_NO_PROCESS.0, WalkEnd::NoProcess as u32);
        assert_eq!(types::python_end::PYTHON_ENDS.0 as usize, PythonEnd::ALL.len());
        assert_eq!(types::python_end::PYTHON_BROKEN.0, PythonEnd::Broken as u32);
        assert_eq!(types::target_kind::TARGET_KINDS.0 as usize, TargetKind::ALL.len());
        assert_eq!(types::target_kind::TARGET_DEVICE.0, TargetKind::Device as u32);
        assert_eq!(types::work_kind::WORK_KINDS.0 as usize, WorkKind::COUNT);
        assert_eq!(types::limits::HISTOGRAM.0 as usize, Histogram::BUCKETS);
    }
}
