//! How fast calls are stored and how many bytes each takes. Prints one JSON line.
//!
//! `cargo run --release -p gpuwhy-store --example write_rate -- [MILLIONS] [FILE] [CAP_MIB]`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpuwhy_model::{Call, CallClass, Layer, ModuleId, OpId, Process, Session, SessionEnd, ThreadId};
use gpuwhy_store::{Limits, Options, Trace, Value, Writer};

/// Calls in one transaction.
const BATCH: u64 = 10_000;

const START_NS: u64 = 1_790_000_000_000_000_000;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let millions: f64 = arguments.next().as_deref().unwrap_or("2").parse()?;
    let path = arguments.next().map_or_else(|| std::env::temp_dir().join("gpuwhy-write-rate.db"), PathBuf::from);
    let calls = (millions * 1e6) as u64 / BATCH * BATCH;
    let cap_mib: Option<u64> = arguments.next().map(|cap| cap.parse()).transpose()?;
    let options = Options { max_size: cap_mib.map(|mib| mib << 20) };
    println!("{}", write_rate(&path, calls, &options)?);
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Writes launches of four threads to a new file, and reports rows per second of this one thread and bytes per row.
pub fn write_rate(path: &Path, calls: u64, options: &Options) -> anyhow::Result<String> {
    let session = Session { started_ns: START_NS, ..Session::default() };
    let mut writer = Writer::open(path, &session, options)?;
    let workload = Workload::new(&mut writer)?;
    let mut clock = Clock::default();
    for first in (0..calls).step_by(BATCH as usize) {
        let mut batch: Vec<Call> = (first..first + BATCH).map(|number| workload.call(number)).collect();
        clock.time(|| {
            writer.calls(&mut batch)?;
            writer.commit(START_NS + first * 5_000)
        })?;
    }
    clock.time(|| writer.finish(&SessionEnd { seen: calls, ..SessionEnd::default() }))?;
    report(path, calls, &clock)
}

fn report(path: &Path, calls: u64, clock: &Clock) -> anyhow::Result<String> {
    let stored = Trace::open(path)?.query("SELECT stored FROM sessions", &Limits::default())?.rows;
    let Some([Value::Integer(stored)]) = stored.first().map(Vec::as_slice) else {
        anyhow::bail!("{} has no session", path.display());
    };
    let per_second = |time: Duration| calls as f64 / time.as_secs_f64();
    let (rows_per_second, rows_per_cpu_second) = (per_second(clock.wall), per_second(clock.cpu));
    let bytes_per_row = path.metadata()?.len() as f64 / *stored as f64;
    Ok(format!(
        r#"{{"calls":{calls},"stored":{stored},"rows_per_second":{rows_per_second:.0},"rows_per_cpu_second":{rows_per_cpu_second:.0},"bytes_per_row":{bytes_per_row:.2}}}"#
    ))
}

/// Time spent writing, on the clock and on the CPU: other work on the machine shows in the first only.
#[derive(Default)]
struct Clock {
    wall: Duration,
    cpu: Duration,
}

impl Clock {
    fn time<T, E>(&mut self, work: impl FnOnce() -> Result<T, E>) -> anyhow::Result<T>
    where
        anyhow::Error: From<E>,
    {
        let (wall, cpu) = (Instant::now(), cpu_time()?);
        let done = work()?;
        self.wall += wall.elapsed();
        self.cpu += cpu_time()?.saturating_sub(cpu);
        Ok(done)
    }
}

fn cpu_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(ns))
}

struct Workload {
    op: OpId,
    caller: ModuleId,
    threads: Vec<ThreadId>,
}

impl Workload {
    fn new(writer: &mut Writer) -> anyhow::Result<Self> {
        let op = writer.op("cuLaunchKernel", Layer::Driver, CallClass::Launch, Some("cudaLaunchKernel"))?;
        let caller = writer.module("/usr/lib/libcudart.so.12", true)?;
        let process = writer.process(&Process { pid: 4242, comm: "python".into(), ..Process::default() })?;
        let threads = (0..4).map(|at| writer.thread(process, 4242 + at, "python")).collect::<Result<_, _>>()?;
        Ok(Self { op, caller, threads })
    }

    /// A launch of one of 100 kernels on one of two streams, 3 to 20 us long; every 50th lost the CPU for a while.
    fn call(&self, number: u64) -> Call {
        let random = scramble(number);
        let runqueue_ns = if number.is_multiple_of(50) { 40_000 + random % 100_000 } else { 0 };
        let thread = self.threads[(random >> 16) as usize % self.threads.len()];
        let start_ns = START_NS + number * 5_000 + random % 20_000;
        Call {
            runqueue_ns,
            device: Some(0),
            stream: Some(0x5555_0000_1000 + (random >> 20) % 2 * 0x40),
            handle: Some(0x5555_8000_0000 + (random >> 24) % 100 * 0x100),
            caller: Some(self.caller),
            ..Call::new(thread, self.op, start_ns, 3_000 + (random >> 8) % 17_000 + runqueue_ns)
        }
    }
}

fn scramble(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
