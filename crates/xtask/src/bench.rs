//! What tracing costs on the fakes: every figure is set against another one of the same run.

mod agent;
mod attach;
mod machine;
mod per_call;
mod store;

use anyhow::{Context, Result};
use gpuwhy_testbed::Testbed;
use serde_json::{Map, Value, json};

use crate::docs;

/// Every part of the benchmark, in the order in which it runs.
const PARTS: &[Part] = &[
    Part { name: "per_call", run: per_call::run },
    Part { name: "attach", run: attach::run },
    Part { name: "store", run: store::run },
    Part { name: "agent", run: agent::run },
];

struct Part {
    name: &'static str,
    run: fn(&Place) -> Result<Value>,
}

/// Where a benchmark runs, and how thoroughly.
pub struct Place {
    pub testbed: Testbed,
    pub dir: tempfile::TempDir,
    pub quick: bool,
}

pub fn run(quick: bool, only: Option<&str>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = Place { testbed: Testbed::unpack(dir.path())?, dir, quick };
    let mut results = Map::new();
    results.insert("machine".to_owned(), machine::facts());
    for part in PARTS.iter().filter(|part| only.is_none_or(|only| part.name == only)) {
        eprintln!("measuring {}", part.name);
        let result = (part.run)(&place).with_context(|| format!("measure {}", part.name))?;
        println!("{}: {result:#}", part.name);
        results.insert(part.name.to_owned(), result);
    }
    if quick || only.is_some() {
        return Ok(());
    }
    let path = docs::root().join("docs/results/bench.json");
    std::fs::create_dir_all(path.parent().context("no folder for results")?)?;
    std::fs::write(&path, format!("{:#}\n", json!(results)))?;
    docs::run(false)
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
