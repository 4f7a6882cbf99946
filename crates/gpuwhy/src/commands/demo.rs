//! `gpuwhy demo`: asks this host for a real stall, made and explained.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use gpuwhy_questions::questions::demo::Demo as Question;
use gpuwhy_questions::units::parse_duration;
use gpuwhy_questions::{Ask, Asked, Length, Traces};
use gpuwhy_testbed::SCENARIOS;

use super::explain;
use crate::host::ThisHost;
use crate::print::{Columns, Width};

/// Make a real stall on this machine, trace it and explain it; no GPU is needed.
#[derive(Args)]
pub struct Demo {
    /// What goes wrong [default: slow-worker-io]; see --list.
    scenario: Option<String>,
    /// List the scenarios.
    #[arg(long)]
    list: bool,
    /// Run the same program without the fault.
    #[arg(long)]
    healthy: bool,
    /// How long it runs.
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    duration: Duration,
    /// Keep the trace here.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the explanation as one object.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub fn run(self) -> Result<ExitCode> {
        if self.list {
            println!("{}", list());
            return Ok(ExitCode::SUCCESS);
        }
        let question =
            Question { scenario: self.scenario, healthy: self.healthy, duration: Some(Length(self.duration)) };
        let host = ThisHost { demo_file: self.out };
        let explanation = question.ask(&Asked::new(&Traces::default(), &host))?;
        explain::print(&explanation, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn list() -> String {
    let mut columns = Columns::new(["scenario", "what is found", "what goes wrong"]);
    for scenario in SCENARIOS {
        let found = scenario.cause.unwrap_or("nothing");
        columns.row([scenario.name.into(), found.into(), scenario.summary.into()]);
    }
    columns.text(Width::ANY)
}
