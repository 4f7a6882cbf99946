//! How right a tracer's stacks are, measured by what the programs wrote down themselves.

use super::{Addresses, CodeAddress, Testimony};
use anyhow::{Context, Result};
use gpuwhy_model::{Frame, FrameKind, PythonEnd, Stack, WalkEnd};
use std::collections::HashMap;
use std::path::PathBuf;

/// What became of the stacks of one program.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Calls that the program made.
    pub calls: usize,
    /// Calls for which the tracer has a stack.
    pub taken: usize,
    /// Stacks whose native walk came to its end.
    pub complete: usize,
    /// Stacks whose native frames equal the reference's.
    pub native_right: usize,
    /// Stacks of which each Python frame has the right function, file and executing line, and none is missing.
    pub python_right: usize,
    /// Why stacks are wrong, the first few.
    pub complaints: Vec<String>,
}

const MOST_COMPLAINTS: usize = 5;

impl Score {
    /// Compares the tracer's stacks, by sequence number, with what the program wrote down.
    pub fn of(testimony: &Testimony, seen: &HashMap<u64, Stack>) -> Result<Self> {
        let addresses = testimony.native.addresses().context("read the program's files")?;
        let mut score = Self { calls: testimony.native.stacks.len(), ..Self::default() };
        let mut sequences: Vec<_> = testimony.native.stacks.keys().collect();
        sequences.sort();
        for sequence in sequences {
            let Some(stack) = seen.get(sequence) else {
                score.complain(|| format!("{sequence}: no stack"));
                continue;
            };
            score.taken += 1;
            score.complete += usize::from(stack.end == WalkEnd::Complete);
            let expected = &testimony.native.stacks[sequence].ips;
            match native_difference(&addresses, expected, stack) {
                None => score.native_right += 1,
                Some(why) => score.complain(|| format!("{sequence} ({}): {why}", stack.end)),
            }
            if let Some(python) = &testimony.python {
                match python.stacks.get(sequence).map(|own| python_difference(&own.frames, stack)) {
                    Some(None) => score.python_right += 1,
                    other => score.complain(|| format!("{sequence} ({}): Python: {other:?}", stack.python_end)),
                }
            }
        }
        Ok(score)
    }

    fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(what());
        }
    }
}

/// What is wrong with the native frames. The evaluation loops of Python have given way to Python's frames: where those
/// stand, frames of the interpreter may be missing.
fn native_difference(addresses: &Addresses, expected: &[u64], stack: &Stack) -> Option<String> {
    let frames: Vec<&Frame> =
        stack.frames.iter().filter(|frame| !frame.is_inlined && frame.kind != FrameKind::Kernel).collect();
    let Some((witness, frames)) = frames.split_first() else { return Some("it is empty".to_owned()) };
    if !witness.module.as_deref().is_some_and(|module| module.ends_with("libwitness.so")) {
        return Some(format!("it begins in {:?}", witness.module));
    }
    let mut expected = expected.iter().map(|&ip| (ip, addresses.of(ip))).peekable();
    let mut is_after_python = false;
    for (position, frame) in frames.iter().enumerate() {
        if frame.kind == FrameKind::Python {
            is_after_python = true;
            continue;
        }
        let own = address_of(frame);
        if std::mem::take(&mut is_after_python) {
            // At least one evaluation loop was here.
            while expected.next_if(|expected| !is_same(expected, frame)).is_some() {}
        }
        match expected.next() {
            Some(expected) if is_same(&expected, frame) => {}
            other => return Some(format!("frame {position} is {own:?} and should be {other:?}")),
        }
    }
    if is_after_python {
        return Some("it ends in Python".to_owned());
    }
    expected.peek().map(|(_, at)| format!("{at:?} and what follows is missing"))
}

/// Code without a file is told by where it lies in memory.
fn is_same((ip, at): &(u64, Option<CodeAddress>), frame: &Frame) -> bool {
    match at {
        Some(at) => address_of(frame).as_ref() == Some(at),
        None => frame.module.is_none() && *ip == frame.address,
    }
}

fn address_of(frame: &Frame) -> Option<CodeAddress> {
    Some(CodeAddress { module: PathBuf::from(frame.module.as_deref()?), address: frame.address })
}

fn python_difference(own: &[super::PythonFrame], stack: &Stack) -> Option<String> {
    if stack.python_end != PythonEnd::Complete {
        return Some("the walk did not come to its end".to_owned());
    }
    let seen: Vec<super::PythonFrame> = stack
        .frames
        .iter()
        .filter(|frame| frame.kind == FrameKind::Python)
        .map(|frame| super::PythonFrame {
            function: frame.function.clone(),
            file: frame.file.clone().unwrap_or_default(),
            line: frame.line.unwrap_or(0),
        })
        .collect();
    if seen.len() != own.len() {
        return Some(format!("{} frames instead of {}: {seen:?} instead of {own:?}", seen.len(), own.len()));
    }
    let wrong = seen.iter().zip(own).position(|(seen, own)| seen != own)?;
    Some(format!("frame {wrong} is {:?} and should be {:?}", seen[wrong], own[wrong]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{PythonFrame, WitnessLog};

    fn log() -> WitnessLog {
        "stack 1 2 1010 1020 1030\nmaps\n1000-2000 r-xp 00000000 08:01 77 [code]\n".parse().unwrap()
    }

    fn native(address: u64) -> Frame {
        Frame { address, ..Frame::default() }
    }

    fn stack(frames: Vec<Frame>) -> HashMap<u64, Stack> {
        let witness = Frame { module: Some("/x/libwitness.so".into()), ..Frame::default() };
        let frames = std::iter::once(witness).chain(frames).collect();
        HashMap::from([(1, Stack { frames, end: WalkEnd::Complete, python_end: PythonEnd::Complete })])
    }

    fn right(frames: Vec<Frame>) -> usize {
        let testimony = Testimony { native: log(), python: None };
        Score::of(&testimony, &stack(frames)).unwrap().native_right
    }

    #[test]
    fn a_stack_is_right_only_when_every_frame_is() {
        assert_eq!(right(vec![native(0x1010), native(0x1020), native(0x1030)]), 1);
        assert_eq!(right(vec![native(0x1010), native(0x1020)]), 0, "one is missing");
        assert_eq!(right(vec![native(0x1010), native(0x1021), native(0x1030)]), 0, "one is another");
        assert_eq!(right(vec![native(0x1010), native(0x1020), native(0x1030), native(0x1040)]), 0, "one too many");
        assert_eq!(right(vec![]), 0);
    }

    #[test]
    fn python_frames_stand_for_the_loops_that_ran_them() {
        let python = Frame { kind: FrameKind::Python, ..Frame::default() };
        assert_eq!(right(vec![native(0x1010), python.clone(), python.clone(), native(0x1030)]), 1);
        assert_eq!(right(vec![python, native(0x1010), native(0x1030)]), 0, "a loop without frames");
    }

    #[test]
    fn a_python_stack_needs_every_line() {
        let own = PythonFrame { function: "f".into(), file: "a.py".into(), line: 3 };
        let frame = |line| Frame {
            kind: FrameKind::Python,
            function: "f".into(),
            file: Some("a.py".into()),
            line: Some(line),
            ..Frame::default()
        };
        let differs = |frames: Vec<Frame>| python_difference(std::slice::from_ref(&own), &stack(frames)[&1]).is_some();
        assert!(!differs(vec![frame(3)]));
        assert!(differs(vec![frame(4)]));
        assert!(differs(vec![]));
        assert!(differs(vec![frame(3), frame(3)]));
    }
}
