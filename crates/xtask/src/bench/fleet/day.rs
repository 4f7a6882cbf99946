//! How long questions take about a day of a cluster, and what that takes of the disk.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use gpuwhy_fleet::{News, Sums, ToldWorker, WINDOW_NS, Worker, window_of};
use serde_json::{Value, json};

use super::super::Place;
use super::super::gpuwhy::Gpuwhy;
use super::{Connection, RANKS_OF_NODE, folder_mb};

const NODES: usize = 1_000;
const NODES_OF_JOB: usize = 50;
const HOUR_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 24 * HOUR_NS;
/// Of the time before, only minutes are kept: one of their windows has all of it.
const FINE_NS: u64 = 2 * HOUR_NS;
const CLUSTER: &str = "simulated";
const MOST_BYTES: u64 = 32 << 30;
/// Of several.
const TIMES: usize = 3;

const QUESTIONS: &[(&str, &str, &str)] = &[
    ("what idle GPUs and stragglers cost in a day, by job", "cost", r#"{"since":"24h"}"#),
    ("the same, by hour", "cost", r#"{"since":"24h","by":"hour"}"#),
    ("what has changed since the day's first half, by node", "compare", r#"{"since":"12h"}"#),
    ("what has changed in ten minutes, by job", "compare", r#"{"since":"10m","by":"job"}"#),
    ("events of a day", "events", r#"{"since":"24h"}"#),
    ("findings of a day", "findings", r#"{"since":"24h"}"#),
    (
        "the ten nodes that were idle longest, by SQL",
        "sql",
        r#"{"sql":"SELECT node, sum(gpu_idle_ns) AS idle FROM spans_1h JOIN workers USING (worker) GROUP BY node ORDER BY idle DESC LIMIT 10"}"#,
    ),
];

pub fn run(place: &Place, binary: &Path) -> Result<Value> {
    let (nodes, past_ns) = if place.quick { (10, 3 * HOUR_NS) } else { (NODES, DAY_NS) };
    let data = tempfile::tempdir_in(&place.dir)?;
    let begun = Instant::now();
    let windows = write(data.path(), nodes, past_ns)?;
    println!("{windows} windows of {} workers in {:.0} s", nodes * RANKS_OF_NODE, begun.elapsed().as_secs_f64());
    let kept_mb = folder_mb(data.path())?;
    let (_server, address) = Gpuwhy::fleet(binary, data.path())?;
    let mut connection = Connection::new(&address);
    let ask = |(what, name, parameters): &(&str, &str, &str)| {
        let mut seconds = f64::INFINITY;
        for _ in 0..TIMES {
            let begun = Instant::now();
            let path = format!("/api/v1/tools/{name}");
            connection.post(&path, "application/json", parameters.as_bytes()).with_context(|| what.to_string())?;
            seconds = seconds.min(begun.elapsed().as_secs_f64());
        }
        println!("{seconds:.2} s {what}");
        Ok(json!({ "what": what, "seconds": seconds }))
    };
    let questions = QUESTIONS.iter().map(ask).collect::<Result<Vec<Value>>>()?;
    Ok(json!({ "nodes": nodes, "hours": past_ns / HOUR_NS, "kept_mb": kept_mb, "questions": questions }))
}

/// Writes a past through the same code that keeps what nodes tell: how many windows it has.
fn write(folder: &Path, nodes: usize, past_ns: u64) -> Result<usize> {
    let (gathered, mut keeper) = gpuwhy_history::open(folder, MOST_BYTES, None)?;
    let gathered = Mutex::new(gathered);
    let now_ns = window_of(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64);
    let began_ns = now_ns - past_ns;
    let workers: Vec<ToldWorker> = (0..nodes * RANKS_OF_NODE).map(|number| worker(number, began_ns)).collect();
    let (mut at_ns, mut windows, mut is_first) = (began_ns, 0, true);
    while at_ns < now_ns {
        let span_ns = if at_ns + FINE_NS < now_ns { 6 * WINDOW_NS } else { WINDOW_NS };
        let mut news = News::default();
        for (number, worker) in workers.iter().enumerate() {
            news.sums.insert((at_ns, worker.id), sums(number, at_ns, span_ns));
        }
        if std::mem::take(&mut is_first) {
            news.told = workers.iter().map(|worker| (worker.id, at_ns)).collect();
            news.workers.clone_from(&workers);
        }
        let mut locked = gathered.lock().map_err(|_| anyhow::anyhow!("a panic"))?;
        locked.clusters.cluster(CLUSTER).context("too many clusters")?.put_back(news);
        drop(locked);
        keeper.keep(&gathered)?;
        (at_ns, windows) = (at_ns + span_ns, windows + 1);
        if windows % 60 == 0 {
            keeper.tidy(at_ns)?;
        }
    }
    keeper.tidy(now_ns)?;
    Ok(windows)
}

fn worker(number: usize, first_ns: u64) -> ToldWorker {
    let (node, local) = (number / RANKS_OF_NODE, number % RANKS_OF_NODE);
    let labels = [("job", format!("job-{}", node / NODES_OF_JOB)), ("user", "somebody".to_owned())];
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let (gpu, comm) = (Some("NVIDIA H200".to_owned()), "python3".to_owned());
    let worker = Worker { pid: 4000 + local as u32, comm, device: Some(local as u16), gpu, labels };
    let node = format!("node-{node:05}");
    ToldWorker { id: worker.id(&node), node, worker, first_ns }
}

/// As many digits as real ones have.
fn sums(number: usize, at_ns: u64, span_ns: u64) -> Sums {
    let odd = super::noise((number as u64) << 40 ^ at_ns) % 1_000_000;
    let share = |percent: u64| span_ns / 100 * percent + odd;
    let steps = span_ns / 250_000_000;
    let (held_up, wait) = (if number == 7 { share(9) } else { 0 }, share(8));
    Sums([span_ns, steps, share(99), share(4), share(31), share(61), share(2), share(37), wait, held_up])
}
