//! `gpuwhy query`: read-only SQL, or filters, over a trace.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use gpuwhy_store::{Answer, Filter, Limits, StacksOf, Trace, Truncation, Value};

use super::newest_trace;
use crate::print::{self, Columns};
use gpuwhy_questions::folded;
use gpuwhy_questions::units::parse_duration;

/// Ask a trace: `query FILE "SELECT ..."`, or with filters.
#[derive(Args)]
pub struct Query {
    /// The trace [default: the newest gpuwhy-*.db here], then the SQL statement.
    #[arg(value_name = "FILE] [SQL", num_args = 0..=2)]
    words: Vec<String>,
    /// The trace.
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Calls of the last part of the trace: 5m, 2h, counted back from its end.
    #[arg(long, value_parser = parse_duration)]
    since: Option<Duration>,
    /// Calls of this function, by the driver's name or the runtime's.
    #[arg(long)]
    op: Option<String>,
    /// Calls of this process.
    #[arg(long)]
    pid: Option<u32>,
    /// Calls of this thread.
    #[arg(long)]
    tid: Option<u32>,
    /// Calls at least this long.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    min_duration: Option<Duration>,
    /// The most rows to print, or stacks to fold [default: 1000 rows, 100000 stacks].
    #[arg(long)]
    limit: Option<usize>,
    /// The longest the query may take.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    timeout: Duration,
    /// Print an array of objects.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a header.
    #[arg(long)]
    csv: bool,
    /// Print stacks for a flame graph, with the microseconds that calls took in each.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    folded: bool,
    /// Fold the stacks of waits instead, with the microseconds that threads were blocked.
    #[arg(long, requires = "folded", conflicts_with = "op")]
    waits: bool,
}

const MOST_ROWS: usize = 1_000;
const MOST_STACKS: usize = 100_000;

impl Query {
    pub fn run(self) -> Result<ExitCode> {
        let (file, sql) = self.file_and_sql()?;
        if sql.is_some() && self.has_filters() {
            bail!("filters are for questions without SQL; put the condition into the statement");
        }
        if sql.is_some() && self.folded {
            bail!("--folded is for questions without SQL; the views call_sites and stack_lines are for statements");
        }
        let trace = Trace::open(&file)?;
        if self.folded {
            return self.fold(&trace);
        }
        let limits = self.limits(MOST_ROWS);
        let answer = match sql {
            Some(sql) => trace.query(&sql, &limits)?,
            None => trace.calls(&self.filter(&trace)?, &limits)?,
        };
        self.print(&answer)?;
        note_truncation(answer.truncated);
        Ok(ExitCode::SUCCESS)
    }

    fn fold(&self, trace: &Trace) -> Result<ExitCode> {
        let of = if self.waits { StacksOf::Waits } else { StacksOf::Calls };
        if !trace.has_stacks()? {
            bail!("there are no stacks in {}", trace.path().display());
        }
        let times = trace.stack_times(of, &self.filter(trace)?, &self.limits(MOST_STACKS))?;
        if times.rows.is_empty() {
            bail!("no {} that match have a stack", if self.waits { "waits" } else { "calls" });
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        for line in folded(of, &times.rows) {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        note_truncation(times.truncated);
        Ok(ExitCode::SUCCESS)
    }

    fn limits(&self, most: usize) -> Limits {
        Limits { time: self.timeout, rows: self.limit.unwrap_or(most), ..Limits::default() }
    }

    fn has_filters(&self) -> bool {
        self.since.is_some()
            || self.op.is_some()
            || self.pid.is_some()
            || self.tid.is_some()
            || self.min_duration.is_some()
    }

    /// One word is a file if there is one of that name, SQL otherwise.
    fn file_and_sql(&self) -> Result<(PathBuf, Option<String>)> {
        match (&self.db, self.words.as_slice()) {
            (Some(db), []) => Ok((db.clone(), None)),
            (Some(db), [sql]) => Ok((db.clone(), Some(sql.clone()))),
            (Some(_), _) => bail!("name the trace once: with --db or as the first word"),
            (None, []) => Ok((newest_trace()?, None)),
            (None, [word]) if Path::new(word).exists() || !word.contains(char::is_whitespace) => {
                Ok((word.into(), None))
            }
            (None, [sql]) => Ok((newest_trace()?, Some(sql.clone()))),
            (None, [file, sql, ..]) => Ok((file.into(), Some(sql.clone()))),
        }
    }

    fn filter(&self, trace: &Trace) -> Result<Filter> {
        let since_ns = match self.since {
            Some(since) => trace.end_ns()?.map(|end_ns| end_ns.saturating_sub(since.as_nanos() as u64)),
            None => None,
        };
        Ok(Filter {
            since_ns,
            until_ns: None,
            op: self.op.clone(),
            pid: self.pid,
            tid: self.tid,
            min_duration_ns: self.min_duration.map(|time| time.as_nanos() as u64),
        })
    }

    fn print(&self, answer: &Answer) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        if self.json {
            print_json(&mut out, answer)?;
        } else if self.csv {
            print_csv(&mut out, answer)?;
        } else {
            writeln!(out, "{}", table(answer))?;
        }
        out.flush()
    }
}

fn note_truncation(truncated: Option<Truncation>) {
    if let Some(truncation) = truncated {
        print::note(match truncation {
            Truncation::Rows => "there are more rows; raise --limit to see them",
            Truncation::Bytes => "the answer is cut at its largest size; ask for fewer rows or columns",
        });
    }
}

fn print_json(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    writeln!(out, "[")?;
    for (index, row) in answer.rows.iter().enumerate() {
        let object: serde_json::Map<_, _> =
            answer.columns.iter().cloned().zip(row.iter().map(Value::to_json)).collect();
        let comma = if index + 1 < answer.rows.len() { "," } else { "" };
        writeln!(out, "{}{comma}", serde_json::Value::Object(object))?;
    }
    writeln!(out, "]")
}

fn print_csv(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let header: Vec<_> = answer.columns.iter().map(|name| quoted(name)).collect();
    writeln!(out, "{}", header.join(","))?;
    for row in &answer.rows {
        let cells: Vec<_> = row.iter().map(|value| quoted(&text(value)).into_owned()).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains(['"', ',', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

fn table(answer: &Answer) -> String {
    let mut columns = Columns::new(answer.columns.iter().map(String::as_str));
    for row in &answer.rows {
        columns.row(row.iter().map(text));
    }
    let is_number = |index: usize| answer.rows.iter().all(|row| !matches!(row.get(index), Some(Value::Text(_))));
    columns.align_right((0..answer.columns.len()).filter(|&index| is_number(index)));
    columns.text()
}

fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::Integer(number) => Cow::Owned(number.to_string()),
        Value::Real(number) => Cow::Owned(number.to_string()),
        Value::Text(text) => Cow::Borrowed(text),
        Value::Blob(bytes) => Cow::Owned(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_survive_csv() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"hi\"\n"), "\"say \"\"hi\"\"\n\"");
    }
}
