mod lanes;
mod merge;

use std::collections::{BTreeMap, HashMap};

use clap::Args;
use gpuwhy_model::{OpId, ThreadId};
use gpuwhy_store::{QueryError, WaitSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Part};
use lanes::Chosen;
use merge::{Calls, Pixels, Waits};

/// A slice of time to draw: a lane for each thread with its calls and waits, and who ended whose wait. What is narrower
/// than a pixel is merged, so that an hour is as quick as a second. Ask again with `from` and `to` to look closer.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Timeline {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    /// How many pixels the drawing is wide [default: 1200].
    #[arg(long, value_parser = clap::value_parser!(u32).range(100..=4000))]
    #[schemars(range(min = 100, max = 4000))]
    #[serde(default)]
    pub width: Option<u32>,
    /// The threads to draw, by their tids; without it, those that feed the GPU, then those that end their waits.
    #[arg(long, value_name = "TID,...", value_delimiter = ',')]
    #[schemars(length(max = 100))]
    #[serde(default)]
    pub lanes: Vec<u32>,
    /// The most lanes [default: 20].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    #[schemars(range(min = 1, max = 100))]
    #[serde(default)]
    pub most_lanes: Option<u32>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TimelineSlice {
    #[serde(flatten)]
    pub basis: Basis,
    /// Where offsets count from, as decimal digits: it does not fit into every program's numbers.
    pub from_ns_text: String,
    /// How much time a pixel is.
    pub pixel_ns: u64,
    pub lanes: Vec<TimelineLane>,
    /// Threads with calls or waits that got no lane.
    pub lanes_left_out: u64,
    /// Who ended whose wait and when: `[from_lane, to_lane, offset_ns]`, of waits that are some pixels wide.
    pub wakes: Vec<(usize, usize, i64)>,
    /// Functions that calls name by index.
    pub ops: Vec<String>,
    /// What functions are for.
    pub classes: Vec<String>,
    /// Why threads were off the CPU.
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TimelineLane {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub process_comm: String,
    /// Whether it launches work on a GPU.
    pub is_dispatcher: bool,
    /// Kept calls in the slice.
    pub calls_count: u64,
    /// Time off the CPU in the slice.
    pub off_cpu_ns: u64,
    /// `[offset_ns, duration_ns, class_index, op_index, id_offset, count]`, the earliest first. Where `count` is above 1,
    /// several calls of about one pixel are merged and the longest one's function and record are named. The record is
    /// `cuda:` and the sum of `from_ns_text` and `id_offset`. Offsets are negative where a call began earlier.
    pub calls: Vec<CallItem>,
    /// `[offset_ns, blocked_ns, runqueue_ns, reason_index, waker_lane, id_offset, count]` in the same way: the thread is
    /// blocked first, then waits for a CPU. `waker_lane` is -1 where nobody is known or has no lane. The record is
    /// `sched:` and the sum.
    pub waits: Vec<WaitItem>,
}

pub type CallItem = (i64, u64, usize, usize, i64, u64);
pub type WaitItem = (i64, u64, u64, usize, i64, i64, u64);

const WIDTHS: std::ops::RangeInclusive<u32> = 100..=4000;
const DEFAULT_WIDTH: u32 = 1200;
const MOST_LANES: std::ops::RangeInclusive<u32> = 1..=100;
const DEFAULT_LANES: u32 = 20;

/// A wait this wide has room for an arrow.
const ARROW_PIXELS: u64 = 3;
const MOST_ARROWS: usize = 3000;

impl Ask for Timeline {
    const NAME: &'static str = "timeline";

    type Answer = TimelineSlice;

    fn ask(&self, asked: &Asked<'_>) -> Result<TimelineSlice, AskError> {
        let width = within(self.width.unwrap_or(DEFAULT_WIDTH), WIDTHS, "width")?;
        let most = within(self.most_lanes.unwrap_or(DEFAULT_LANES), MOST_LANES, "most_lanes")?;
        let reading = asked.read(&self.part)?;
        let chosen = lanes::choose(&reading, &self.lanes, most as usize)?;
        let basis = Basis::read(&reading)?;
        Drawing::new(&reading, &chosen, Pixels::new(reading.span, width)).drawn(basis, &chosen)
    }
}

fn within(value: u32, allowed: std::ops::RangeInclusive<u32>, name: &str) -> Result<u32, AskError> {
    let wrong = || AskError::parameter(name, format_args!("it is from {} to {}", allowed.start(), allowed.end()));
    if allowed.contains(&value) { Ok(value) } else { Err(wrong()) }
}

struct Drawing<'r> {
    reading: &'r Reading,
    pixels: Pixels,
    lane_of: HashMap<ThreadId, usize>,
    calls: Vec<Calls>,
    waits: Vec<Waits>,
    /// How long the wait was, and the arrow at its end.
    wakes: Vec<(u64, (usize, usize, i64))>,
}

impl<'r> Drawing<'r> {
    fn new(reading: &'r Reading, chosen: &Chosen, pixels: Pixels) -> Self {
        Self {
            reading,
            pixels,
            lane_of: chosen.threads.iter().enumerate().map(|(lane, thread)| (thread.thread, lane)).collect(),
            calls: chosen.threads.iter().map(|_| Calls::new(pixels)).collect(),
            waits: chosen.threads.iter().map(|_| Waits::new(pixels)).collect(),
            wakes: Vec::new(),
        }
    }

    fn drawn(mut self, basis: Basis, chosen: &Chosen) -> Result<TimelineSlice, AskError> {
        let limits = self.reading.limits();
        self.reading.trace.each_call(self.reading.span, &limits, |call| {
            if let Some(&lane) = self.lane_of.get(&call.thread) {
                self.calls[lane].add(&call);
            }
        })?;
        let limits = self.reading.limits();
        self.reading.trace.each_wait(self.reading.span, &limits, |wait| {
            if let Some(&lane) = self.lane_of.get(&wait.thread) {
                let waker = wait.woken_by.and_then(|waker| self.lane_of.get(&waker).copied());
                self.waits[lane].add(&wait, waker);
                self.wakes.extend(arrow(self.pixels, &wait, waker, lane));
            }
        })?;
        self.slice(basis, chosen)
    }

    fn slice(self, basis: Basis, chosen: &Chosen) -> Result<TimelineSlice, AskError> {
        let mut names = Names::new(chosen);
        let mut lanes = Vec::new();
        for ((thread, calls), waits) in chosen.threads.iter().zip(self.calls).zip(self.waits) {
            let (Some(waits), Some(calls)) = (waits.items(), calls.items(|op| names.index(op))) else {
                return Err(QueryError::TooBig.into());
            };
            lanes.push(thread.lane(calls, waits));
        }
        Ok(TimelineSlice {
            from_ns_text: basis.window.from_ns.to_string(),
            basis,
            pixel_ns: self.pixels.width_ns,
            lanes,
            lanes_left_out: chosen.left_out,
            wakes: longest(self.wakes),
            ops: names.ops,
            classes: names.classes,
            reasons: merge::REASONS.iter().map(|reason| (*reason).to_owned()).collect(),
        })
    }
}

fn arrow(pixels: Pixels, wait: &WaitSpan, waker: Option<usize>, lane: usize) -> Option<(u64, (usize, usize, i64))> {
    let is_wide = wait.blocked_ns >= pixels.width_ns.saturating_mul(ARROW_PIXELS);
    let offset_ns = pixels.offset(wait.start_ns.saturating_add(wait.blocked_ns));
    let waker = waker.filter(|waker| is_wide && *waker != lane && offset_ns <= pixels.span_ns)?;
    Some((wait.blocked_ns, (waker, lane, offset_ns)))
}

fn longest(mut wakes: Vec<(u64, (usize, usize, i64))>) -> Vec<(usize, usize, i64)> {
    wakes.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    wakes.truncate(MOST_ARROWS);
    wakes.sort_by_key(|(_, (.., offset_ns))| *offset_ns);
    wakes.into_iter().map(|(_, arrow)| arrow).collect()
}

/// Strings that many items have in common.
struct Names<'c> {
    known: &'c BTreeMap<OpId, (String, String)>,
    indexes: BTreeMap<OpId, (usize, usize)>,
    ops: Vec<String>,
    classes: Vec<String>,
}

impl<'c> Names<'c> {
    fn new(chosen: &'c Chosen) -> Self {
        Self { known: &chosen.ops, indexes: BTreeMap::new(), ops: Vec::new(), classes: Vec::new() }
    }

    /// Of its class and its name.
    fn index(&mut self, op: OpId) -> (usize, usize) {
        if let Some(&indexes) = self.indexes.get(&op) {
            return indexes;
        }
        let (name, class) = self.known.get(&op).cloned().unwrap_or_default();
        let indexes = (position(&mut self.classes, class), position(&mut self.ops, name));
        self.indexes.insert(op, indexes);
        indexes
    }
}

fn position(list: &mut Vec<String>, name: String) -> usize {
    list.iter().position(|listed| *listed == name).unwrap_or_else(|| {
        list.push(name);
        list.len() - 1
    })
}
