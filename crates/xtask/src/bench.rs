//! What tracing costs on the fakes: every figure is set against another one of the same run.

mod agent;
mod alerts;
mod attach;
mod bpftrace;
mod dashboard;
mod estimates;
mod explain;
mod export;
mod fleet;
mod gpuwhy;
mod large_trace;
mod machine;
mod nodes;
mod overhead;
mod per_call;
mod soak;
mod stacks;
mod statistics;
mod store;

use anyhow::{Context, Result, bail};
use gpuwhy_testbed::Testbed;
use serde_json::{Map, Value};

use crate::docs;

pub use self::dashboard::ROWS as DASHBOARD_ROWS;
pub use self::gpuwhy::{Gpuwhy, build as build_gpuwhy};
pub use self::large_trace::write_trace;
pub use self::machine::facts as machine_facts;
pub use self::overhead::{BUSY_RATE, NO_TRACER};

/// Every part of the benchmark, in the order in which it runs.
const PARTS: &[Part] = &[
    Part { name: "per_call", file: "bench.json", run: per_call::run },
    Part { name: "attach", file: "bench.json", run: attach::run },
    Part { name: "store", file: "bench.json", run: store::run },
    Part { name: "agent", file: "bench.json", run: agent::run },
];

/// Parts that take so long that they run only when they are asked for, and keep results of their own.
const LONG_PARTS: &[Part] = &[
    Part { name: "overhead", file: "overhead.json", run: overhead::run },
    Part { name: "estimates", file: "estimates.json", run: estimates::run },
    Part { name: "explain", file: "explain.json", run: explain::run },
    Part { name: "fleet", file: "fleet.json", run: fleet::run },
    Part { name: "nodes", file: "nodes.json", run: nodes::run },
    Part { name: "export", file: "export.json", run: export::run },
    Part { name: "alerts", file: "alerts.json", run: alerts::run },
    Part { name: "stacks", file: "stack-costs.json", run: stacks::run },
    Part { name: "collectives", file: "collective-costs.json", run: per_call::collectives },
    Part { name: "dashboard", file: "dashboard.json", run: dashboard::run },
    Part { name: "soak", file: "soak.json", run: soak::days },
    Part { name: "hour", file: "soak-hour.json", run: soak::hour },
];

struct Part {
    name: &'static str,
    /// Where its results are kept, in `docs/results`.
    file: &'static str,
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
        None => keep(quick, PARTS, measure(&place, PARTS)?),
        Some(only) => match (find(LONG_PARTS, only), find(PARTS, only)) {
            (Some(long), _) => keep(quick, long, measure(&place, long)?),
            (None, Some(part)) => measure(&place, part).map(drop),
            (None, None) => bail!("there is no part {only:?}"),
        },
    }
}

fn find<'a>(parts: &'a [Part], name: &str) -> Option<&'a [Part]> {
    let index = parts.iter().position(|part| part.name == name)?;
    Some(&parts[index..=index])
}

/// A figure of a query's answer; not a number where there is none.
fn figure(row: &[gpuwhy_store::Value], column: usize) -> f64 {
    row.get(column).and_then(|cell| cell.to_json().as_f64()).unwrap_or(f64::NAN)
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

/// All of these parts are kept in the same file.
fn keep(quick: bool, parts: &[Part], results: Value) -> Result<()> {
    match parts.first().filter(|_| !quick) {
        Some(part) => docs::save_results(part.file, results),
        None => Ok(()),
    }
}
