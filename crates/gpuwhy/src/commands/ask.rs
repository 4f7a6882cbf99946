//! `gpuwhy ask`: every question there is, by name. MCP, HTTP and the dashboard ask the same ones.

mod page;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use gpuwhy_questions::{Asked, QUESTIONS, Question, Traces, find};
use gpuwhy_store::Limits;
use serde_json::Value;

use super::newest_trace;
use crate::host::ThisHost;
use crate::print::Width;

/// Ask a trace: `ask slow_calls`, `ask waits --since 5m`. The same questions are asked over MCP and HTTP.
#[derive(Args)]
pub struct Ask {
    /// The trace [default: the newest gpuwhy-*.db here]; several may be compared.
    #[arg(long, value_name = "FILE", global = true)]
    db: Vec<PathBuf>,
    /// Print one object, as documented.
    #[arg(long, global = true)]
    json: bool,
    /// Show all of every cell, however wide the terminal is.
    #[arg(long, global = true)]
    wide: bool,
    #[command(subcommand)]
    chosen: Chosen,
}

/// Questions about a big trace take seconds, not minutes.
const MOST_TIME: Duration = Duration::from_secs(60);

impl Ask {
    pub fn run(self) -> Result<ExitCode> {
        let traces = Traces::new(if self.db.is_empty() { newest_trace().ok().into_iter().collect() } else { self.db });
        let limits = Limits { time: MOST_TIME, ..Limits::default() };
        let host = ThisHost::default();
        let asked = Asked { limits, ..Asked::new(&traces, &host) };
        let answer = self.chosen.question.ask(self.chosen.parameters, &asked)?;
        let mut out = anstream::AutoStream::auto(io::stdout().lock());
        if self.json {
            serde_json::to_writer_pretty(&mut out, &answer)?;
            writeln!(out)?;
        } else {
            out.write_all(page::page(&answer, Width::of_output(self.wide)).as_bytes())?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// One of the questions, with its parameters as the other doors get them.
struct Chosen {
    question: &'static Question,
    parameters: Value,
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, given) = matches.subcommand().ok_or_else(missing)?;
        let question = find(name).ok_or_else(missing)?;
        Ok(Self { question, parameters: question.parameters(given)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Chosen {
    fn augment_subcommands(command: Command) -> Command {
        let questions = QUESTIONS.iter().map(|question| question.command().visible_aliases(question.aliases));
        command.subcommands(questions).subcommand_required(true).arg_required_else_help(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}
