//! Bytes from the kernel become records: the list of their kinds, and how any of them is read.
//!
//! The types are those of `wire.h`, as the skeleton generator read them from the compiled object.

mod calls;
mod lives;
#[cfg(test)]
mod numbers;
mod stacks;
mod tcp;
mod waits;

use gpuwhy_model::LifeKind;

use crate::skeleton::types;
pub use calls::RawCall;
use calls::decode_call;
pub use lives::{FileMapped, Life, OpenCall, Standing, ThreadSeen, ThreadSnapshot};
use lives::{decode_file, decode_life, decode_snapshot, decode_thread};
pub use stacks::{RawCode, RawPythonFrame, RawSample, RawStack, StackHash};
use stacks::{decode_code, decode_sample, decode_stack};
pub use tcp::Retransmit;
use tcp::decode_tcp;
pub(crate) use waits::io_entry;
pub use waits::{Device, FinishedIo, IoSums, RawStretch, RawWork, Target, TargetName};
use waits::{decode_stretch, decode_work};

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
    Retransmit(Retransmit),
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
            Self::Retransmit(retransmit) => retransmit.at_ns,
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
            // Only its socket is known.
            Self::Retransmit(_) => 0,
        }
    }

    /// `None` for bytes that are no record of ours.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        use types::record_kind as kind;
        let head: types::record_head = read(bytes.get(..size_of::<types::record_head>())?)?;
        match kind(head.kind) {
            kind::RECORD_CALL => decode_call(read(bytes)?, types::call_details::default(), None).map(Self::Call),
            kind::RECORD_DETAILED_CALL => {
                let types::detailed_call { call, details } = read(bytes)?;
                decode_call(call, details, None).map(Self::Call)
            }
            kind::RECORD_CALL_WITH_OWN => {
                let types::call_with_own { call, details, own } = read(bytes)?;
                decode_call(call, details, Some(&own)).map(Self::Call)
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
            kind::RECORD_TCP => Some(Self::Retransmit(decode_tcp(read(bytes)?))),
            kind::RECORD_FILE => Some(Self::File(decode_file(read(bytes)?))),
            _ => None,
        }
    }
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
    record_head call_record detailed_call call_with_own own_operands thread_record thread_snapshot life_record file_record tcp_record stretch_record work_record
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

fn task(id: types::task_id) -> Option<TaskId> {
    (id.tid != 0).then_some(TaskId { pid: id.pid, tid: id.tid })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
