//! Whether frame pointers alone lead through the code of a file.
//!
//! They do when, wherever something is called, the frame pointer points to the caller's, with the return address above
//! it. Where nothing is called (the first and last instructions of functions, functions that call nothing) there is
//! nothing to walk through but at the innermost frame, for which rows are used. So what has to be shown is that no code
//! without such a frame can call anything: a single call from such code would hide a function in every stack through it.
//! A file for which this cannot be shown is walked by its rows, which is right as well, only slower.

use super::code;
use super::elf::Source;
use super::rule::{FramePointer, Kind, Rule};
use super::{Row, Segment};

/// Of the code that has rules, the share with a frame, in percent. Files built without frame pointers have a few functions
/// with one, and need no closer look; in files built with them, only tiny ones have less than half.
const LEAST_SHARE: u64 = 25;

/// A C compiler's own start-up code in each file, which has no unwind information, has two calls, with a frame.
const START_UP_CALLS: usize = 2;

pub fn are_trusted(rows: &[Row], code: &[Segment], source: &(impl Source + ?Sized)) -> bool {
    let has_signal_return = rows.iter().any(|row| row.rule.kind() == Kind::Signal);
    if code.is_empty() || has_signal_return || !has_share(rows) {
        return false;
    }
    let Some(code) = in_order(code) else { return false };
    let mut calls = Calls { source, window: Window::default(), start_up: 0 };
    code.iter().all(|section| calls.all_have_frames(rows, section))
}

fn has_share(rows: &[Row]) -> bool {
    let mut described = 0;
    let mut framed = 0;
    for (row, next) in rows.iter().zip(rows.iter().skip(1)) {
        let bytes = u64::from(next.address - row.address);
        described += if row.rule == Rule::NONE { 0 } else { bytes };
        framed += if has_frame(row.rule) { bytes } else { 0 };
    }
    framed > 0 && framed * 100 >= described * LEAST_SHARE
}

/// Sections that overlap are none of a compiler's, and would take long to look through.
fn in_order(code: &[Segment]) -> Option<Vec<Segment>> {
    let mut code = code.to_vec();
    code.sort_unstable_by_key(|section| section.address);
    let ends_before = |pair: &[Segment]| pair[0].address.saturating_add(pair[0].size) <= pair[1].address;
    code.windows(2).all(ends_before).then_some(code)
}

fn has_frame(rule: Rule) -> bool {
    match (rule.kind(), rule.cfa_offset(), rule.frame_pointer()) {
        (Kind::Bp, 16, FramePointer::AtCfa(-16)) => true,
        // gcc puts a copy of the return address into the realigned frame, for this very purpose.
        (Kind::DerefBp, _, FramePointer::AtBp(0)) => true,
        _ => false,
    }
}

/// Whether there is nothing to find in code with this rule: it has a frame, is the outermost, or only jumps.
fn needs_no_look(rule: Rule) -> bool {
    has_frame(rule) || matches!(rule.kind(), Kind::End | Kind::Plt)
}

struct Calls<'a, S: Source + ?Sized> {
    source: &'a S,
    window: Window,
    /// Calls so far in code that has no rules.
    start_up: usize,
}

impl<S: Source + ?Sized> Calls<'_, S> {
    fn all_have_frames(&mut self, rows: &[Row], section: &Segment) -> bool {
        let end = section.address.saturating_add(section.size);
        let first = rows.partition_point(|row| u64::from(row.address) <= section.address);
        let mut address = section.address;
        let mut rule = first.checked_sub(1).map_or(Rule::NONE, |row| rows[row].rule);
        for row in &rows[first..] {
            let next = u64::from(row.address).min(end);
            if !self.has_no_call(section, address, next, rule) {
                return false;
            }
            if next == end {
                return true;
            }
            (address, rule) = (next, row.rule);
        }
        self.has_no_call(section, address, end, rule)
    }

    fn has_no_call(&mut self, section: &Segment, from: u64, to: u64, rule: Rule) -> bool {
        if needs_no_look(rule) {
            return true;
        }
        let offset = section.file_offset.saturating_add(from - section.address);
        let Some(code) = self.window.bytes(self.source, offset, to - from) else { return false };
        let calls = code::calls(code);
        if rule == Rule::NONE {
            self.start_up += calls;
            return self.start_up <= START_UP_CALLS;
        }
        calls == 0
    }
}

/// The part of the file that was read last: pieces are small and follow one another.
#[derive(Default)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

/// No function without calls is as large.
const WINDOW_BYTES: u64 = 1 << 20;

impl Window {
    fn bytes(&mut self, source: &(impl Source + ?Sized), offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        let is_inside = self.offset <= offset && end <= self.offset + self.bytes.len() as u64;
        if !is_inside {
            self.move_to(source, offset, size)?;
        }
        let start = usize::try_from(offset - self.offset).ok()?;
        self.bytes.get(start..start + usize::try_from(size).ok()?)
    }

    fn move_to(&mut self, source: &(impl Source + ?Sized), offset: u64, size: u64) -> Option<()> {
        let available = source.size().checked_sub(offset)?.min(WINDOW_BYTES);
        if size > available {
            return None;
        }
        self.offset = offset;
        self.bytes.resize(usize::try_from(available).ok()?, 0);
        source.fill(offset, &mut self.bytes).then_some(())
    }
}
