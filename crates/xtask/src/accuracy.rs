//! How often `explain` is right: every scenario and its healthy twin, several times with other seeds, threads and load,
//! under the real tracer with its default settings.

mod dropping;
mod lines;
pub mod ranks;
pub mod stacks;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuwhy_model::Explanation;
use gpuwhy_store::Trace;
use gpuwhy_testbed::{SCENARIOS, Scenario, ScenarioTruth, Setup, Testbed};
use gpuwhy_window::Scope;
use serde_json::{Value, json};

use crate::bench::{Gpuwhy, build_gpuwhy, machine_facts};
use crate::docs;

pub use self::verdict::share_right;

/// Shares of the records that are dropped on purpose, to see what is made of the rest.
const DROPPED: [f64; 3] = [0.01, 0.1, 0.5];

pub struct Plan {
    /// Rounds over all scenarios.
    pub rounds: u64,
    /// The round to begin with: each has its own seeds.
    pub first_round: u64,
    pub seconds: f64,
    /// Scenarios to run, all when empty; nothing is written then.
    pub only: Vec<String>,
    /// Adds to the kept results instead of taking their place.
    pub add: bool,
    /// Where to keep the traces of runs that went wrong.
    pub keep: Option<PathBuf>,
}

pub fn run(plan: &Plan) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let testbed = Testbed::unpack(dir.path())?;
    let binary = build_gpuwhy()?;
    let scenarios = chosen(&plan.only)?;
    let (mut runs, mut skipped) = (if plan.add { kept_runs()? } else { Vec::new() }, Vec::new());
    for round in plan.first_round..plan.first_round + plan.rounds {
        for (index, scenario) in scenarios.iter().enumerate() {
            let unmet = scenario.unmet_needs(&testbed)?;
            if !unmet.is_empty() {
                skipped.push(json!({ "scenario": scenario.name, "why": unmet.join("; ") }));
                continue;
            }
            for healthy in [false, true] {
                let setup = setup(round, index as u64, healthy, plan.seconds);
                let result = one(&testbed, &binary, dir.path(), scenario, &setup, plan.keep.as_deref());
                let run = result.with_context(|| format!("{} with {setup:?}", scenario.name))?;
                println!("{}", verdict::line(&run));
                runs.push(run);
            }
        }
    }
    let results = json!({ "machine": machine_facts(), "seconds": plan.seconds, "runs": runs, "skipped": skipped });
    println!("{}", verdict::summary(&results));
    if !plan.only.is_empty() {
        return Ok(());
    }
    docs::save_results("accuracy.json", results)
}

/// Those of earlier rounds.
fn kept_runs() -> Result<Vec<Value>> {
    let results = docs::load_results("accuracy.json")?.unwrap_or_default();
    Ok(results["runs"].as_array().cloned().unwrap_or_default())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Scenario>> {
    for name in only {
        if Scenario::find(name).is_none() {
            bail!("there is no scenario {name:?}");
        }
    }
    let is_chosen = |scenario: &&Scenario| only.is_empty() || only.iter().any(|name| name == scenario.name);
    Ok(SCENARIOS.iter().filter(is_chosen).collect())
}

/// Every run is another one: lengths, strengths, threads and load differ.
fn setup(round: u64, index: u64, healthy: bool, seconds: f64) -> Setup {
    let seed = round * 1009 + index * 17 + u64::from(healthy);
    Setup {
        seed,
        threads: 1 + (seed / 3 % 3) as u32,
        background: seed.is_multiple_of(2),
        healthy,
        duration: Duration::from_secs_f64(seconds),
    }
}

fn one(
    testbed: &Testbed,
    binary: &Path,
    dir: &Path,
    scenario: &Scenario,
    setup: &Setup,
    keep: Option<&Path>,
) -> Result<Value> {
    let file = dir.join("accuracy.db");
    let truth = capture(testbed, binary, &file, scenario, setup)?;
    let explanation = explain(&file)?;
    let mut run = verdict::judge(scenario, setup, &truth, &explanation);
    if truth.cause.is_some() {
        let dropped = DROPPED.iter().map(|&share| {
            let rest = dropping::without(&file, share, setup.seed)?;
            Ok(verdict::judge_dropped(share, &truth, &explain(&rest)?))
        });
        run["dropped"] = dropped.collect::<Result<Vec<_>>>()?.into();
    }
    if let (Some(keep), false) = (keep, verdict::is_right(&run)) {
        let name = format!("{}-{}{}.db", scenario.name, setup.seed, if setup.healthy { "-healthy" } else { "" });
        std::fs::copy(&file, keep.join(name)).context("keep the trace")?;
    }
    remove(&file)?;
    Ok(run)
}

fn capture(testbed: &Testbed, binary: &Path, file: &Path, scenario: &Scenario, setup: &Setup) -> Result<ScenarioTruth> {
    let mut running = scenario.start(testbed, setup)?;
    let tracer = Gpuwhy::trace(binary, &running.pids(), file, &[])?;
    running.go()?;
    let truth = running.finish()?;
    // It ends by itself when the last process is gone.
    tracer.wait()?;
    Ok(truth)
}

fn explain(file: &Path) -> Result<Explanation> {
    Ok(gpuwhy_analysis::explain(&Trace::open(file)?.window(&Scope::default())?))
}

fn remove(file: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
