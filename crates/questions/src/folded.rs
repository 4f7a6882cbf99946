//! Folded stacks, as flame graph tools read them: `outermost;...;innermost microseconds`, a line for each stack. Samples
//! have no time: there the number is how many there are.

use std::collections::BTreeMap;

use gpuwhy_model::{Frame, FrameKind, PythonEnd, WalkEnd};
use gpuwhy_store::{StackTime, StacksOf};
use gpuwhy_window::LoadedStack;

use crate::text::safe;

/// A line for each, in the order of their words.
pub fn folded(of: StacksOf, times: &[StackTime]) -> Vec<String> {
    // Stacks that differ in addresses only read the same.
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for time in times {
        let sum = sums.entry(line(time.stack.as_ref())).or_default();
        *sum = sum.saturating_add(if of == StacksOf::Running { time.count } else { time.ns });
    }
    let number = |sum: u64| if of == StacksOf::Running { sum } else { sum.saturating_add(500) / 1000 };
    let numbers = sums.into_iter().map(|(line, sum)| (line, number(sum)));
    numbers.filter(|(_, number)| *number > 0).map(|(line, number)| format!("{line} {number}")).collect()
}

fn line(stack: Option<&LoadedStack>) -> String {
    let Some(stack) = stack else { return "[stack without frames]".to_owned() };
    let frames = stack.frames.iter().rev().map(|frame| text(frame));
    missing(stack).into_iter().chain(frames).collect::<Vec<_>>().join(";")
}

/// Stands for the outer frames that are not known, so that they are not taken for the whole.
fn missing(stack: &LoadedStack) -> Option<String> {
    let is_complete = stack.end == WalkEnd::Complete || stack.python_end == PythonEnd::Complete;
    (!is_complete).then(|| format!("[incomplete: {}]", stack.end))
}

/// `function (file.py:12)` of Python, the function's name of native code, `module+0x1f40` where it has none.
fn text(frame: &Frame) -> String {
    let function = plain(&frame.function);
    match (frame.kind, frame.file.as_deref()) {
        _ if function.is_empty() => unnamed(frame),
        (FrameKind::Python, Some(file)) => {
            let line = frame.line.map_or_else(String::new, |line| format!(":{line}"));
            format!("{function} ({}{line})", plain(base_name(file)))
        }
        _ => function,
    }
}

fn unnamed(frame: &Frame) -> String {
    let module = frame.module.as_deref().map(|module| plain(base_name(module)));
    match module.filter(|module| !module.is_empty()) {
        Some(module) => format!("{module}+{:#x}", frame.address),
        None => format!("[{}]+{:#x}", frame.kind, frame.address),
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Names come from traced programs. A semicolon would begin a frame and a line break a stack; what else does not print
/// must not reach a terminal. Tools take the number after the last space, so single spaces within a name may stay.
fn plain(name: &str) -> String {
    let words = name.split_whitespace().collect::<Vec<_>>().join(" ");
    safe(&words.replace(';', ":")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn stack(frames: &[Frame], end: WalkEnd) -> LoadedStack {
        let frames = frames.iter().cloned().map(Arc::new).collect();
        LoadedStack { frames, end, ..LoadedStack::default() }
    }

    fn python(function: &str, file: &str, line: u32) -> Frame {
        let (function, file) = (function.to_owned(), Some(file.to_owned()));
        Frame { kind: FrameKind::Python, function, file, line: Some(line), ..Frame::default() }
    }

    fn text_of(stacks: &[(LoadedStack, u64)]) -> String {
        let times: Vec<_> =
            stacks.iter().map(|(stack, ns)| StackTime { stack: Some(stack.clone()), ns: *ns, count: 1 }).collect();
        folded(StacksOf::Calls, &times).join("\n")
    }

    #[test]
    fn the_outermost_frame_comes_first() {
        let launch = Frame { function: "at::launch<int, 2>".into(), ..Frame::default() };
        let unknown = Frame { module: Some("/opt/libx.so".into()), address: 0x1f40, ..Frame::default() };
        let jit = Frame { kind: FrameKind::Jit, address: 16, ..Frame::default() };
        let frames = [launch, unknown, jit, python("Model.forward", "/home/me/train.py", 142)];
        let text = text_of(&[(stack(&frames, WalkEnd::Complete), 1_500_000)]);
        assert_eq!(text, "Model.forward (train.py:142);[jit]+0x10;libx.so+0x1f40;at::launch<int, 2> 1500");
    }

    #[test]
    fn stacks_that_read_the_same_are_one_line_and_those_of_no_time_none() {
        let one = stack(&[python("f", "a.py", 1)], WalkEnd::Complete);
        let mut same = one.clone();
        Arc::make_mut(&mut same.frames[0]).address = 9;
        let short = stack(&[python("g", "a.py", 2)], WalkEnd::Complete);
        assert_eq!(text_of(&[(one, 700), (same, 800), (short, 400)]), "f (a.py:1) 2");
    }

    #[test]
    fn a_stack_that_lacks_outer_frames_says_so() {
        let cut = stack(&[python("f", "a.py", 1)], WalkEnd::TooDeep);
        assert_eq!(line(Some(&cut)), "[incomplete: too_deep];f (a.py:1)");
        let python_only =
            LoadedStack { python_end: PythonEnd::Complete, ..stack(&cut_frames(&cut), WalkEnd::NotWalked) };
        assert_eq!(line(Some(&python_only)), "f (a.py:1)");
        assert_eq!(line(None), "[stack without frames]");
    }

    fn cut_frames(stack: &LoadedStack) -> Vec<Frame> {
        stack.frames.iter().map(|frame| (**frame).clone()).collect()
    }

    #[test]
    fn hostile_names_stay_within_their_frame_and_line() {
        let hostile = python("a;b\n\u{1b}[31mc\t 7 \u{0} ", "/x/y;z .py\r\n", 3);
        let blank = Frame { function: " \n;".into(), module: Some("/a/;\n".into()), ..Frame::default() };
        let nothing = Frame { function: "\n ".into(), ..Frame::default() };
        let text = text_of(&[(stack(&[hostile, blank, nothing], WalkEnd::Complete), 2_000)]);
        assert_eq!(text, "[native]+0x0;:;a:b \\u{1b}[31mc 7 \\u{0} (y:z .py:3) 2");
        assert_eq!(text.lines().count(), 1);
        assert_eq!(text.matches(';').count(), 2);
    }
}
