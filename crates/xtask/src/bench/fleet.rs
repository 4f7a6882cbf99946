//! What nodes take of a fleet that hears them, and how soon it knows who holds others up. Nodes are simulated; their digests are
//! made from a model of jobs and pushed over real sockets to the real server, as agents push them.

mod day;
mod real;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gpuwhy_fleet::{Digest, Part, STATES, Worker};
use gpuwhy_outputs::fleet::{packed, standings};
use gpuwhy_outputs::http::allow_many_connections;
use serde_json::{Value, json};

use super::Place;
use super::agent::cpu_seconds;
use super::gpuwhy::{self, Gpuwhy};
use super::soak::memory_mb;

const NODES: [usize; 3] = [100, 1_000, 10_000];
const RANKS_OF_NODE: usize = 8;
const NODES_OF_JOB: usize = 500;
/// Four steps a second, of which ranks wait a while, and come a little apart.
const STEPS: u64 = 4;
const STEP_NS: u64 = 250_000_000;
const WAIT_NS: u64 = 20_000_000;
const APART_NS: u64 = 2_000_000;
/// A straggler is late by this much of each step.
const LATE: f64 = 0.05;
const STRAGGLERS: usize = 5;
const THREADS: usize = 8;

const WARM_UP: Duration = Duration::from_secs(6);
const MEASURED: Duration = Duration::from_secs(20);
const LONGEST: Duration = Duration::from_secs(30);

pub fn run(place: &Place) -> Result<Value> {
    let binary = gpuwhy::build()?;
    // Each node has one.
    allow_many_connections();
    let nodes = if place.quick { &NODES[..1] } else { &NODES[..] };
    let counts = nodes.iter().map(|&nodes| measure(place, &binary, nodes)).collect::<Result<Vec<_>>>()?;
    let real = real::run(place, &binary)?;
    let day = day::run(place, &binary)?;
    Ok(json!({
        "real": real, "day": day,
        "ranks_of_node": RANKS_OF_NODE, "nodes_of_job": NODES_OF_JOB, "step_ns": STEP_NS, "late": LATE,
        "seconds": MEASURED.as_secs(), "counts": counts,
    }))
}

fn measure(place: &Place, binary: &Path, nodes: usize) -> Result<Value> {
    let data = tempfile::tempdir_in(&place.dir)?;
    let (server, address) = Gpuwhy::fleet(binary, data.path())?;
    let world = World::new(nodes);
    thread::scope(|threads| {
        let ends = EndsWorld(&world);
        let tellers: Vec<_> = (0..THREADS)
            .map(|thread| {
                threads.spawn({
                    let (world, address) = (&world, &address);
                    move || world.tell(thread, address)
                })
            })
            .collect();
        thread::sleep(WARM_UP);
        let before = (cpu_seconds(server.pid())?, Instant::now());
        world.begin_counting();
        thread::sleep(MEASURED);
        let seconds = before.1.elapsed().as_secs_f64();
        let cpu = (cpu_seconds(server.pid())? - before.0) / seconds;
        let counted = world.counted();
        let found = (0..STRAGGLERS).map(|number| world.find_straggler(&address, number)).collect::<Result<Vec<_>>>()?;
        let memory_mb = memory_mb(server.pid())?;
        drop(ends);
        for teller in tellers {
            teller.join().map_err(|_| anyhow::anyhow!("a node broke off"))??;
        }
        let Counted { pushes, bytes, false_alarms, mut latencies_us } = counted;
        latencies_us.sort_unstable();
        let at = |share: f64| latencies_us.get((latencies_us.len() as f64 * share) as usize).copied();
        Ok(json!({
            "nodes": nodes,
            "pushes_a_second": pushes as f64 / seconds,
            "bytes_of_rank_and_second": bytes as f64 / (pushes.max(1) as usize * RANKS_OF_NODE) as f64,
            "cpu": cpu,
            "memory_mb": memory_mb,
            "kept_mb": folder_mb(data.path())?,
            "push_p50_us": at(0.5), "push_p99_us": at(0.99),
            "false_alarms": false_alarms,
            "found_after_s": found.iter().map(|one| one.0).collect::<Vec<_>>(),
            "right": found.iter().filter(|one| one.1).count(),
        }))
    })
}

/// How much the files of a folder take, in megabytes.
fn folder_mb(folder: &Path) -> Result<f64> {
    let sizes = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len()));
    Ok(sizes.sum::<Result<u64>>()? as f64 / 1e6)
}

/// Jobs of many nodes. All of it follows from the time, so that nobody waits for anybody.
struct World {
    nodes: usize,
    began: Instant,
    is_over: AtomicBool,
    is_counted: AtomicBool,
    /// Which rank of the first job is late, if any, from which second on. It is the same for all ranks, however late they tell.
    late: Mutex<Vec<(u64, Option<u32>)>>,
    accounts: Vec<Mutex<Vec<Rank>>>,
    counted: Mutex<Counted>,
}

#[derive(Clone, Default)]
struct Rank {
    operations: u64,
    waited_ns: u64,
}

#[derive(Clone, Default)]
struct Counted {
    pushes: u64,
    bytes: u64,
    false_alarms: u64,
    latencies_us: Vec<u64>,
}

struct EndsWorld<'w>(&'w World);

impl Drop for EndsWorld<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl World {
    fn new(nodes: usize) -> Self {
        let accounts = (0..nodes).map(|_| Mutex::new(vec![Rank::default(); RANKS_OF_NODE])).collect();
        let (is_over, is_counted, late, counted) = Default::default();
        Self { nodes, began: Instant::now(), is_over, is_counted, late, accounts, counted }
    }

    /// Some of the nodes, each once a second over a connection of its own, spread over the second.
    fn tell(&self, thread: usize, address: &str) -> Result<()> {
        let told = self.tell_on(thread, address);
        if let Err(error) = &told {
            eprintln!("nodes of thread {thread}: {error:#}");
        }
        told
    }

    fn tell_on(&self, thread: usize, address: &str) -> Result<()> {
        let own: Vec<usize> = (thread..self.nodes).step_by(THREADS).collect();
        let mut connections: Vec<Connection> = own.iter().map(|_| Connection::new(address)).collect();
        for second in self.began.elapsed().as_secs() + 1.. {
            let mut counted = Counted::default();
            for (at, (&node, connection)) in own.iter().zip(&mut connections).enumerate() {
                let due = Duration::from_secs_f64(second as f64 + at as f64 / own.len() as f64);
                thread::sleep(due.saturating_sub(self.began.elapsed()));
                if self.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.push(node, second, connection, &mut counted)?;
            }
            if self.is_counted.load(Ordering::Relaxed) {
                self.lock().add(counted);
            }
        }
        Ok(())
    }

    fn push(&self, node: usize, second: u64, connection: &mut Connection, counted: &mut Counted) -> Result<()> {
        let body = packed(&format!("node-{node:05}"), "simulated", &self.digests(node, second));
        let begun = Instant::now();
        let answer = connection.post("/v1/metrics", "application/x-protobuf\r\nContent-Encoding: gzip", &body)?;
        counted.latencies_us.push(begun.elapsed().as_micros() as u64);
        counted.pushes += 1;
        counted.bytes += body.len() as u64;
        counted.false_alarms += standings(&answer).iter().filter(|standing| standing.since_ns > 0).count() as u64;
        Ok(())
    }

    fn digests(&self, node: usize, second: u64) -> Vec<Digest> {
        let (job, of_job) = (node / NODES_OF_JOB, node % NODES_OF_JOB);
        let ranks = (NODES_OF_JOB.min(self.nodes - job * NODES_OF_JOB) * RANKS_OF_NODE) as u32;
        let late = self.late_in(second);
        let mut accounts = self.accounts[node].lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(local, account): (usize, &mut Rank)| {
            let rank = (of_job * RANKS_OF_NODE + local) as u32;
            let others_wait = job == 0 && late.is_some_and(|late| late != rank);
            let late_ns = (STEP_NS as f64 * LATE) as u64;
            for _ in 0..STEPS {
                account.operations += 1;
                let apart_ns = noise(u64::from(rank) << 32 ^ account.operations) % APART_NS;
                account.waited_ns += WAIT_NS + if others_wait { late_ns } else { 0 } - apart_ns;
            }
            let mut thread_time = [0.0; STATES];
            (thread_time[0], thread_time[1], thread_time[2]) = (0.61, 0.02, 0.37);
            let part = Part {
                communicator: 0x00c0_ffee_0000_0000 + job as u64,
                rank,
                ranks,
                operations: account.operations,
                waited_ns: account.waited_ns,
                done_ns: account.operations * STEP_NS,
            };
            let labels = [("job", format!("job-{job}")), ("rank", rank.to_string()), ("user", "somebody".to_owned())];
            let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            let worker = Worker {
                pid: 4000 + local as u32,
                comm: "python3".to_owned(),
                device: Some(local as u16),
                gpu: Some("NVIDIA H200".to_owned()),
                labels,
            };
            Digest {
                at_ns: second * 1_000_000_000,
                worker,
                steps: STEPS as u32,
                step_ns: Some(STEP_NS),
                gpu_idle: 0.04,
                gpu_busy: 0.31,
                thread_time,
                parts: vec![part],
                lost: 0,
            }
        };
        accounts.iter_mut().enumerate().map(one).collect()
    }

    /// Lets a rank be late until the fleet says so, and on time until it says that too. How long the first took, and whether
    /// it was the right one alone.
    fn find_straggler(&self, address: &str, number: usize) -> Result<(f64, bool)> {
        let ranks = (NODES_OF_JOB.min(self.nodes) * RANKS_OF_NODE) as u64;
        let rank = (noise(number as u64) % ranks) as u32;
        let mut connection = Connection::new(address);
        let mut stragglers = || -> Result<Vec<Value>> {
            let answer = connection.post("/api/v1/tools/stragglers", "application/json", b"{}")?;
            let said: Value = serde_json::from_slice(&answer)?;
            Ok(said["stragglers"].as_array().context("no stragglers")?.clone())
        };
        let begun = self.late_from_next_second(Some(rank));
        let found = loop {
            let found = stragglers()?;
            if !found.is_empty() {
                break found;
            }
            ensure!(begun.elapsed() < LONGEST, "rank {rank} was not found");
            thread::sleep(Duration::from_millis(50));
        };
        let after = begun.elapsed().as_secs_f64();
        self.late_from_next_second(None);
        while !stragglers()?.is_empty() {
            ensure!(begun.elapsed() < 2 * LONGEST, "rank {rank} is late for ever");
            thread::sleep(Duration::from_millis(250));
        }
        Ok((after, found.len() == 1 && found[0]["rank"] == rank))
    }

    fn late_in(&self, second: u64) -> Option<u32> {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.iter().rev().find(|(from, _)| *from <= second).and_then(|(_, rank)| *rank)
    }

    /// Lets this rank be late, or none: when the first second begins that is so.
    fn late_from_next_second(&self, rank: Option<u32>) -> Instant {
        // What is told of a second is told after it.
        let second = self.began.elapsed().as_secs() + 2;
        self.late.lock().unwrap_or_else(PoisonError::into_inner).push((second, rank));
        self.began + Duration::from_secs(second - 1)
    }

    fn begin_counting(&self) {
        self.is_counted.store(true, Ordering::Relaxed);
    }

    fn counted(&self) -> Counted {
        self.is_counted.store(false, Ordering::Relaxed);
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.pushes += other.pushes;
        self.bytes += other.bytes;
        self.false_alarms += other.false_alarms;
        self.latencies_us.extend(other.latencies_us);
    }
}

/// splitmix64
fn noise(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// One that is opened when it is first needed, kept, and opened again if the other end gave it up, as agents do.
struct Connection {
    stream: Option<BufReader<TcpStream>>,
    host: String,
}

impl Connection {
    fn new(address: &str) -> Self {
        Self { stream: None, host: address.to_owned() }
    }

    fn open(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.host).context("connect to the fleet")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONGEST))?;
        Ok(BufReader::with_capacity(1024, stream))
    }

    fn post(&mut self, path: &str, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        if let Some(mut stream) = self.stream.take()
            && let Ok(answer) = self.post_over(&mut stream, path, kind, body)
        {
            self.stream = Some(stream);
            return Ok(answer);
        }
        let mut stream = self.open()?;
        let answer = self.post_over(&mut stream, path, kind, body)?;
        self.stream = Some(stream);
        Ok(answer)
    }

    fn post_over(&self, stream: &mut BufReader<TcpStream>, path: &str, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let (host, length) = (&self.host, body.len());
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        stream.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line)? > 0, "the fleet closed a connection");
            let text = line.trim_end();
            if status.is_empty() {
                status = text.to_owned();
            } else if text.is_empty() {
                break;
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        if !status.contains(" 200") {
            bail!("{status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }
}
