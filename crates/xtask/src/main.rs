//! Chores of the repository: `cargo run -p xtask -- docs`, `cargo run --release -p xtask -- bench`.

mod bench;
mod docs;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
enum Chore {
    /// Write the generated documents.
    Docs {
        /// Only say whether they are fresh.
        #[arg(long)]
        check: bool,
    },
    /// Measure, and write the results to docs/results/bench.json and docs/performance.md. Needs root.
    Bench {
        /// Fewer and shorter rounds, for a first look; nothing is written.
        #[arg(long)]
        quick: bool,
        /// Measure only this part; nothing is written.
        part: Option<String>,
    },
}

fn main() -> Result<()> {
    match Chore::parse() {
        Chore::Docs { check } => docs::run(check),
        Chore::Bench { quick, part } => bench::run(quick, part.as_deref()),
    }
}
