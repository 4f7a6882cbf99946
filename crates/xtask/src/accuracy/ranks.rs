//! How often the rank that is late, or that leaves the others hanging, is named: a job of several ranks in Python on the fake
//! GPU, traced from its start with default settings and explained while it still runs.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use gpuwhy_model::{Explanation, Finding, Severity};
use gpuwhy_store::{Limits, Trace, Value as Cell, apart};
use gpuwhy_testbed::Testbed;
use serde_json::{Value, json};

use super::{explain, remove};
use crate::bench::{build_gpuwhy, machine_facts};
use crate::docs;

/// What a rank does in each step that makes it late, and how that is told.
const LATE: &[(&str, &[&str])] =
    &[("computes", &["computing"]), ("sleeps", &["asleep"]), ("writes", &["disk"]), ("locks", &["lock", "asleep"])];

/// How a rank leaves the others hanging, and how that is told.
const HANGS: &[(&str, &str)] = &[
    ("never_entered", "does not take part"),
    ("mismatch", "asks for something else"),
    ("circle", "in another communicator"),
    ("never_left", "does not come out"),
    ("all_stuck", "none is done with it"),
];

const BALANCED: &str = "balanced";
const BECOMES_LATE: &str = "becomes_late";
const BALANCED_RUNS: usize = 4;

/// Hangs are tried once in this many rounds: they differ less from run to run.
const HANGS_EVERY: u64 = 5;

/// A step's time on the GPU, and how much later a rank is: 5 ms is more than 5 % of it.
const STEP_MS: u64 = 40;
const LATE_MS: [u64; 2] = [5, 16];

/// Who becomes late shall be told within two of its iterations and a second.
const SOON_MS: u64 = 1000 + 2 * (STEP_MS + LATE_MS[1]);

/// A rank that becomes late does so in this step.
const LATE_FROM: u64 = 200;

/// A late rank is explained when it is over, a hang as soon as it is told.
const LATE_FOR: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(25);

/// `keep` is a folder for the traces of runs that went wrong. Where there are `only` some kinds, nothing is written.
pub fn run(rounds: u64, keep: Option<PathBuf>, only: &[String]) -> Result<()> {
    let kinds =
        || LATE.iter().map(|late| late.0).chain(HANGS.iter().map(|hang| hang.0)).chain([BALANCED, BECOMES_LATE]);
    if let Some(unknown) = only.iter().find(|name| !kinds().any(|kind| kind == *name)) {
        bail!("there are no runs called '{unknown}', but {}", kinds().collect::<Vec<_>>().join(", "));
    }
    let dir = tempfile::tempdir()?;
    let testbed = Testbed::unpack(dir.path())?;
    let bench = Bench { testbed, binary: build_gpuwhy()?, dir: dir.path().to_owned(), keep };
    let is_wanted = |kind: &str| only.is_empty() || only.iter().any(|one| one == kind);
    let mut runs = Vec::new();
    let late_or_not = || LATE.iter().copied().chain(std::iter::repeat_n((BALANCED, &[][..]), BALANCED_RUNS));
    for round in 0..rounds {
        let (ranks, late_ms) = (2 + round % 4, LATE_MS[(round / 2 % 2) as usize]);
        for (number, (kind, told)) in (round * 8..).zip(late_or_not()).filter(|(_, (kind, _))| is_wanted(kind)) {
            runs.push(bench.done(bench.late(kind, told, ranks, late_ms, off_ns(number))?, round)?);
        }
        if is_wanted(BECOMES_LATE) {
            runs.push(bench.done(bench.becomes_late(ranks)?, round)?);
        }
        for (kind, told) in HANGS.iter().filter(|(kind, _)| round.is_multiple_of(HANGS_EVERY) && is_wanted(kind)) {
            runs.push(bench.done(bench.hang(kind, told, ranks.max(3))?, round)?);
        }
    }
    if !only.is_empty() {
        return Ok(());
    }
    docs::save_results("ranks.json", json!({ "machine": machine_facts(), "step_ms": STEP_MS, "runs": runs }))
}

/// By how much the clock of another host is off: anything up to five seconds, in both directions.
fn off_ns(number: u64) -> i64 {
    (number * 1_370_000_017 % 10_000_000_001) as i64 - 5_000_000_000
}

struct Bench {
    testbed: Testbed,
    binary: PathBuf,
    dir: PathBuf,
    keep: Option<PathBuf>,
}

impl Bench {
    fn trace(&self) -> PathBuf {
        self.dir.join("ranks.db")
    }

    /// Tells of a run. Its trace is gone, or kept if something was wrong.
    fn done(&self, run: Value, round: u64) -> Result<Value> {
        println!("{run}");
        let is_late = run["kind"] == BECOMES_LATE && run["told_after_ms"].as_u64().is_none_or(|ms| ms > SOON_MS);
        let is_wrong = is_late || ["right", "right_on_hosts", "cause_right"].iter().any(|key| run[key] == false);
        if let (Some(keep), true) = (&self.keep, is_wrong) {
            let name = format!("{}-{round}.db", run["kind"].as_str().unwrap_or_default());
            std::fs::copy(self.trace(), keep.join(name)).context("keep the trace")?;
        }
        remove(&self.trace())?;
        Ok(run)
    }

    /// What is said of the job as it ran, and as if its ranks had run on two hosts.
    fn late(&self, kind: &str, told: &[&str], ranks: u64, late_ms: u64, off_ns: i64) -> Result<Value> {
        let file = self.trace();
        let late_ms = if kind == BALANCED { 0 } else { late_ms };
        let mut job = Job::start(self, &file, kind, ranks, LATE_FOR, &[late_ms, STEP_MS * 1000 / 5])?;
        job.wait()?;
        let (explanation, on_hosts) = (explain(&file)?, self.explain_apart(&file, off_ns)?);
        let (first, first_on_hosts) = (straggler(&explanation), straggler(&on_hosts.explanation));
        let others_cpu = kind == BALANCED && first_on_hosts.is_some_and(|found| on_hosts.is_kept_by_a_rank(found));
        let is_right = |found: Option<&Finding>| {
            found.map(|found| found.culprit.as_ref().map(|one| one.pid)) == (kind != BALANCED).then_some(job.different)
        };
        let mut run = json!({
            "kind": kind, "ranks": ranks, "late_ms": late_ms, "said": said(first), "right": is_right(first),
            "clock_off_ms": off_ns / 1_000_000, "said_on_hosts": said(first_on_hosts),
            "right_on_hosts": is_right(first_on_hosts) || others_cpu, "shared_cpu": others_cpu,
        });
        if kind != BALANCED {
            let line = |finding: &Finding| finding.r#where.first().and_then(|place| place.line);
            let marked = marked(kind)?;
            run["cause_right"] = first.is_some_and(|one| told.iter().any(|words| one.summary.contains(words))).into();
            run["line_right"] = first.and_then(line).is_some_and(|line| marked.contains(&line)).into();
        }
        Ok(run)
    }

    /// Ranks with odd numbers on another host, whose clock is off.
    fn explain_apart(&self, file: &Path, off_ns: i64) -> Result<Apart> {
        let of_ranks = "SELECT DISTINCT pid, rank % 2 FROM nccl_events WHERE rank >= 0";
        let ranks = Trace::open(file)?.query(of_ranks, &Limits::default())?.rows;
        let hosts = [0, 1].map(|host| self.dir.join(format!("host{host}.db")));
        for (host, copy) in (0..).zip(&hosts) {
            std::fs::copy(file, copy)?;
            for rank in &ranks {
                if let [Cell::Integer(pid), Cell::Integer(on)] = rank[..]
                    && on != host
                {
                    apart::forget(copy, pid as u32)?;
                }
            }
        }
        apart::on_another_host(&hosts[1], "node-b", off_ns)?;
        let merged = self.dir.join("merged.db");
        let done = Command::new(&self.binary).arg("merge").args(&hosts).arg("-o").arg(&merged).output()?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let explanation = explain(&merged)?;
        hosts.iter().chain([&merged]).try_for_each(|file| remove(file))?;
        Ok(Apart { explanation, ranks: ranks.into_iter().flatten().step_by(2).collect() })
    }

    /// A rank that is late from some step on, while the job goes on.
    fn becomes_late(&self, ranks: u64) -> Result<Value> {
        let file = self.trace();
        let (late_ms, kernel_us) = (LATE_MS[1], STEP_MS * 1000 / 5);
        let mut job = Job::start(self, &file, "sleeps", ranks, 2 * PATIENCE, &[late_ms, kernel_us, LATE_FROM])?;
        let found = self.poll(&file, |one| one.cause == "straggler" && one.severity > Severity::Low);
        let told_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64;
        job.end();
        job.wait()?;
        // It came in time for the operation before.
        let sql = format!("SELECT max(timestamp_ns) FROM nccl_events WHERE rank = 1 AND seq = {}", LATE_FROM - 1);
        let since = Trace::open(&file)?.query(&sql, &Limits::default())?.rows.into_iter().flatten().next();
        let mut run = json!({ "kind": BECOMES_LATE, "ranks": ranks, "late_ms": late_ms, "said": said(found.as_ref()) });
        let culprit = found.and_then(|found| Some(found.culprit?.pid));
        run["right"] = (culprit.is_some() && culprit == job.different).into();
        if let (Some(Cell::Integer(since_ns)), Some(_)) = (since, culprit) {
            run["told_after_ms"] = ((told_ns - since_ns).max(0) / 1_000_000).into();
        }
        Ok(run)
    }

    /// Asks what the file says, as a user would, until it tells of something. Who asks ten times a second must not take CPUs
    /// from the ranks, which have two.
    fn poll(&self, file: &Path, is_it: impl Fn(&Finding) -> bool) -> Option<Finding> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
            let ask = [self.binary.as_os_str(), "explain".as_ref(), file.as_os_str(), "--json".as_ref()];
            let said = Command::new("nice").args(["-n", "19"]).args(ask).output().ok()?;
            let explanation: Option<Explanation> = serde_json::from_slice(&said.stdout).ok();
            let found = explanation.and_then(|explanation| explanation.findings.into_iter().find(&is_it));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The file is asked again and again until it tells.
    fn hang(&self, kind: &str, told: &str, ranks: u64) -> Result<Value> {
        let file = self.trace();
        let mut job = Job::start(self, &file, kind, ranks, 2 * PATIENCE, &[])?;
        let found = self.poll(&file, |one| one.cause == "collective-hang");
        job.end();
        job.wait()?;
        let mut run = json!({ "kind": kind, "ranks": ranks, "said": said(found.as_ref()), "right": false });
        if let Some(found) = found {
            let is_blamed = found.culprit.as_ref().map(|one| one.pid) == job.different || kind == "all_stuck";
            let with_lines = found.chain.edges().filter(|edge| edge.what.contains("ranks.py:")).count() as u64;
            run["right"] = (found.summary.contains(told) && is_blamed).into();
            run["every_rank_has_its_line"] = (with_lines >= ranks).into();
            run["told_after_ms"] = (found.impact.lost_ns / 1_000_000).into();
        }
        Ok(run)
    }
}

/// What is said of ranks as if they had run on two hosts.
struct Apart {
    explanation: Explanation,
    /// The processes of all ranks.
    ranks: Vec<Cell>,
}

impl Apart {
    /// Whether a rank that is said to be on the other host had the CPU. They share the CPUs of this machine, and no host knows
    /// that the stranger is a rank.
    fn is_kept_by_a_rank(&self, found: &Finding) -> bool {
        // As a rank it would be told with its number.
        let is_told = |stranger: &str| found.chain.edges().any(|edge| edge.what.contains(stranger));
        let is_named = |pid: &Cell| matches!(pid, Cell::Integer(pid) if is_told(&format!("({pid})")));
        found.summary.contains("waiting for a CPU") && self.ranks.iter().any(is_named)
    }
}

fn straggler(explanation: &Explanation) -> Option<&Finding> {
    explanation.findings.iter().find(|finding| finding.severity > Severity::Low && finding.cause == "straggler")
}

fn said(finding: Option<&Finding>) -> Value {
    finding.map_or(Value::Null, |finding| finding.summary.as_str().into())
}

fn program() -> PathBuf {
    docs::root().join("crates/gpuwhy/tests/programs/ranks.py")
}

/// The lines of the program that are to blame.
fn marked(kind: &str) -> Result<Vec<u32>> {
    let source = std::fs::read_to_string(program()).context("read the program")?;
    let mark = format!("# {kind}");
    Ok((1..).zip(source.lines()).filter(|(_, line)| line.ends_with(&mark)).map(|(number, _)| number).collect())
}

/// A traced job.
struct Job {
    tracer: Child,
    /// The process of the rank that is different.
    different: Option<u32>,
}

impl Job {
    fn start(bench: &Bench, file: &Path, kind: &str, ranks: u64, lasts: Duration, more: &[u64]) -> Result<Self> {
        let mut command = Command::new(&bench.binary);
        command.args(["trace", "--live", "never", "--out"]).arg(file).arg("--");
        command.args(["python3", "-B"]).arg(program()).arg(bench.testbed.libcuda()).arg(lasts.as_secs().to_string());
        command.arg(bench.testbed.libnccl()).arg(kind).arg(ranks.to_string());
        command.args(more.iter().map(u64::to_string)).current_dir(&bench.dir).process_group(0);
        let mut tracer = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("start gpuwhy")?;
        let mut line = String::new();
        BufReader::new(tracer.stdout.take().context("no output")?).read_line(&mut line)?;
        Ok(Self { tracer, different: line.trim().parse().ok() })
    }

    /// The tracer ends as it should, and ranks at once, wherever they are.
    fn end(&self) {
        // SAFETY: the child has not been waited for, so the group that it leads is still its own.
        unsafe { libc::kill(-(self.tracer.id() as i32), libc::SIGTERM) };
    }

    fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < 4 * PATIENCE {
            if self.tracer.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the tracer does not end")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.tracer.kill();
        let _ = self.tracer.wait();
    }
}
