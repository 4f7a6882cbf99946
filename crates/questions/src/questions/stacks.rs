use clap::{Args, ValueEnum};
use gpuwhy_model::{Frame, FrameKind, PythonEnd, WalkEnd};
use gpuwhy_store::{Filter, Limits, StackSum, StackTime, StacksOf};
use gpuwhy_window::LoadedStack;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Bulk, Length, Paging, Part, folded};

/// Stacks ranked by the time that passed in them: what called into the GPU's libraries, where threads waited, who ended
/// those waits, or where threads were running. Each with the line of the user's own program.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Stacks {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
    /// Whose stacks [default: calls].
    #[arg(long, value_enum)]
    #[serde(default)]
    pub of: Option<Of>,
    /// Only calls of this function, by the driver's name or the runtime's, or waits inside of them.
    #[arg(long)]
    #[serde(default)]
    pub op: Option<String>,
    /// Only this thread. Of wakers, the one that they woke.
    #[arg(long)]
    #[serde(default)]
    pub tid: Option<u32>,
    /// Only calls or waits at least this long: 500us, 10ms.
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub min_duration: Option<Length>,
    /// Also as lines of text, as flame graph tools read them: of all stacks, not only of this page.
    #[arg(long)]
    #[serde(default)]
    pub folded: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// Slow calls, by how long they took.
    #[default]
    Calls,
    /// Waits, by how long the thread was blocked.
    Waits,
    /// What those who ended waits were doing, by how long the others were blocked.
    Wakers,
    /// Threads that ran, by how often they were seen there.
    Running,
}

impl From<Of> for StacksOf {
    fn from(of: Of) -> Self {
        match of {
            Of::Calls => Self::Calls,
            Of::Waits => Self::Waits,
            Of::Wakers => Self::Wakers,
            Of::Running => Self::Running,
        }
    }
}

/// So many stacks are ranked.
const MOST_STACKS: usize = 10_000;

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RankedStacks {
    #[serde(flatten)]
    pub basis: Basis,
    pub of: Of,
    /// Whether the trace has any stacks at all.
    pub has_stacks: bool,
    /// Time in all stacks that match; not known of threads that ran.
    pub total_ns: Option<u64>,
    /// Calls, waits or samples in all stacks that match.
    pub total_count: u64,
    /// The time of all that matches, with a stack or without: short calls and waits have none.
    pub with_and_without_ns: Option<u64>,
    /// Stacks that differ.
    pub distinct: usize,
    /// Whether there are more than were ranked. Sums are then of those that were.
    pub is_truncated: bool,
    /// Those with the most time first.
    pub stacks: Vec<RankedStack>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folded: Option<Folded>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Folded {
    /// `outermost;...;innermost microseconds`, samples in place of microseconds for threads that ran.
    pub lines: Vec<String>,
    /// Share of the total that they stand for: very many stacks are cut to those with the most time.
    pub share: f64,
    /// Whether stacks were left out.
    pub is_truncated: bool,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RankedStack {
    /// Not known of threads that ran.
    pub ns: Option<u64>,
    pub count: u64,
    /// Of the total.
    pub share: f64,
    /// How the walk over native frames ended; null where the frames were not written.
    pub end: Option<WalkEnd>,
    pub python_end: Option<PythonEnd>,
    /// The frame to look at first: the user's own line.
    pub site: Option<StackFrame>,
    /// Innermost first, outermost last.
    pub frames: Vec<StackFrame>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct StackFrame {
    pub kind: FrameKind,
    /// Empty where it is not known.
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The file that holds the code.
    pub module: Option<String>,
    /// Whether the compiler put its code into the function of the next frame.
    pub is_inlined: bool,
}

impl Ask for Stacks {
    const NAME: &'static str = "stacks";
    const ALIASES: &'static [&'static str] = &["get_stacks"];

    type Answer = RankedStacks;

    fn ask(&self, asked: &Asked<'_>) -> Result<RankedStacks, AskError> {
        let of = self.of.unwrap_or_default();
        if of == Of::Running && self.op.is_some() {
            return Err(AskError::parameter("op", "threads that run are sampled in no function of a GPU's library"));
        }
        let reading = asked.read(&self.part)?;
        let basis = Basis::with_stacks(&reading)?;
        if !reading.trace.has_stacks()? {
            return Ok(RankedStacks::none(basis, of, self.folded));
        }
        let rows = MOST_STACKS.max(if self.folded { asked.bulk.folded_stacks } else { 0 });
        let limits = Limits { rows, ..reading.limits() };
        let filter = self.filter(&reading);
        let sums = reading.trace.stack_sums(of.into(), &filter, &limits)?;
        let ranking = Ranking::new(of, &sums.rows);
        let page = sums.rows.iter().skip(self.paging.offset()?).take(self.paging.limit()? + 1);
        let mut page: Vec<StackSum> = page.copied().collect();
        let next = self.paging.cut(&mut page)?;
        let stacks = reading.trace.load_stacks(&page)?.into_iter().map(|time| ranking.rank(time)).collect();
        Ok(RankedStacks {
            basis,
            of,
            has_stacks: true,
            total_ns: ranking.known_ns(ranking.total_ns),
            total_count: ranking.total_count,
            with_and_without_ns: reading.trace.time_with_and_without_stacks(of.into(), &filter, &limits)?,
            distinct: sums.rows.len(),
            is_truncated: sums.truncated.is_some(),
            stacks,
            folded: if self.folded { Some(ranking.fold(&reading, &sums.rows, &asked.bulk)?) } else { None },
            next,
        })
    }
}

impl Stacks {
    fn filter(&self, reading: &Reading) -> Filter {
        Filter {
            since_ns: reading.scope.from_ns,
            until_ns: reading.scope.to_ns,
            op: self.op.clone(),
            pid: reading.scope.pid,
            tid: self.tid,
            min_duration_ns: self.min_duration.map(|length| length.ns()),
        }
    }
}

impl RankedStacks {
    /// Nobody took any.
    fn none(basis: Basis, of: Of, is_folded: bool) -> Self {
        Self {
            basis,
            of,
            has_stacks: false,
            total_ns: (of != Of::Running).then_some(0),
            total_count: 0,
            with_and_without_ns: None,
            distinct: 0,
            is_truncated: false,
            stacks: Vec::new(),
            folded: is_folded.then(Folded::default),
            next: None,
        }
    }
}

struct Ranking {
    of: Of,
    total_ns: u64,
    total_count: u64,
}

impl Ranking {
    fn new(of: Of, sums: &[StackSum]) -> Self {
        let total = |number: fn(&StackSum) -> u64| sums.iter().map(number).fold(0, u64::saturating_add);
        Self { of, total_ns: total(|sum| sum.ns), total_count: total(|sum| sum.count) }
    }

    fn known_ns(&self, ns: u64) -> Option<u64> {
        (self.of != Of::Running).then_some(ns)
    }

    fn share(&self, time: &StackTime) -> f64 {
        match self.of {
            Of::Running => time.count as f64 / self.total_count.max(1) as f64,
            _ => time.ns as f64 / self.total_ns.max(1) as f64,
        }
    }

    fn rank(&self, time: StackTime) -> RankedStack {
        let stack = time.stack.as_ref();
        RankedStack {
            ns: self.known_ns(time.ns),
            count: time.count,
            share: self.share(&time),
            end: stack.map(|stack| stack.end),
            python_end: stack.map(|stack| stack.python_end),
            site: stack.and_then(LoadedStack::site_frame).map(frame),
            frames: stack.iter().flat_map(|stack| &stack.frames).map(|one| frame(one)).collect(),
        }
    }

    fn fold(&self, reading: &Reading, sums: &[StackSum], most: &Bulk) -> Result<Folded, AskError> {
        let mut times = reading.trace.load_stacks(sums.get(..most.folded_stacks).unwrap_or(sums))?;
        let mut frames = 0;
        times.retain(|time| {
            frames += time.stack.as_ref().map_or(1, |stack| stack.frames.len());
            frames <= most.folded_frames
        });
        let share = times.iter().map(|time| self.share(time)).sum();
        Ok(Folded { lines: folded(self.of.into(), &times), share, is_truncated: times.len() < sums.len() })
    }
}

fn frame(frame: &Frame) -> StackFrame {
    StackFrame {
        kind: frame.kind,
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        module: frame.module.clone(),
        is_inlined: frame.is_inlined,
    }
}
