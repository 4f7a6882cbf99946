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
}

fn main() -> Result<()> {
    match Chore::parse() {
        Chore::Docs { check } => docs::run(check),
        Chore::Bench { quick, pairs, part } => bench::run(quick, pairs, part.as_deref()),
    }
}
