//! How soon several hosts answer who asks all of them.

use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::{Value, json};

use super::Place;
use super::gpuwhy::{self, Gpuwhy};
use super::large_trace::write_trace;
use super::statistics::median;

const HOSTS: [usize; 3] = [1, 4, 16];
/// Of each trace: some minutes of a job.
const ROWS: u64 = 100_000;
const ROUNDS: usize = 7;
const STATEMENT: &str = "SELECT op, sum(count) AS calls FROM call_stats GROUP BY op";

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let file = place.dir.path().join("host.db");
    write_trace(&file, ROWS)?;
    let mut counts = Vec::new();
    for hosts in HOSTS {
        let served = (0..hosts).map(|_| Gpuwhy::serve(&binary, &file)).collect::<Result<Vec<_>>>()?;
        let nodes = served.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",");
        // What has been asked before is known: each round asks for another part of the trace.
        let seconds = |words: &[&str], changes: &dyn Fn(usize) -> Vec<String>| -> Result<f64> {
            let round = |round| {
                let mut command = Command::new(&binary);
                command.args(words).args(changes(round)).args(["--nodes", &nodes]).stdout(Stdio::null());
                Ok(gpuwhy::timed(&mut command)?.0)
            };
            Ok(median((0..ROUNDS).map(round).collect::<Result<_>>()?))
        };
        let query = seconds(&["query"], &|round| vec![format!("{STATEMENT} LIMIT {}", 100 + round)])?;
        let explain = seconds(&["explain"], &|round| vec!["--since".to_owned(), format!("{}s", 3600 + round)])?;
        counts.push(json!({ "hosts": hosts, "query": query, "explain": explain }));
    }
    Ok(json!({ "rows": ROWS, "rounds": ROUNDS, "counts": counts }))
}
