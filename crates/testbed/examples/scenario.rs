//! Runs a scenario for a few seconds and prints what is true about it, or lists all of them:
//! `cargo run -p gpuwhy-testbed --example scenario [NAME [SEED [THREADS]] [healthy] [background]]`.

use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_testbed::{SCENARIOS, Scenario, Setup, Testbed};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = words.first() else {
        for Scenario { name, summary, .. } in SCENARIOS {
            println!("{name:20} {summary}");
        }
        return Ok(());
    };
    let scenario = Scenario::find(name).with_context(|| format!("there is no scenario {name:?}"))?;
    let mut numbers = words[1..].iter().filter_map(|word| word.parse().ok());
    let setup = Setup {
        seed: numbers.next().unwrap_or(1),
        threads: numbers.next().unwrap_or(1) as u32,
        background: words.iter().any(|word| word == "background"),
        healthy: words.iter().any(|word| word == "healthy"),
        duration: Duration::from_secs(2),
    };
    run(scenario, &setup)
}

fn run(scenario: &Scenario, setup: &Setup) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let testbed = Testbed::unpack(dir.path())?;
    for reason in scenario.unmet_needs(&testbed)? {
        eprintln!("it may not run here: {reason}");
    }
    let running = scenario.start(&testbed, setup)?;
    println!("{:#?}", running.finish()?);
    Ok(())
}
