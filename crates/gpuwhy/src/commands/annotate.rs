//! `gpuwhy annotate`: the user's own words on the timeline of the traces that are being taken.

use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use gpuwhy_agent::annotations::{About, FOLDER, label, tell};
use gpuwhy_model::Label;

use crate::print;

/// Put a step, an epoch or any words of your own on the timeline: `annotate --label step=12`. They hold until the same
/// key is told again. `explain --label step=12` explains the time in which they did.
#[derive(Args)]
pub struct Annotate {
    /// What to tell; may be given several times. An empty value ends what was told before: `step=`.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, required_unless_present = "stdin")]
    label: Vec<Label>,
    /// The process that it is about [default: all of the trace].
    #[arg(long)]
    pid: Option<u32>,
    /// Tell what comes in on standard input, a KEY=VALUE on each line, as it comes.
    #[arg(long)]
    stdin: bool,
    /// The folder in which tracers listen: what they were given as `--annotations`.
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    at: PathBuf,
}

impl Annotate {
    pub fn run(self) -> Result<ExitCode> {
        if !self.label.is_empty() {
            self.tell(&self.label)?;
        }
        let mut is_all_told = true;
        if self.stdin {
            for (number, line) in (1..).zip(stdin().lock().lines()) {
                match label(&line?) {
                    Ok(label) => self.tell(&[label])?,
                    Err(why) => {
                        print::note(&format!("line {number} is not told: {why}"));
                        is_all_told = false;
                    }
                }
            }
        }
        Ok(if is_all_told { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn tell(&self, labels: &[Label]) -> Result<()> {
        match tell(&self.at, self.pid.map_or(About::All, About::Process), labels)? {
            0 => bail!("no trace is being taken: nobody listens in {}", self.at.display()),
            _ => Ok(()),
        }
    }
}
