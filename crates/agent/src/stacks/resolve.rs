//! From addresses to frames that people read.

use gpuwhy_capture::{RawPythonFrame, RawStack};
use gpuwhy_model::{Frame, FrameKind, Stack};
use gpuwhy_stacks::python::{MergedFrame, NativeFrame, NativeRole, PythonFrame, merge};
use gpuwhy_stacks::symbols::Symbolizer;

use super::files::{FileNumber, Files};
use super::process::{Place, Walked};

pub struct Resolver {
    pub symbols: Symbolizer,
}

impl Resolver {
    pub fn new(symbols: Symbolizer) -> Self {
        Self { symbols }
    }

    /// Everything that can be said of a stack. In a `hurry`, native functions stay without names.
    pub fn stack(&mut self, raw: &RawStack, process: Option<&mut Walked>, files: &Files, hurry: bool) -> Stack {
        let mut frames = self.kernel_frames(&raw.kernel);
        match process {
            Some(process) => frames.extend(self.user_frames(raw, process, files, hurry)),
            None => frames.extend(raw.native.iter().map(|&address| Frame { address, ..Frame::default() })),
        }
        Stack { frames, end: raw.end, python_end: raw.python_end }
    }

    /// The function that starts at an address, if it has a name.
    pub fn function(&mut self, file: FileNumber, address: u64, files: &Files) -> Option<String> {
        let frames = self.symbols.native(files.get(file).symbols?, address, false);
        frames.into_iter().next_back().map(|frame| frame.function).filter(|name| !name.is_empty())
    }

    /// Where in the kernel a thread waits. How the scheduler and we ourselves came to be called says nothing.
    fn kernel_frames(&mut self, addresses: &[u64]) -> Vec<Frame> {
        let frames: Vec<Frame> = addresses.iter().map(|&address| self.symbols.kernel(address)).collect();
        let is_scheduler = |frame: &Frame| SCHEDULER.contains(&frame.function.as_str());
        let first = frames.iter().rposition(is_scheduler).map_or(0, |last| last + 1);
        frames.into_iter().skip(first).collect()
    }

    fn user_frames(&mut self, raw: &RawStack, process: &mut Walked, files: &Files, hurry: bool) -> Vec<Frame> {
        let python: Vec<PythonFrame<Frame>> = raw
            .python
            .iter()
            .map(|frame| PythonFrame { frame: python_frame(raw.task.pid, frame, process), is_entry: frame.is_entry })
            .collect();
        let merged = merge(with_roles(&raw.native, process), python);
        let mut frames = Vec::with_capacity(merged.frames.len());
        for frame in merged.frames {
            match frame {
                MergedFrame::Python(frame) => frames.push(frame),
                MergedFrame::Native(address) => {
                    frames.extend(self.native_frames(raw.task.pid, address, process, files, hurry));
                }
            }
        }
        frames
    }

    fn native_frames(&mut self, pid: u32, address: u64, process: &Walked, files: &Files, hurry: bool) -> Vec<Frame> {
        match process.place(address.wrapping_sub(1)) {
            Place::File(number, before) => {
                let (file, address) = (files.get(number), before.wrapping_add(1));
                match file.symbols.filter(|_| !hurry) {
                    Some(symbols) => self.symbols.native(symbols, address, true),
                    None => vec![Frame {
                        module: Some(file.path.to_string_lossy().into_owned()),
                        address,
                        ..Frame::default()
                    }],
                }
            }
            Place::Jit => vec![self.symbols.jit(pid, address)],
            Place::Unknown => vec![Frame { address, ..Frame::default() }],
        }
    }
}

/// Whoever blocks calls one of these last.
const SCHEDULER: &[&str] = &["__schedule", "schedule", "schedule_timeout", "io_schedule", "io_schedule_timeout"];

fn with_roles(native: &[u64], process: &Walked) -> Vec<NativeFrame<u64>> {
    let calling: Vec<u64> = native.iter().map(|address| address.wrapping_sub(1)).collect();
    let roles = process.python.as_ref().map(|python| python.roles(&calling));
    let roles = roles.unwrap_or_else(|| vec![NativeRole::Other; native.len()]);
    native.iter().zip(roles).map(|(&frame, role)| NativeFrame { frame, role }).collect()
}

/// A frame whose code object is gone has no name.
fn python_frame(pid: u32, raw: &RawPythonFrame, process: &mut Walked) -> Frame {
    let address = u64::from(raw.instruction.cast_unsigned());
    let frame = Frame { kind: FrameKind::Python, address, ..Frame::default() };
    match process.code(pid, raw) {
        Some(code) => Frame {
            function: code.qualified_name.clone(),
            file: Some(code.file.clone()),
            line: code.line(raw.instruction),
            ..frame
        },
        None => frame,
    }
}
