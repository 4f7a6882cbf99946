//! How soon the dashboard's timeline shows a million events, and how smoothly it zooms, in a real browser.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::large_trace::write_trace;
use super::statistics::median;
use super::{Place, gpuwhy};
use crate::docs;

/// Rows of the trace, here and in the dashboard's tests.
pub const ROWS: u64 = 1_000_000;
const ROUNDS: usize = 5;
const WEB: &str = "web";

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let rows = if place.quick { ROWS / 10 } else { ROWS };
    let file = place.dir.path().join("large.db");
    write_trace(&file, rows)?;
    let rounds = (0..ROUNDS).map(|_| once(&binary, &file)).collect::<Result<Vec<Value>>>()?;
    let middle = |name: &str| median(rounds.iter().filter_map(|round| round[name].as_f64()).collect());
    Ok(json!({
        "rows": rows,
        "rounds": ROUNDS,
        "first_paint_ms": middle("first_paint_ms"),
        "frames_per_second": middle("frames_per_second"),
        "slowest_frame_ms": middle("slowest_frame_ms"),
        "each": rounds,
    }))
}

/// A server that has just been started knows no answer yet.
fn once(binary: &Path, file: &Path) -> Result<Value> {
    let mut server = Server::start(binary, file)?;
    let script = docs::root().join(WEB).join("bench.mjs");
    let looked = Command::new("node").arg(script).arg(server.address()?).output().context("start node")?;
    ensure!(looked.status.success(), "{}", String::from_utf8_lossy(&looked.stderr));
    serde_json::from_slice(&looked.stdout).context("read what the browser saw")
}

/// A dashboard that ends when this is dropped.
struct Server(Child);

impl Server {
    fn start(binary: &Path, file: &Path) -> Result<Self> {
        let mut command = Command::new(binary);
        command.arg("dashboard").arg("--db").arg(file).args(["--addr", "127.0.0.1:0", "--audit-log", "/dev/null"]);
        Ok(Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("start gpuwhy dashboard")?))
    }

    /// What it says first: `serving http://ADDRESS/; ...`.
    fn address(&mut self) -> Result<String> {
        let mut lines = BufReader::new(self.0.stderr.take().context("no output")?).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("serving ")?.split_once(';')?.0.to_owned()));
        address.context("the dashboard does not say where it is")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
