//! What tracing costs on the fakes: every figure is set against another one of the same run.

mod agent;
mod attach;
mod bpftrace;
mod gpuwhy;
mod machine;
mod overhead;
mod per_call;
mod statistics;
mod store;

use anyhow::{Context, Result, bail};
use gpuwhy_testbed::Testbed;
use serde_json::{Map, Value};

use crate::docs;

pub use self::overhead::BUSY_RATE;

/// Every part of the benchmark, in the order in which it runs.
const PARTS: &[Part] = &[
    Part { name: "per_call", run: per_call::run },
    Part { name: "attach", run: attach::run },
    Part { name: "store", run: store::run },
    Part { name: "agent", run: agent::run },
];

/// A part that takes so long that it runs only when it is asked for, and keeps results of its own.
const OVERHEAD: Part = Part { name: "overhead", run: overhead::run };

struct Part {
    name: &'static str,
    run: fn(&Place) -> Result<Value>,
}

/// Where a benchmark runs, and how thoroughly.
pub struct Place {
    pub testbed: Testbed,
    pub dir: tempfile::TempDir,
    pub quick: bool,
    /// How many pairs the overhead part measures, if not its own number.
    pub pairs: Option<usize>,
}

pub fn run(quick: bool, pairs: Option<usize>, only: Option<&str>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = Place { testbed: Testbed::unpack(dir.path())?, dir, quick, pairs };
    match only {
        None => keep(quick, "bench.json", &measure(&place, PARTS)?),
        Some(only) if only == OVERHEAD.name => keep(quick, "overhead.json", &measure(&place, &[OVERHEAD])?),
        Some(only) => match PARTS.iter().position(|part| part.name == only) {
            Some(index) => measure(&place, &PARTS[index..=index]).map(drop),
            None => bail!("there is no part {only:?}"),
        },
    }
}

fn measure(place: &Place, parts: &[Part]) -> Result<Value> {
    let mut results = Map::new();
    results.insert("machine".to_owned(), machine::facts());
    for part in parts {
        eprintln!("measuring {}", part.name);
        let result = (part.run)(place).with_context(|| format!("measure {}", part.name))?;
        println!("{}: {result:#}", part.name);
        results.insert(part.name.to_owned(), result);
    }
    Ok(results.into())
}

fn keep(quick: bool, file: &str, results: &Value) -> Result<()> {
    if quick {
        return Ok(());
    }
    let path = docs::root().join("docs/results").join(file);
    std::fs::create_dir_all(path.parent().context("no folder for results")?)?;
    std::fs::write(&path, format!("{results:#}\n"))?;
    docs::run(false)
}
