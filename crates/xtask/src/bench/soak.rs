//! Whether it can run for good: thirty days of a service on simulated time, and an hour of it on real time. What memory and
//! the file grow to, and whether every call is in the file or counted as expired.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuwhy_model::{
    Call, CallClass, CallStats, Layer, OpId, Process, ProcessId, Sample, Session, SessionEnd, ThreadId, ThreadTimes,
};
use gpuwhy_store::{Limits, Options, Trace, Writer};
use gpuwhy_testbed::Workload;
use serde_json::{Value, json};

use super::agent::status_number;
use super::gpuwhy::{self, Gpuwhy};
use super::{Place, figure};

const START_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const DAY_S: u64 = 24 * 3600;
const DAYS: u64 = 30;

/// The file's limit, and how it is given.
const MOST_BYTES: u64 = 64 << 20;
const MAX_SIZE: &str = "64MiB";

/// What happens is written once in so many seconds: calls of a program that stays, and of one that ends at once.
const EVERY_S: u64 = 10;
const CALLS: u64 = 200;
const CALL_NS: u64 = 6_000;

/// It is started anew on each of these days, and goes on from the last one.
const STARTED_DAYS: u64 = 15;

/// At the beginning of these days the clock is set, by so many seconds.
const CLOCK_STEPS: &[(u64, i64)] = &[(7, -3600), (14, 7200), (21, -5)];

pub fn days(place: &Place) -> Result<Value> {
    let file = place.dir.path().join("soak.db");
    let days = if place.quick { 2 } else { DAYS };
    let mut service = Service::default();
    let mut each = Vec::new();
    for day in 0..days {
        let begun = Instant::now();
        service.one_day(&file, day)?;
        each.push(json!({
            "day": day + 1, "file_mb": service.most_bytes as f64 / 1e6, "memory_mb": memory_mb(std::process::id())?,
            "seconds": begun.elapsed().as_secs_f64(),
        }));
    }
    service.end(days)?;
    let sums = "SELECT (SELECT sum(stored) FROM sessions), (SELECT sum(count) FROM losses WHERE reason = 'expired'), \
                (SELECT count(*) FROM cuda_events), (SELECT count(*) FROM processes)";
    let answer = Trace::open(&file)?.query(sums, &Limits::default())?;
    let row = answer.rows.first().context("no sums")?;
    let [stored, expired, rows, processes] = [0, 1, 2, 3].map(|column| figure(row, column));
    ensure!(rows == stored, "{rows} calls are in the file, and {stored} should be");
    Ok(json!({
        "days": each, "every_s": EVERY_S, "limit_mb": MOST_BYTES as f64 / 1e6, "seen": service.seen, "stored": stored,
        "expired": expired, "unaccounted": service.seen as f64 - stored - expired, "processes": service.processes,
        "processes_in_the_file": processes,
    }))
}

/// A service, and what has happened to it.
#[derive(Default)]
struct Service {
    session: Option<Running>,
    seen: u64,
    processes: u64,
    clock_off_s: i64,
    /// The most that the file has taken, with what lies beside it.
    most_bytes: u64,
}

struct Running {
    writer: Writer,
    op: OpId,
    /// Of a program that stays.
    stays: ThreadId,
    seen: u64,
}

impl Service {
    fn one_day(&mut self, file: &Path, day: u64) -> Result<()> {
        if day < STARTED_DAYS {
            self.end(day)?;
        }
        self.clock_off_s += CLOCK_STEPS.iter().filter(|(on, _)| *on == day).map(|(_, by)| by).sum::<i64>();
        let mut running = match self.session.take() {
            Some(running) => running,
            None => self.start(file, day)?,
        };
        for second in (0..DAY_S).step_by(EVERY_S as usize) {
            let now_ns = self.clock_ns(day * DAY_S + second);
            self.some_seconds(&mut running, now_ns)?;
            self.most_bytes = self.most_bytes.max(bytes(file));
        }
        ensure!(self.most_bytes <= MOST_BYTES, "the file has grown to {} bytes", self.most_bytes);
        self.session = Some(running);
        Ok(())
    }

    fn start(&mut self, file: &Path, day: u64) -> Result<Running> {
        let started_ns = self.clock_ns(day * DAY_S);
        let session = Session { started_ns, attach_path: "session".into(), ..Session::default() };
        let mut writer = Writer::open(file, &session, &Options { max_size: Some(MOST_BYTES) })?;
        let op = writer.op("cuLaunchKernel", Layer::Driver, CallClass::Launch, None)?;
        let (_, stays) = self.begins(&mut writer, "train")?;
        Ok(Running { writer, op, stays, seen: 0 })
    }

    /// The program that stays works, and another one comes and goes.
    fn some_seconds(&mut self, running: &mut Running, now_ns: u64) -> Result<()> {
        let Running { writer, op, stays, seen } = running;
        let (job, thread) = self.begins(writer, "job")?;
        *seen += write(writer, *op, *stays, now_ns, CALLS)? + write(writer, *op, thread, now_ns, CALLS / 10)?;
        writer.samples(&samples(now_ns, job))?;
        let then_ns = now_ns + EVERY_S * SECOND_NS;
        writer.thread_ended(thread, then_ns);
        writer.process_ended(job, then_ns);
        Ok(writer.commit(now_ns)?)
    }

    fn end(&mut self, day: u64) -> Result<()> {
        let Some(Running { writer, seen, .. }) = self.session.take() else { return Ok(()) };
        self.seen += seen;
        let ended_ns = self.clock_ns(day * DAY_S);
        Ok(writer.finish(&SessionEnd { ended_ns, seen, reason: "finished".into(), ..SessionEnd::default() })?)
    }

    fn clock_ns(&self, second: u64) -> u64 {
        (START_NS + second * SECOND_NS).saturating_add_signed(self.clock_off_s * SECOND_NS as i64)
    }

    /// Numbers of processes come again.
    fn begins(&mut self, writer: &mut Writer, comm: &str) -> Result<(ProcessId, ThreadId)> {
        self.processes += 1;
        let pid = 1000 + (self.processes % 30_000) as u32;
        let process = writer.process(&Process { pid, comm: comm.to_owned(), ..Process::default() })?;
        Ok((process, writer.thread(process, pid, comm)?))
    }
}

fn write(writer: &mut Writer, op: OpId, thread: ThreadId, now_ns: u64, count: u64) -> Result<u64> {
    let apart_ns = EVERY_S * SECOND_NS / count;
    let call = |at: u64| Call::new(thread, op, now_ns + at * apart_ns + u64::from(thread.0) % 1000, CALL_NS);
    writer.calls(&mut (0..count).map(call).collect::<Vec<_>>())?;
    writer.stats(&[CallStats::alike(now_ns, thread, op, count, CALL_NS)])?;
    writer.thread_times(&[ThreadTimes::new(now_ns, thread, SECOND_NS)])?;
    Ok(count)
}

fn samples(at_ns: u64, job: ProcessId) -> Vec<Sample> {
    let value = (at_ns / SECOND_NS % 100) as f64;
    let one = |name: &str, device: String| Sample {
        at_ns,
        name: name.to_owned(),
        unit: String::new(),
        device: Some(device),
        value,
    };
    let of_gpu = ["gpu.utilization", "gpu.memory.used", "gpu.power", "gpu.temperature"];
    let of_job = one("gpu.process.memory", format!("0/{}", job.0));
    of_gpu.iter().map(|name| one(name, "0".to_owned())).chain([of_job]).collect()
}

/// With its log, which is there while it is written.
fn bytes(file: &Path) -> u64 {
    let beside = |ending: &str| format!("{}{ending}", file.display());
    let sizes = ["", "-wal", "-shm"].iter().filter_map(|ending| std::fs::metadata(beside(ending)).ok());
    sizes.map(|file| file.len()).sum()
}

/// What a process has of memory now.
pub fn memory_mb(pid: u32) -> Result<f64> {
    Ok(status_number(pid, "VmRSS:")? as f64 * 1024.0 / 1e6)
}

/// A program that stays, and as fast as they come others that end at once.
const BUSY_RATE: f64 = 2_000.0;
const CALLS_OF_A_JOB: u64 = 100;
const MINUTES: u64 = 60;

pub fn hour(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    let minutes = if place.quick { 2 } else { MINUTES };
    let file = place.dir.path().join("hour.db");
    let lasts = Duration::from_secs(minutes * 60);
    let busy = Workload::new(&place.testbed).mix("launch").rate(BUSY_RATE).duration(lasts + lasts).limit(3 * lasts);
    let mut busy = busy.start()?;
    busy.wait_ready()?;
    let options = ["--max-size", MAX_SIZE, "--prometheus", "127.0.0.1:0"];
    let agent = Gpuwhy::trace(&binary, &[], &file, &options)?;
    busy.go()?;
    let begun = Instant::now();
    let (mut each, mut jobs, mut most_bytes) = (Vec::new(), 0, 0);
    for minute in 1..=minutes {
        while begun.elapsed() < Duration::from_secs(60 * minute) {
            let mut job = Workload::new(&place.testbed).mix("launch").calls(CALLS_OF_A_JOB).start()?;
            job.wait_ready()?;
            job.go()?;
            job.wait_done()?;
            job.finish()?;
            jobs += 1;
            most_bytes = bytes(&file).max(most_bytes);
        }
        let memory_mb = memory_mb(agent.pid())?;
        eprintln!("minute {minute}: {memory_mb:.1} MB, {jobs} jobs, file {most_bytes}");
        each.push(json!({ "minute": minute, "memory_mb": memory_mb, "jobs": jobs }));
    }
    agent.stop()?;
    drop(busy);
    let sums = "SELECT seen, stored, (SELECT sum(count) FROM losses) FROM sessions";
    let answer = Trace::open(&file)?.query(sums, &Limits::default())?;
    let row = answer.rows.first().context("no sums")?;
    let [seen, stored, lost] = [0, 1, 2].map(|column| figure(row, column));
    Ok(json!({
        "minutes": each, "limit_mb": MOST_BYTES as f64 / 1e6, "file_mb": most_bytes as f64 / 1e6, "jobs": jobs, "seen": seen,
        "stored": stored, "lost_or_expired": lost,
    }))
}
