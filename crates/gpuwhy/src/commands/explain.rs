//! `gpuwhy explain`: why the GPU waits, root cause first.

mod overview;
mod page;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use gpuwhy_model::{Explanation, Severity};
use gpuwhy_outputs::Nodes;
use gpuwhy_questions::Control;
use gpuwhy_questions::questions::findings::{Findings, WhichPhase};
use serde::Serialize;

use super::nodes::{OtherHosts, answered, tell, to_json};
use super::{When, trace_or_newest};
use crate::{findings, print};

/// Say why the GPU waits: the root cause, the evidence, and what to change.
#[derive(Args)]
pub struct Explain {
    /// The trace [default: the newest gpuwhy-*.db here]. It may still be written.
    file: Option<PathBuf>,
    /// The trace.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    db: Option<PathBuf>,
    #[command(flatten)]
    when: When,
    /// Which phase to look at, where no times are given: `steady`, what the program does once it has loaded and warmed up, or
    /// `all` [default: steady].
    #[arg(long)]
    phase: Option<WhichPhase>,
    /// Show what was found when the trace ended, rather than look for it again.
    #[arg(long, conflicts_with_all = ["since", "from", "to", "pid", "label"])]
    stored: bool,
    /// Print one object, as documented.
    #[arg(long)]
    json: bool,
    /// Exit with 3 when something of medium or high severity is found.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    hosts: OtherHosts,
}

impl Explain {
    pub fn run(self) -> Result<ExitCode> {
        if let Some(nodes) = self.hosts.named()? {
            return self.ask_others(&nodes);
        }
        let file = trace_or_newest(self.db.as_ref(), self.file.as_ref())?;
        let explanation = findings::ask(&file, &self.question(), &Control::default())?;
        if self.stored {
            print::note(&format!("Found by gpuwhy {} when the trace ended.", explanation.version));
        }
        print(&explanation, self.json)?;
        Ok(self.code([&explanation]))
    }

    fn ask_others(&self, nodes: &Nodes) -> Result<ExitCode> {
        if self.db.is_some() || self.file.is_some() {
            bail!("other hosts have their own traces; name none");
        }
        let replies = nodes.answers(&self.question());
        tell(&replies);
        let all = to_json(&replies);
        let answers = answered(replies)?;
        match self.json {
            true => write_json(&all)?,
            false => write(&overview::page(&answers))?,
        }
        Ok(self.code(answers.iter().map(|(_, explanation)| explanation)))
    }

    fn code<'e>(&self, explanations: impl IntoIterator<Item = &'e Explanation>) -> ExitCode {
        let mut findings = explanations.into_iter().flat_map(|explanation| &explanation.findings);
        let is_found = findings.any(|finding| finding.severity > Severity::Low);
        if self.exit_code && is_found { ExitCode::from(3) } else { ExitCode::SUCCESS }
    }

    fn question(&self) -> Findings {
        Findings { part: self.when.part(), stored: self.stored, phase: self.phase }
    }
}

/// To stdout, for people or for programs.
pub fn print(explanation: &Explanation, json: bool) -> Result<()> {
    match json {
        true => write_json(explanation),
        false => write(&page::page(explanation)),
    }
}

fn write_json(value: &impl Serialize) -> Result<()> {
    write(&(serde_json::to_string_pretty(value)? + "\n"))
}

fn write(text: &str) -> Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
