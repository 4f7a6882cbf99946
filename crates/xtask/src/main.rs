//! Chores of the repository: `cargo run -p xtask -- docs`, `cargo run --release -p xtask -- bench`.

mod accuracy;
mod bench;
mod docs;
mod recording;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
enum Chore {
    /// Write the generated documents.
    Docs {
        /// Only say whether they are fresh.
        #[arg(long)]
        check: bool,
    },
    /// Measure, and write the results to docs/results and the pages made from them. Needs root.
    Bench {
        /// Fewer and shorter rounds, for a first look; nothing is written.
        #[arg(long)]
        quick: bool,
        /// Pairs of traced and untraced slices in the part `overhead`; twice as many where budgets are compared.
        #[arg(long)]
        pairs: Option<usize>,
        /// Measure only this part; nothing is written, except by `overhead`, which never runs unasked.
        part: Option<String>,
    },
    /// Record the trace that `gpuwhy demo` explains where it may not trace. Needs root.
    Recording,
    /// Write a trace of a million rows of a made-up program to a new file, for the dashboard's tests.
    LargeTrace { file: PathBuf },
    /// See how often `explain` is right, and write docs/accuracy.md. Needs root.
    #[command(args_conflicts_with_subcommands = true)]
    Accuracy {
        #[command(subcommand)]
        part: Option<AccuracyPart>,
        /// Rounds over all scenarios and their healthy twins.
        #[arg(long, default_value_t = 4)]
        rounds: u64,
        /// The round to begin with; each has other seeds.
        #[arg(long, default_value_t = 0)]
        first_round: u64,
        /// How long each run lasts.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Add to the kept results instead of replacing them.
        #[arg(long)]
        add: bool,
        /// Keep the traces of runs that went wrong here.
        #[arg(long)]
        keep: Option<PathBuf>,
        /// Only these scenarios; nothing is written.
        only: Vec<String>,
    },
}

#[derive(Subcommand)]
enum AccuracyPart {
    /// See how often stacks are right instead.
    Stacks {
        /// Situations in which each program's stack is taken.
        #[arg(long, default_value_t = 1000)]
        situations: u32,
    },
    /// See how often late and hanging ranks are named instead.
    Ranks {
        /// Rounds over all kinds; hangs are tried in each fifth.
        #[arg(long, default_value_t = 25)]
        rounds: u64,
        /// Keep the traces of runs that went wrong here.
        #[arg(long)]
        keep: Option<PathBuf>,
        /// Only these kinds; nothing is written.
        only: Vec<String>,
    },
}

fn main() -> Result<()> {
    match Chore::parse() {
        Chore::Docs { check } => docs::run(check),
        Chore::Accuracy { part: Some(AccuracyPart::Stacks { situations }), .. } => accuracy::stacks::run(situations),
        Chore::Accuracy { part: Some(AccuracyPart::Ranks { rounds, keep, only }), .. } => {
            accuracy::ranks::run(rounds, keep, &only)
        }
        Chore::Accuracy { part: None, rounds, first_round, seconds, add, keep, only } => {
            accuracy::run(&accuracy::Plan { rounds, first_round, seconds, only, add, keep })
        }
        Chore::Recording => recording::run(),
        Chore::LargeTrace { file } => bench::write_trace(&file, bench::DASHBOARD_ROWS),
        Chore::Bench { quick, pairs, part } => bench::run(quick, pairs, part.as_deref()),
    }
}
