//! `gpuwhy query`: read-only SQL, or filters, over a trace.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use gpuwhy_outputs::Nodes;
use gpuwhy_questions::questions::events::Events;
use gpuwhy_questions::questions::sql::{Cut, Rows, Sql};
use gpuwhy_questions::questions::stacks::{Of, Stacks};
use gpuwhy_questions::units::parse_duration;
use gpuwhy_questions::{Ask, Asked, Bulk, Length, NoHost, Paging, Part, Traces};
use gpuwhy_store::Limits;
use serde_json::Value;

use super::newest_trace;
use super::nodes::{OtherHosts, answered, tell};
use crate::print::{self, Columns, Width};

/// Ask a trace: `query FILE "SELECT ..."`, or with filters.
#[derive(Args)]
pub struct Query {
    /// The trace [default: the newest gpuwhy-*.db here], then the SQL statement. Of other hosts, only the statement.
    #[arg(value_name = "FILE] [SQL", num_args = 0..=2)]
    words: Vec<String>,
    /// The trace.
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Calls of the last part of the trace: 5m, 2h, counted back from its end.
    #[arg(long)]
    since: Option<Length>,
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
    #[arg(long, value_name = "TIME")]
    min_duration: Option<Length>,
    /// The most rows to print, of each host, or stacks to fold [default: 1000 rows, 100000 stacks].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// The longest the query may take.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    timeout: Duration,
    /// Print an array of objects.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a header.
    #[arg(long)]
    csv: bool,
    /// Show all of every cell, however wide the terminal is.
    #[arg(long)]
    wide: bool,
    /// Print stacks for a flame graph, with the microseconds that calls took in each.
    #[arg(long, conflicts_with_all = ["json", "csv", "nodes"])]
    folded: bool,
    /// Fold the stacks of waits instead, with the microseconds that threads were blocked.
    #[arg(long, requires = "folded", conflicts_with = "op")]
    waits: bool,
    #[command(flatten)]
    hosts: OtherHosts,
}

const MOST_ROWS: u32 = 1_000;
const MOST_STACKS: u32 = 100_000;

const MORE_ROWS: &str = "there are more rows; raise --limit to see them";

impl Query {
    pub fn run(self) -> Result<ExitCode> {
        if let Some(nodes) = self.hosts.named()? {
            return self.ask_others(&nodes);
        }
        let (file, sql) = self.file_and_sql()?;
        self.check(sql.as_deref())?;
        let traces = Traces::new([file.clone()]);
        let limits = Limits { time: self.timeout, ..Limits::default() };
        let asked = Asked { limits, bulk: self.bulk(), ..Asked::new(&traces, &NoHost) };
        if self.folded {
            return self.fold(&file, &asked);
        }
        let rows = match sql {
            Some(sql) => self.statement(sql).ask(&asked)?,
            None => self.events().ask(&asked)?,
        };
        self.print_all(&rows)
    }

    /// One table of what all of them have.
    fn ask_others(&self, nodes: &Nodes) -> Result<ExitCode> {
        let replies = match (&self.db, self.words.as_slice()) {
            (None, []) => nodes.answers(&self.events()),
            (None, [sql]) => {
                self.check(Some(sql))?;
                nodes.answers(&self.statement(sql.clone()))
            }
            _ => bail!("other hosts have their own traces; name the statement only"),
        };
        tell(&replies);
        self.print_all(&together(answered(replies)?))
    }

    fn check(&self, sql: Option<&str>) -> Result<()> {
        if sql.is_some() && self.has_filters() {
            bail!("filters are for questions without SQL; put the condition into the statement");
        }
        if sql.is_some() && self.folded {
            bail!("--folded is for questions without SQL; the views call_sites and stack_lines are for statements");
        }
        Ok(())
    }

    fn print_all(&self, rows: &Rows) -> Result<ExitCode> {
        self.print(rows)?;
        match rows.truncated {
            Some(Cut::Rows) => print::note(MORE_ROWS),
            Some(Cut::Bytes) => {
                print::note("the answer is cut at its largest size; ask for fewer rows or columns");
            }
            None => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whoever has the file may read all of it.
    fn bulk(&self) -> Bulk {
        let rows = self.rows() as usize;
        Bulk {
            statement: Limits { time: self.timeout, rows, ..Limits::default() },
            folded_stacks: self.limit.unwrap_or(MOST_STACKS) as usize,
            folded_frames: usize::MAX,
        }
    }

    fn rows(&self) -> u32 {
        self.limit.unwrap_or(MOST_ROWS)
    }

    fn statement(&self, sql: String) -> Sql {
        Sql { sql, limit: Some(self.rows()), trace: None }
    }

    fn events(&self) -> Events {
        let (op, tid, min_duration) = (self.op.clone(), self.tid, self.min_duration);
        Events { part: self.part(), op, tid, min_duration, limit: Some(self.rows()) }
    }

    fn part(&self) -> Part {
        Part { since: self.since, pid: self.pid, ..Part::default() }
    }

    fn fold(&self, file: &Path, asked: &Asked<'_>) -> Result<ExitCode> {
        let question = Stacks {
            part: self.part(),
            paging: Paging::default(),
            of: Some(if self.waits { Of::Waits } else { Of::Calls }),
            op: self.op.clone(),
            tid: self.tid,
            min_duration: self.min_duration,
            folded: true,
        };
        let answer = question.ask(asked)?;
        let folded = answer.folded.unwrap_or_default();
        if !answer.has_stacks {
            bail!("there are no stacks in {}", file.display());
        }
        if answer.distinct == 0 {
            bail!("no {} that match have a stack", if self.waits { "waits" } else { "calls" });
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        for line in folded.lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        if answer.is_truncated || folded.is_truncated {
            print::note(MORE_ROWS);
        }
        Ok(ExitCode::SUCCESS)
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

    fn print(&self, answer: &Rows) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        if self.json {
            print_json(&mut out, answer)?;
        } else if self.csv {
            print_csv(&mut out, answer)?;
        } else {
            writeln!(out, "{}", table(answer, Width::of_output(self.wide)))?;
        }
        out.flush()
    }
}

/// The rows of all hosts, each with its host before it. A column that a host does not have is empty there.
fn together(answers: Vec<(String, Rows)>) -> Rows {
    let mut all = Rows::default();
    for (_, rows) in &answers {
        if all.columns.is_empty() {
            all.columns.clone_from(&rows.columns);
        }
        let new = rows.columns.iter().filter(|name| !all.columns.contains(name)).cloned().collect::<Vec<_>>();
        all.columns.extend(new);
    }
    for (node, rows) in answers {
        all.truncated = all.truncated.or(rows.truncated);
        // Columns of one statement may have the same name.
        let from: Vec<Option<usize>> = match rows.columns == all.columns {
            true => (0..rows.columns.len()).map(Some).collect(),
            false => all.columns.iter().map(|name| rows.columns.iter().position(|column| column == name)).collect(),
        };
        let cells = |row: Vec<Value>| {
            let cell = |at: &Option<usize>| at.and_then(|at| row.get(at).cloned()).unwrap_or_default();
            std::iter::once(Value::from(node.as_str())).chain(from.iter().map(cell)).collect()
        };
        all.rows.extend(rows.rows.into_iter().map(cells));
    }
    all.columns.insert(0, "node".to_owned());
    all
}

fn print_json(out: &mut impl Write, answer: &Rows) -> io::Result<()> {
    writeln!(out, "[")?;
    for (index, row) in answer.rows.iter().enumerate() {
        let object: serde_json::Map<_, _> = answer.columns.iter().cloned().zip(row.iter().cloned()).collect();
        let comma = if index + 1 < answer.rows.len() { "," } else { "" };
        writeln!(out, "{}{comma}", Value::Object(object))?;
    }
    writeln!(out, "]")
}

fn print_csv(out: &mut impl Write, answer: &Rows) -> io::Result<()> {
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

fn table(answer: &Rows, width: Width) -> String {
    let mut columns = Columns::new(answer.columns.iter().map(String::as_str));
    for row in &answer.rows {
        columns.row(row.iter().map(text));
    }
    let is_number = |index: usize| answer.rows.iter().all(|row| !matches!(row.get(index), Some(Value::String(_))));
    columns.align_right((0..answer.columns.len()).filter(|&index| is_number(index)));
    columns.text(width)
}

fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        // As people write it: 1 and not 1.0.
        Value::Number(number) if number.is_f64() => {
            Cow::Owned(number.as_f64().map_or_else(String::new, |number| number.to_string()))
        }
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_several_hosts_are_one_table() {
        let rows = |columns: &[&str], row: Value| Rows {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows: vec![serde_json::from_value(row).unwrap()],
            truncated: None,
        };
        let of_a = rows(&["op", "count"], serde_json::json!(["x", 1]));
        let of_b = rows(&["count", "lost"], serde_json::json!([2, 3]));
        let all = together(vec![("a".to_owned(), of_a), ("b".to_owned(), of_b)]);
        assert_eq!(all.columns, ["node", "op", "count", "lost"]);
        assert_eq!(serde_json::json!(all.rows), serde_json::json!([["a", "x", 1, null], ["b", null, 2, 3]]));
    }

    #[test]
    fn cells_with_commas_and_quotes_survive_csv() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"hi\"\n"), "\"say \"\"hi\"\"\n\"");
    }
}
