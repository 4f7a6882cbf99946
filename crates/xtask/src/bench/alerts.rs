//! How soon an alert fires after a limit is broken, and whether it fires at all: real processes that break limits at known
//! times, and at other times only come near them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Place;
use super::gpuwhy::{Gpuwhy, build};
use super::statistics::summary;

/// Processes that allocate, and one that launches all the time and then waits for something.
const ALLOCATING: usize = 8;
const ALLOCATIONS: usize = 10;
const PAUSES: usize = 25;

const RULES: &str = r#"
[[alert]]
name = "memory"
when = "process-memory"
above = "1MiB"
until_after = "0s"
actions = ["lines"]

[[alert]]
name = "stalls"
when = "off-cpu"
above = "60%"
until_below = "60%"
until_after = "0s"
actions = ["lines"]
"#;

/// Says when it breaks a limit, in nanoseconds since 1970, and when it keeps it.
const PROGRAM: &str = r#"
import ctypes, random, sys, time
driver, what, rounds = ctypes.CDLL(sys.argv[1]), sys.argv[2], int(sys.argv[3])
random.seed(sys.argv[4])
word = ctypes.c_uint64
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
print("ready", flush=True)
sys.stdin.readline()

def say(kind):
    print(kind, time.time_ns(), flush=True)

def hold(size, seconds):
    address = word()
    driver.cuMemAlloc_v2(ctypes.byref(address), word(size))
    time.sleep(seconds)
    driver.cuMemFree_v2(address)

def launch(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        driver.cuLaunchKernel(word(1), 1, 1, 1, 1, 1, 1, 0, word(0), word(0), word(0))

for _ in range(rounds):
    if what == "memory":
        time.sleep(1 + random.random())
        say("near")
        hold(1 << 19, 0.5)
        time.sleep(random.random())
        say("broken")
        hold(2 << 20, 2.5)
    else:
        say("near")
        launch(2.2 + random.random())
        say("broken")
        time.sleep(2.5)
say("end")
"#;

pub fn run(place: &Place) -> Result<Value> {
    let binary = build()?;
    let (rules, lines) = (place.dir.path().join("rules.toml"), place.dir.path().join("alerts.jsonl"));
    let action = format!("[[action]]\nname = \"lines\"\njson = \"{}\"\n", lines.display());
    std::fs::write(&rules, format!("{action}{RULES}"))?;
    let rounds = |all: usize| if place.quick { 2 } else { all };
    let mut programs: Vec<Breaking> = (0..ALLOCATING)
        .map(|seed| Breaking::start(place, "memory", rounds(ALLOCATIONS), seed))
        .collect::<Result<_>>()?;
    programs.push(Breaking::start(place, "stalls", rounds(PAUSES), ALLOCATING)?);
    let pids: Vec<u32> = programs.iter().map(|program| program.child.id()).collect();
    let options = ["--rules", rules.to_str().context("a path of text")?];
    let tracer = Gpuwhy::trace(&binary, &pids, &place.dir.path().join("alerts.db"), &options)?;
    programs.iter_mut().for_each(|program| drop(program.child.stdin.take()));
    let said = programs.into_iter().map(Breaking::finish).collect::<Result<Vec<_>>>()?;
    tracer.wait()?;
    let fired = fired(&lines)?;
    let told = ["memory", "stalls"].map(|alert| judged(alert, &said, &fired));
    Ok(json!({ "alerts": told }))
}

struct Breaking {
    child: Child,
    alert: &'static str,
}

/// What a program said: which limit it broke, its pid, and when it did what.
struct Said {
    alert: &'static str,
    pid: u64,
    moments: Vec<(String, u64)>,
}

impl Breaking {
    fn start(place: &Place, alert: &'static str, rounds: usize, seed: usize) -> Result<Self> {
        let child = Command::new("python3")
            .args(["-c", PROGRAM])
            .arg(place.testbed.libcuda())
            .args([alert, &rounds.to_string(), &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start python3")?;
        Ok(Self { child, alert })
    }

    fn finish(self) -> Result<Said> {
        let pid = self.child.id().into();
        let output = self.child.wait_with_output()?;
        ensure!(output.status.success(), "the program failed: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        let moment = |line: &str| Some((line.split_once(' ')?.0.to_owned(), line.split_once(' ')?.1.parse().ok()?));
        Ok(Said { alert: self.alert, pid, moments: text.lines().filter_map(moment).collect() })
    }
}

/// When alerts fired, by name and process.
fn fired(lines: &Path) -> Result<BTreeMap<(String, u64), Vec<u64>>> {
    let mut fired: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for line in std::fs::read_to_string(lines).context("read what fired")?.lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["state"] == "firing" {
            let key = (event["alert"].as_str().unwrap_or_default().to_owned(), event["pid"].as_u64().unwrap_or(0));
            fired.entry(key).or_default().extend(event["at_ns"].as_u64());
        }
    }
    Ok(fired)
}

/// A limit is broken from when that is said to when the next thing is said.
fn judged(alert: &str, said: &[Said], fired: &BTreeMap<(String, u64), Vec<u64>>) -> Value {
    let (mut latencies, mut broken, mut near, mut false_alarms) = (Vec::new(), 0, 0, 0);
    for program in said.iter().filter(|program| program.alert == alert) {
        let alarms = fired.get(&(alert.to_owned(), program.pid)).cloned().unwrap_or_default();
        for pair in program.moments.windows(2) {
            let ((kind, from_ns), (_, to_ns)) = (&pair[0], &pair[1]);
            let within = alarms.iter().filter(|at_ns| (from_ns..to_ns).contains(at_ns));
            if kind == "broken" {
                broken += 1;
                latencies.extend(within.min().map(|at_ns| (at_ns - from_ns) as f64 / 1e9));
            } else {
                near += 1;
                false_alarms += within.count();
            }
        }
    }
    let fired_in_2_s = latencies.iter().filter(|seconds| **seconds <= 2.0).count();
    json!({
        "alert": alert, "broken": broken, "fired": latencies.len(), "fired_in_2_s": fired_in_2_s,
        "slowest_s": latencies.iter().copied().fold(0.0, f64::max), "latency_s": summary(latencies),
        "near": near, "false_alarms": false_alarms,
    })
}
