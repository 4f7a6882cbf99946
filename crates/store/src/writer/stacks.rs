//! Stacks: numbered when they are taken, written when their frames are known by name.
//!
//! Frames are stored once, as long as the writer remembers them. When stacks and frames have become many, a commit
//! begins a new epoch: nothing of the old one is cited by new rows any more, so that retention deletes the stacks and
//! frames of an epoch together with the last event that cites them.

use gpuwhy_model::{Frame, Stack, StackId, WalkEnd};
use gpuwhy_window::site_position;
use hashbrown::HashMap;
use rusqlite::{Connection, params};

use super::Writer;
use super::names::{Name, next_id};
use super::retention::Cap;
use crate::StoreError;
use crate::cells::cut_to;

/// The most frames that are remembered. Their names take memory, too.
const MOST_FRAMES: usize = 1 << 15;

/// The most frames of one stack. The innermost are kept.
const MOST_DEPTH: usize = 1 << 10;

/// The longest name of a function, file or module. There are many of them.
const MOST_FRAME_TEXT_BYTES: usize = 1 << 10;

/// What rows take beside their text, about.
const FRAME_BYTES: u64 = 40;
const STACK_BYTES: u64 = 40;
const POSITION_BYTES: u64 = 16;

pub(super) struct Stacks {
    frames: HashMap<Frame, u32>,
    next_frame: u32,
    next_stack: u32,
    /// What was written in this epoch, about, and how much ends it.
    bytes: u64,
    most_bytes: u64,
    epoch: u32,
    ended: Vec<Epoch>,
}

/// Up to where ids belong to an epoch, and the latest start of an event that may cite one.
struct Epoch {
    last_stack: u32,
    last_frame: u32,
    last_start_ns: u64,
}

/// Frames of a stack by their ids, ready to be written.
pub(super) struct NamedStack {
    id: StackId,
    frames: Vec<u32>,
    end: &'static str,
    python_end: &'static str,
    site: Option<u32>,
}

impl Writer {
    /// The number of a new stack, for rows that are written before its frames are known. The caller knows when it meets
    /// the stack again, and keeps the number until [`stack_epoch`](Self::stack_epoch) changes.
    pub fn reserve_stack(&mut self) -> Result<StackId, StoreError> {
        self.make_room_for_names()?;
        let id = StackId(self.stacks.next_stack);
        self.name(Name::StackNumber { id })?;
        self.stacks.next_stack += 1;
        self.stacks.bytes += STACK_BYTES;
        Ok(id)
    }

    /// Changes only within a commit. Then all numbers so far are to be forgotten: what is met again needs a new one.
    pub fn stack_epoch(&self) -> u32 {
        self.stacks.epoch
    }

    /// Writes the frames of a numbered stack. The first ones stay. A stack for which a size cap has no room, and one that
    /// is no longer cited and was deleted, remains without.
    pub fn stack(&mut self, id: StackId, stack: &Stack) -> Result<(), StoreError> {
        if self.stacks.has_no_room() {
            return Ok(());
        }
        let kept = &stack.frames[..stack.frames.len().min(MOST_DEPTH)];
        let frames = kept.iter().map(|frame| self.frame(frame)).collect::<Result<Vec<u32>, _>>()?;
        let end = match kept.len() == stack.frames.len() {
            true => stack.end,
            false => WalkEnd::TooDeep,
        };
        let site = site_position(kept.iter()).map(|position| frames[position]);
        self.make_room_for_names()?;
        self.stacks.bytes += POSITION_BYTES * frames.len() as u64;
        let (end, python_end) = (end.as_str(), stack.python_end.as_str());
        self.name(Name::Stack(NamedStack { id, frames, end, python_end, site }))
    }

    fn frame(&mut self, frame: &Frame) -> Result<u32, StoreError> {
        if text_bytes(frame).any(|bytes| bytes > MOST_FRAME_TEXT_BYTES) {
            return self.frame(&cut_frame(frame));
        }
        if let Some(&id) = self.stacks.frames.get(frame) {
            return Ok(id);
        }
        self.make_room_for_names()?;
        let id = self.stacks.next_frame;
        self.name(Name::Frame { id, frame: frame.clone() })?;
        self.stacks.next_frame += 1;
        self.stacks.bytes += FRAME_BYTES + text_bytes(frame).sum::<usize>() as u64;
        self.stacks.frames.insert(frame.clone(), id);
        Ok(id)
    }
}

impl Stacks {
    /// No event that is in the file starts after `newest_ns`.
    pub fn load(connection: &Connection, cap: Option<&Cap>, newest_ns: u64) -> rusqlite::Result<Self> {
        let (next_frame, next_stack) = (next_id(connection, "frames")?, next_id(connection, "stacks")?);
        let earlier = Epoch { last_stack: next_stack - 1, last_frame: next_frame - 1, last_start_ns: newest_ns };
        Ok(Self {
            frames: HashMap::new(),
            next_frame,
            next_stack,
            bytes: 0,
            most_bytes: cap.map_or(u64::MAX, Cap::stack_bytes),
            epoch: 0,
            ended: vec![earlier],
        })
    }

    /// Begins a new epoch when the old one has become large. No event that was written so far starts after `newest_ns`.
    pub fn end_large_epoch(&mut self, newest_ns: u64) {
        if self.bytes < self.most_bytes && self.frames.len() < MOST_FRAMES {
            return;
        }
        let (last_stack, last_frame) = (self.next_stack - 1, self.next_frame - 1);
        self.ended.push(Epoch { last_stack, last_frame, last_start_ns: newest_ns });
        self.frames.clear();
        self.bytes = 0;
        self.epoch += 1;
    }

    /// Events up to `newest_ns` were written, and `oldest` is the first of the stacks they cite. Those that were under way
    /// when an epoch ended still cite stacks of it.
    pub fn cited(&mut self, oldest: Option<StackId>, newest_ns: u64) {
        let Some(oldest) = oldest else { return };
        for epoch in self.ended.iter_mut().rev().take_while(|epoch| epoch.last_stack >= oldest.0) {
            epoch.last_start_ns = epoch.last_start_ns.max(newest_ns);
        }
    }

    /// Deletes what no event that starts at or after `oldest_ns` cites.
    pub fn expire(&mut self, connection: &Connection, oldest_ns: u64) -> rusqlite::Result<()> {
        let expired = self.ended.iter().take_while(|epoch| epoch.last_start_ns < oldest_ns).count();
        let Some(epoch) = self.ended.drain(..expired).next_back() else { return Ok(()) };
        connection.execute("DELETE FROM stack_frames WHERE stack_id <= ?", [epoch.last_stack])?;
        connection.execute("DELETE FROM stacks WHERE id <= ?", [epoch.last_stack])?;
        connection.execute("DELETE FROM frames WHERE id <= ?", [epoch.last_frame]).map(drop)
    }

    /// An epoch ends with a commit; one that outgrows its part before that would not leave enough for the events.
    fn has_no_room(&self) -> bool {
        self.bytes / 2 >= self.most_bytes
    }
}

impl NamedStack {
    pub fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql =
            "UPDATE stacks SET depth = ?, end = ?, python_end = ?, site_frame_id = ? WHERE id = ? AND depth IS NULL";
        let depth = self.frames.len() as i64;
        let mut statement = connection.prepare_cached(sql)?;
        if statement.execute(params![depth, self.end, self.python_end, self.site, self.id.0])? == 0 {
            return Ok(());
        }
        let mut statement = connection.prepare_cached("INSERT INTO stack_frames VALUES (?, ?, ?)")?;
        let mut frames = self.frames.iter().enumerate();
        frames.try_for_each(|(position, frame)| statement.execute(params![self.id.0, position as i64, frame]).map(drop))
    }
}

fn text_bytes(frame: &Frame) -> impl Iterator<Item = usize> {
    let texts = [Some(&frame.function), frame.file.as_ref(), frame.module.as_ref()];
    texts.map(|text| text.map_or(0, String::len)).into_iter()
}

fn cut_frame(frame: &Frame) -> Frame {
    let cut = |text: &String| cut_to(MOST_FRAME_TEXT_BYTES, text).to_owned();
    let (file, module) = (frame.file.as_ref().map(cut), frame.module.as_ref().map(cut));
    Frame { function: cut(&frame.function), file, module, ..*frame }
}
