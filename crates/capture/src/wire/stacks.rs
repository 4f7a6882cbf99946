//! Stacks, code objects of Python and samples, as the kernel side tells of them.

use gpuwhy_model::{PythonEnd, WalkEnd};

use super::{TaskId, read, types};

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

/// `None` when the frames it claims are not there.
pub(super) fn decode_stack(bytes: &[u8]) -> Option<RawStack> {
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

pub(super) fn decode_sample(raw: types::sample_record) -> Option<RawSample> {
    let task = TaskId { pid: raw.head.pid, tid: raw.tid };
    Some(RawSample { at_ns: raw.head.at_ns, task, stack: StackHash::new(raw.stack)? })
}

pub(super) fn decode_code(raw: &types::code_record) -> RawCode {
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
