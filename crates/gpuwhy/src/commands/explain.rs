//! `gpuwhy explain`: why the GPU waits, root cause first.

mod page;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use gpuwhy_model::{Explanation, Severity};
use gpuwhy_questions::Control;
use gpuwhy_questions::questions::findings::{Findings, WhichPhase};

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
}

impl Explain {
    pub fn run(self) -> Result<ExitCode> {
        let file = trace_or_newest(self.db.as_ref(), self.file.as_ref())?;
        let explanation = findings::ask(&file, &self.question(), &Control::default())?;
        if self.stored {
            print::note(&format!("Found by gpuwhy {} when the trace ended.", explanation.version));
        }
        print(&explanation, self.json)?;
        let found = explanation.findings.iter().any(|finding| finding.severity > Severity::Low);
        Ok(if self.exit_code && found { ExitCode::from(3) } else { ExitCode::SUCCESS })
    }

    fn question(&self) -> Findings {
        Findings { part: self.when.part(), stored: self.stored, phase: self.phase }
    }
}

/// To stdout, for people or for programs.
pub fn print(explanation: &Explanation, json: bool) -> Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    if json {
        serde_json::to_writer_pretty(&mut out, explanation)?;
        writeln!(out)?;
    } else {
        out.write_all(page::page(explanation).as_bytes())?;
    }
    Ok(out.flush()?)
}
