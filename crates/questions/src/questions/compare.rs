mod findings;
mod functions;

use clap::Args;
use gpuwhy_model::{Breakdown, Explanation, TimePart};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calls::all_functions;
use super::findings::stored;
use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Length, Moment, Part};
pub use findings::{ComparedFindings, InBoth, ShortFinding};
pub use functions::{ComparedFunction, Side};

/// What changed between two parts of a trace, or between two traces: functions by how much of the time they take, where
/// the time of the threads that feed the GPU went, and findings that came or went. What is not said of the second part
/// is as in the first. Without a second part it is the other trace, or else the halves of the first part are compared.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Compare {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    /// The second part's trace, by its file's name [default: the same].
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub with_trace: Option<String>,
    /// The second part is the last part of its trace: 30s, 5m, 2h, counted back from its end.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["with_from", "with_to"])]
    #[serde(default)]
    pub with_since: Option<Length>,
    /// The second part is from this moment on.
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub with_from: Option<Moment>,
    /// The second part is up to this moment.
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub with_to: Option<Moment>,
    /// The second part is about this process.
    #[arg(long)]
    #[serde(default)]
    pub with_pid: Option<u32>,
    /// Compare the findings that are stored in both traces, rather than look for them again. They are about whole traces.
    #[arg(long)]
    #[serde(default)]
    pub stored: bool,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Comparison {
    pub first: Basis,
    pub second: Basis,
    /// What was compared with what, and how sure that is, in words.
    pub notes: Vec<String>,
    /// Those first whose share of the time changed most.
    pub functions: Vec<ComparedFunction>,
    /// Where the time of the threads that feed the GPU went, as shares of it.
    pub parts: Vec<ComparedPart>,
    pub findings: ComparedFindings,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ComparedPart {
    pub name: TimePart,
    pub first_share: f64,
    pub second_share: f64,
    /// The second less the first.
    pub change_share: f64,
}

impl Ask for Compare {
    const NAME: &'static str = "compare";

    type Answer = Comparison;

    fn ask(&self, asked: &Asked<'_>) -> Result<Comparison, AskError> {
        let (first, second, what) = self.parts(asked)?;
        let first = Looked::at(asked, &first, self.stored, 0.0)?;
        let second = Looked::at(asked, &second, self.stored, 0.5)?;
        let functions = functions::compare(&first.side()?, &second.side()?);
        let notes = [
            Some(what),
            Some("calls are summed up per second: both parts begin and end with one".to_owned()),
            sampling(&functions),
            first.nobody("first"),
            second.nobody("second"),
        ];
        Ok(Comparison {
            notes: notes.into_iter().flatten().collect(),
            functions,
            parts: parts(&first.explained.threads, &second.explained.threads),
            findings: findings::compare(&first.explained.findings, &second.explained.findings),
            first: Basis::read(&first.reading)?,
            second: Basis::read(&second.reading)?,
        })
    }
}

impl Compare {
    /// Both parts, and in words what they are.
    fn parts(&self, asked: &Asked<'_>) -> Result<(Part, Part, String), AskError> {
        if let Some(second) = self.second() {
            return Ok((self.part.clone(), second, "two parts that were asked for".to_owned()));
        }
        let path = asked.traces.path(self.part.trace.as_deref())?;
        match asked.traces.other_than(path) {
            Some(other) => Ok((
                self.part.clone(),
                Part { trace: Some(other), ..Part::default() },
                "two traces; the second one is compared as a whole".to_owned(),
            )),
            None => self.halves(asked),
        }
    }

    /// The second part, if anything is said about it. What is not said about it is as in the first, within one trace.
    fn second(&self) -> Option<Part> {
        let has_span = self.with_since.is_some() || self.with_from.is_some() || self.with_to.is_some();
        let has_other_trace = self.with_trace.is_some() && self.with_trace != self.part.trace;
        let mut second = match has_other_trace {
            true => Part { trace: self.with_trace.clone(), ..Part::default() },
            false => self.part.clone(),
        };
        if has_span {
            (second.since, second.from, second.to) = (self.with_since, self.with_from, self.with_to);
        }
        second.pid = self.with_pid.or(second.pid);
        (has_span || self.with_trace.is_some() || self.with_pid.is_some()).then_some(second)
    }

    fn halves(&self, asked: &Asked<'_>) -> Result<(Part, Part, String), AskError> {
        let span = asked.read(&self.part)?.span;
        let middle_ns = span.from_ns + (span.to_ns - span.from_ns) / 2;
        let part = |from_ns, to_ns| Part {
            since: None,
            from: Some(Moment(from_ns)),
            to: Some(Moment(to_ns)),
            ..self.part.clone()
        };
        if middle_ns <= span.from_ns {
            return Err(AskError::NotFound { message: "the trace is empty: it has no halves".to_owned() });
        }
        let what = "the first half of the span with its second half".to_owned();
        Ok((part(span.from_ns, middle_ns), part(middle_ns, span.to_ns), what))
    }
}

struct Looked {
    reading: Reading,
    explained: Explanation,
}

impl Looked {
    fn at(asked: &Asked<'_>, part: &Part, is_stored: bool, done: f64) -> Result<Self, AskError> {
        let reading = asked.read(part)?;
        if is_stored {
            return Ok(Self { explained: stored(&reading)?, reading });
        }
        asked.progress(done, "reading the trace");
        let window = reading.window()?;
        asked.go_on()?;
        asked.progress(done + 0.3, "looking for causes");
        Ok(Self { explained: gpuwhy_analysis::explain(&window), reading })
    }

    fn side(&self) -> Result<Side, AskError> {
        Ok(Side { span_ns: self.reading.summed_ns()?, rows: all_functions(&self.reading)? })
    }

    fn nobody(&self, which: &str) -> Option<String> {
        let nobody = || format!("in the {which} part no thread launched work on a GPU regularly: its shares are 0");
        self.explained.threads.is_empty().then(nobody)
    }
}

fn sampling(functions: &[ComparedFunction]) -> Option<String> {
    let sampled = functions.iter().filter(|function| function.error_share > 0.0).count();
    let within = functions.iter().filter(|function| function.is_within_error).count();
    (sampled > 0).then(|| {
        format!("{sampled} functions were sampled; the change of {within} of them is within the sampling error")
    })
}

fn parts(first: &[Breakdown], second: &[Breakdown]) -> Vec<ComparedPart> {
    let compared = TimePart::ALL.iter().map(|&name| {
        let (first_share, second_share) = (share(first, name), share(second, name));
        ComparedPart { name, first_share, second_share, change_share: second_share - first_share }
    });
    let mut parts: Vec<ComparedPart> =
        compared.filter(|part| part.first_share > 0.0 || part.second_share > 0.0).collect();
    parts.sort_by(|one, other| other.change_share.abs().total_cmp(&one.change_share.abs()));
    parts
}

/// Of all such threads' time together.
fn share(threads: &[Breakdown], name: TimePart) -> f64 {
    let parts = threads.iter().flat_map(|thread| &thread.parts).filter(|part| part.name == name);
    let ns: f64 = parts.map(|part| part.ns as f64).sum();
    let wall_ns: f64 = threads.iter().map(|thread| thread.wall_ns as f64).sum();
    if wall_ns > 0.0 { ns / wall_ns } else { 0.0 }
}
