//! What one stack costs the thread it is taken from: programs that call the driver from stacks of known shape, traced
//! with all stacks. The kernel side times every walk, from the moment it is wanted until it is told of.

mod tables;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuwhy_store::{Answer, Limits, Trace};
use gpuwhy_testbed::stacks::{Nested, NestedCalls, Python, Witnesses};
use serde_json::{Value, json};

use super::gpuwhy::{self, Gpuwhy};
use super::statistics::{median, summary};
use super::{Place, figure};

/// More than the CPU's own caches hold.
const FORGET_KILOBYTES: u32 = 8192;

/// Every stack that is measured, by its name in the results.
const SHAPES: &[Shape] = &[
    Shape { name: "native_tables", nested: Nested::C { frames: 30, kilobytes: 0 } },
    Shape { name: "native_tables_cold", nested: Nested::C { frames: 30, kilobytes: FORGET_KILOBYTES } },
    Shape { name: "native_frame_pointers", nested: Nested::CFramePointers { frames: 30, kilobytes: 0 } },
    Shape {
        name: "native_frame_pointers_cold",
        nested: Nested::CFramePointers { frames: 30, kilobytes: FORGET_KILOBYTES },
    },
    Shape { name: "native_deep", nested: Nested::C { frames: 100, kilobytes: 0 } },
    Shape { name: "python", nested: Nested::Python { frames: MANY_PYTHON } },
    Shape { name: "python_few", nested: Nested::Python { frames: FEW_PYTHON } },
];
/// The two that have nothing but Python's frames to tell them apart, where Python calls Python without a native frame.
const MANY_PYTHON: u32 = 8;
const FEW_PYTHON: u32 = 2;

const ROUNDS: usize = 5;
/// The first and the last second of a run are not whole.
const LENGTH: Duration = Duration::from_secs(4);
/// Until all unwind tables are there.
const SETTLE: Duration = Duration::from_secs(1);

struct Shape {
    name: &'static str,
    nested: Nested,
}

/// What one run found.
struct Run {
    native: f64,
    python: f64,
    /// The mean of each whole second.
    seconds_ns: Vec<f64>,
    walks: f64,
}

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let witnesses = Witnesses::unpack(place.dir.path())?;
    let rounds = if place.quick { 1 } else { ROUNDS };
    let mut runs: Vec<Vec<Run>> = SHAPES.iter().map(|_| Vec::new()).collect();
    let mut like_python = Vec::new();
    for _ in 0..rounds {
        for (shape, runs) in SHAPES.iter().zip(&mut runs) {
            runs.push(once(place, &binary, &witnesses, shape.nested).with_context(|| format!("stack {}", shape.name))?);
        }
        like_python.push(once(place, &binary, &witnesses, as_native_as_python(&runs)?)?);
    }
    let named = SHAPES.iter().map(|shape| shape.name).zip(&runs);
    let rows: Vec<Value> =
        named.chain([("native_as_python", &like_python)]).map(|(name, runs)| row(name, runs)).collect();
    Ok(json!({
        "rounds": rounds,
        "python": Python::ask(Path::new("python3"), "import platform; print(platform.python_version())"),
        "stacks": rows,
        "python_ns": python_ns(&rows),
        "tables": tables::run()?,
    }))
}

fn row(name: &str, runs: &[Run]) -> Value {
    let best = runs.iter().flat_map(|run| &run.seconds_ns).copied().fold(f64::INFINITY, f64::min);
    json!({
        "name": name,
        "native_frames": runs.first().map(|run| run.native),
        "python_frames": runs.first().map(|run| run.python),
        "walks": runs.iter().map(|run| run.walks).sum::<f64>(),
        "best_ns": best,
        "ns": summary(runs.iter().map(|run| median(run.seconds_ns.clone())).collect()),
    })
}

/// A program in C with as many native frames as the one in Python has.
fn as_native_as_python(runs: &[Vec<Run>]) -> Result<Nested> {
    let python = SHAPES.iter().position(|shape| shape.name == "python").context("no such shape")?;
    let run = runs[python].last().context("Python was not measured")?;
    Ok(Nested::C { frames: run.native as u32, kilobytes: 0 })
}

/// What Python's frames take of the mixed stack, in two ways: beside a stack with as many native frames, and from what
/// each further frame adds.
fn python_ns(rows: &[Value]) -> Value {
    let best = |name: &str| {
        rows.iter().find(|row| row["name"] == name).and_then(|row| row["best_ns"].as_f64()).unwrap_or(f64::NAN)
    };
    let each = (best("python") - best("python_few")) / f64::from(MANY_PYTHON - FEW_PYTHON);
    json!({ "beside_native": best("python") - best("native_as_python"), "each_frame": each })
}

fn once(place: &Place, binary: &Path, witnesses: &Witnesses, nested: Nested) -> Result<Run> {
    let out = place.dir.path().join("stacks.db");
    let program = NestedCalls::start(witnesses, nested, LENGTH)?;
    let agent = Gpuwhy::trace(binary, &[program.pid()], &out, &["--budget", "0", "--stacks", "all"])?;
    std::thread::sleep(SETTLE);
    program.run()?;
    agent.wait()?;
    let run = read(&out);
    std::fs::remove_file(&out)?;
    run
}

const FRAMES: &str = "
SELECT sum(kind = 'native'), sum(kind = 'python') FROM stack_lines WHERE is_inlined = 0 AND stack_id =
  (SELECT stack_id FROM calls WHERE stack_id IS NOT NULL GROUP BY stack_id ORDER BY count(*) DESC LIMIT 1)";
const SECONDS: &str = "
SELECT sum(walking_ns) * 1.0 / sum(count), sum(count), sum(end = 'complete' AND python_end IN ('complete', 'not_python')) = count(*)
FROM stack_stats WHERE moment = 'call' GROUP BY bucket_ns ORDER BY bucket_ns";

fn read(file: &Path) -> Result<Run> {
    let trace = Trace::open(file)?;
    let ask = |sql: &str| -> Result<Answer> { trace.query(sql, &Limits::default()).context("ask for stacks") };
    let frames = ask(FRAMES)?;
    let frames = frames.rows.first().context("no stack was taken")?;
    let seconds = ask(SECONDS)?.rows;
    ensure!(seconds.len() > 2, "too short to have a whole second");
    let whole = &seconds[1..seconds.len() - 1];
    ensure!(whole.iter().all(|second| figure(second, 2) == 1.0), "some walks did not reach the end");
    Ok(Run {
        native: figure(frames, 0),
        python: figure(frames, 1),
        seconds_ns: whole.iter().map(|second| figure(second, 0)).collect(),
        walks: whole.iter().map(|second| figure(second, 1)).sum(),
    })
}
