//! What one traced call costs the caller, in CPU time of its thread, beside an empty probe and bpftrace on the same
//! function. The ways take turns, so that a slow minute of the machine hits all of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuwhy_capture::{AttachPath, Image, Options, Record, Tracer, Yardstick};
use gpuwhy_testbed::Bench;
use serde_json::{Value, json};

use super::Place;
use super::bpftrace::{Bpftrace, HISTOGRAM, PRINT};
use super::statistics::median;

const FUNCTION: &str = "cuLaunchKernel";

/// Each way to watch a call: how it is named in the results and how it is put in place. The first two are what the
/// others are compared with.
const WAYS: &[Way] = &[
    Way { name: "untraced", start: |_| Ok(Box::new(())) },
    Way { name: "empty_session_probe", start: empty_probe },
    Way { name: "counted", start: |place| ours(&place.testbed.libcuda(), u64::MAX) },
    Way { name: "kept", start: |place| ours(&place.testbed.libcuda(), 0) },
    Way { name: "bpftrace_histogram", start: |place| bpftrace(place, HISTOGRAM) },
    Way { name: "bpftrace_print", start: |place| bpftrace(place, PRINT) },
];

/// Rounds of a turn. They are short, so that some are not disturbed.
const ROUNDS: usize = 30;
const CALLS: u64 = 2_000;
const WARM_UP: u64 = 5_000;

struct Way {
    name: &'static str,
    start: fn(&Place) -> Result<Box<dyn Watching>>,
}

/// Something that watches until it is dropped.
trait Watching {
    /// Records drained and CPU nanoseconds it took, for those that drain.
    fn drained(&mut self) -> Option<(u64, u64)> {
        None
    }
}

impl Watching for () {}

impl Watching for Bpftrace {}

pub fn run(place: &Place) -> Result<Value> {
    let turns = if place.quick { 3 } else { 15 };
    let mut bench = Bench::start(&place.testbed, 1)?;
    let mut costs: Vec<Vec<f64>> = WAYS.iter().map(|_| Vec::new()).collect();
    let mut drained = (0, 0);
    for _ in 0..turns {
        for (way, costs) in WAYS.iter().zip(&mut costs) {
            let mut watching = (way.start)(place).with_context(|| format!("start {}", way.name))?;
            bench.round(WARM_UP)?;
            for _ in 0..ROUNDS {
                costs.push(bench.round(CALLS)?.ns_per_call);
            }
            if let (true, Some((records, ns))) = (way.name == "kept", watching.drained()) {
                drained = (drained.0 + records, drained.1 + ns);
            }
        }
    }
    let best: Vec<f64> = costs.iter().map(|costs| costs.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    let medians: Vec<f64> = costs.into_iter().map(median).collect();
    let of_empty = |ns: &[f64], way: usize| (ns[way] - ns[0]) / (ns[1] - ns[0]);
    let rows: Vec<Value> = (0..WAYS.len())
        .map(|way| {
            json!({
                "way": WAYS[way].name,
                "best_ns": best[way], "best_added_ns": best[way] - best[0], "best_of_empty": of_empty(&best, way),
                "median_ns": medians[way], "median_of_empty": of_empty(&medians, way),
            })
        })
        .collect();
    let per_second = drained.0 as f64 / (drained.1 as f64 / 1e9);
    Ok(json!({"calls": CALLS, "rounds": turns * ROUNDS, "ways": rows, "drained_records_per_cpu_second": per_second}))
}

/// What an operation of several ranks costs its caller. Each of them is kept, with its rank and communicator.
pub fn collectives(place: &Place) -> Result<Value> {
    let turns = if place.quick { 3 } else { 15 };
    let mut bench = Bench::start_collectives(&place.testbed)?;
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..turns {
        for (is_traced, costs) in [false, true].into_iter().zip(&mut costs) {
            let _watching = if is_traced { Some(ours(&place.testbed.libnccl(), 0)?) } else { None };
            bench.round(WARM_UP)?;
            for _ in 0..ROUNDS {
                costs.push(bench.round(CALLS)?.ns_per_call);
            }
        }
    }
    let [untraced, traced] = costs;
    let best = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let best_added_ns = best(&traced) - best(&untraced);
    let median_added_ns = median(traced) - median(untraced);
    Ok(
        json!({ "calls": CALLS, "rounds": turns * ROUNDS, "best_added_ns": best_added_ns, "median_added_ns": median_added_ns }),
    )
}

fn empty_probe(place: &Place) -> Result<Box<dyn Watching>> {
    struct Empty(#[expect(dead_code)] Box<dyn std::any::Any>);
    impl Watching for Empty {}
    let library = place.testbed.libcuda();
    let image = Image::read(&library)?;
    let probe = image.probes.iter().find(|probe| probe.symbol.starts_with(FUNCTION)).context("no such function")?;
    Ok(Box::new(Empty(Box::new(Yardstick::attach_to(AttachPath::Session, &library, probe)?))))
}

/// The tracer with a thread that drains it, as the agent does.
struct Ours {
    stop: Arc<AtomicBool>,
    drain: Option<JoinHandle<(u64, u64)>>,
}

fn ours(library: &Path, keep_min_ns: u64) -> Result<Box<dyn Watching>> {
    let mut tracer = Tracer::load(&Options { keep_min_ns, ..Options::default() })?;
    let attached = tracer.attach(0, library, &Image::read(library)?)?.context("nothing attached")?;
    if !attached.refused.is_empty() {
        bail!("refused: {:?}", attached.refused);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let drain = std::thread::spawn(move || {
        let mut totals = (0, 0);
        while !stopped.load(Ordering::Relaxed) {
            let before = thread_cpu_ns();
            let records = tracer.drain();
            totals.0 += records.iter().filter(|record| matches!(record, Record::Call(_))).count() as u64;
            totals.1 += thread_cpu_ns() - before;
            tracer.wait(Duration::from_millis(40));
        }
        totals
    });
    Ok(Box::new(Ours { stop, drain: Some(drain) }))
}

impl Watching for Ours {
    fn drained(&mut self) -> Option<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        self.drain.take()?.join().ok()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.drained();
    }
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn bpftrace(place: &Place, script: &str) -> Result<Box<dyn Watching>> {
    Ok(Box::new(Bpftrace::start(&place.testbed.libcuda(), FUNCTION, script)?))
}
