//! `gpuwhy ask`: every question there is, by name. MCP, HTTP and the dashboard ask the same ones.

mod page;

use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use gpuwhy_outputs::Nodes;
use gpuwhy_questions::{Asked, QUESTIONS, Question, Traces};
use gpuwhy_store::Limits;
use serde_json::Value;

use super::newest_trace;
use super::nodes::{OtherHosts, answered, tell, to_json};
use crate::host::ThisHost;
use crate::print::{Width, safe};

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
    #[command(flatten)]
    hosts: OtherHosts,
    #[command(subcommand)]
    chosen: Chosen<OfTraces>,
}

struct OfTraces;

impl Asks for OfTraces {
    const QUESTIONS: &'static [Question] = QUESTIONS;
}

/// Questions about a big trace take seconds, not minutes.
const MOST_TIME: Duration = Duration::from_secs(60);

impl Ask {
    pub fn run(self) -> Result<ExitCode> {
        if let Some(nodes) = self.hosts.named()? {
            return self.ask_others(&nodes);
        }
        let traces = Traces::new(if self.db.is_empty() { newest_trace().ok().into_iter().collect() } else { self.db });
        let limits = Limits { time: MOST_TIME, ..Limits::default() };
        let host = ThisHost::default();
        let asked = Asked { limits, ..Asked::new(&traces, &host) };
        let answer = self.chosen.question.ask(self.chosen.parameters, &asked)?;
        page(&answer, self.json, self.wide)?;
        Ok(ExitCode::SUCCESS)
    }

    fn ask_others(&self, nodes: &Nodes) -> Result<ExitCode> {
        let Chosen { question, parameters, .. } = &self.chosen;
        if question.acts {
            bail!("{} does something on this host, and is not asked of others", question.name);
        }
        if !self.db.is_empty() {
            bail!("other hosts have their own traces; --db is for this one's");
        }
        let replies = nodes.ask(question.name, parameters);
        tell(&replies);
        let all = to_json(&replies);
        let answers = answered(replies)?;
        if self.json {
            return print(&pretty(&all)?);
        }
        let page = |(node, answer): &(String, Value)| {
            format!("\x1b[1m{}\x1b[0m\n{}", safe(node), page::page(answer, Width::of_output(self.wide)))
        };
        print(&answers.iter().map(page).collect::<Vec<_>>().join("\n"))
    }
}

/// Prints an answer, for programs or for people.
pub(super) fn page(answer: &Value, json: bool, wide: bool) -> Result<()> {
    print(&if json { pretty(answer)? } else { page::page(answer, Width::of_output(wide)) }).map(drop)
}

fn pretty(answer: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(answer)? + "\n")
}

fn print(text: &str) -> Result<ExitCode> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A list of questions, as subcommands.
pub(super) trait Asks {
    const QUESTIONS: &'static [Question];
}

/// One of the questions, with its parameters as the other doors get them.
pub(super) struct Chosen<A> {
    pub question: &'static Question,
    pub parameters: Value,
    among: PhantomData<A>,
}

impl<A: Asks> Chosen<A> {
    fn find(name: &str) -> Option<&'static Question> {
        A::QUESTIONS.iter().find(|question| question.has_name(name))
    }
}

impl<A: Asks> FromArgMatches for Chosen<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, given) = matches.subcommand().ok_or_else(missing)?;
        let question = Self::find(name).ok_or_else(missing)?;
        Ok(Self { question, parameters: question.parameters(given)?, among: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: Asks> Subcommand for Chosen<A> {
    fn augment_subcommands(command: Command) -> Command {
        let questions = A::QUESTIONS.iter().map(|question| question.command().visible_aliases(question.aliases));
        command.subcommands(questions).subcommand_required(true).arg_required_else_help(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Self::find(name).is_some()
    }
}
