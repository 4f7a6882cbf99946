//! What tracing costs on this machine: the real programs on a function of our own, called by a thread of our own that
//! does a little work between two calls, as programs do. A probe in a tight loop would look cheaper than it is.

use std::arch::naked_asm;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuwhy_apis::rows;

use crate::attach::{Attached, LinkKind};
use crate::counts::CallCounts;
use crate::families::calls::{Calls, KEEP_ALL, KEEP_NONE, RowMode};
use crate::image::{Probe, file_offset_of};
use crate::run_time::{run_time, time_programs};
use crate::wire::TaskId;
use crate::yardstick::OWN_BINARY;

/// What things cost the thread they happen to, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// A probe that is hit while nobody wants to know.
    pub skipped_ns: f64,
    /// A call that is counted.
    pub counted_ns: f64,
    /// One that is also remembered in the recorder.
    pub recorded_ns: f64,
    /// One that gets a record.
    pub kept_ns: f64,
    /// What a probe costs more where the kernel has to single-step the instruction.
    pub stepped_extra_ns: f64,
    /// The part of a kept call that the program at its entry, or the one at its return, takes.
    pub program_ns: f64,
    /// Leaving the CPU and coming back, for a thread whose time is split.
    pub switch_ns: f64,
    pub is_virtual_machine: bool,
}

impl Calibration {
    /// Every figure by name.
    pub fn figures(&self) -> [(&'static str, f64); 7] {
        [
            ("skipped hit", self.skipped_ns),
            ("counted call", self.counted_ns),
            ("recorded call", self.recorded_ns),
            ("kept call", self.kept_ns),
            ("single step", self.stepped_extra_ns),
            ("program", self.program_ns),
            ("switch", self.switch_ns),
        ]
    }
}

/// Functions of our own: one that is never probed, one that is probed where the CUDA libraries are, on a `push`, and one
/// that is probed on an instruction that the kernel does not emulate.
#[unsafe(naked)]
extern "C" fn plain() {
    naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret")
}

#[unsafe(naked)]
extern "C" fn pushes() {
    naked_asm!("push rbp", "mov rbp, rsp", "xor eax, eax", "pop rbp", "ret")
}

#[unsafe(naked)]
extern "C" fn moves() {
    naked_asm!("mov eax, 0", "push rbp", "mov rbp, rsp", "pop rbp", "ret")
}

const TURNS: usize = 12;
const CALLS: u32 = 40;
const SLEEPS: u32 = 60;

/// What runs when a thread leaves the CPU and comes back takes about as long as this many programs at calls.
const PROGRAMS_OF_A_SWITCH: f64 = 5.0;

/// One thing to measure: the function that is called, and how the kernel side is set.
struct Way {
    function: extern "C" fn(),
    mode: RowMode,
    burst: bool,
    keep_min_ns: u64,
}

const WAYS: [Way; 6] = [
    Way { function: plain, mode: RowMode::ROW_IN_BURSTS, burst: true, keep_min_ns: KEEP_ALL },
    Way { function: pushes, mode: RowMode::ROW_IN_BURSTS, burst: false, keep_min_ns: KEEP_ALL },
    Way { function: pushes, mode: RowMode::ROW_COUNTED_IN_BURSTS, burst: true, keep_min_ns: KEEP_ALL },
    Way { function: pushes, mode: RowMode::ROW_IN_BURSTS, burst: true, keep_min_ns: KEEP_NONE - 1 },
    Way { function: pushes, mode: RowMode::ROW_IN_BURSTS, burst: true, keep_min_ns: KEEP_ALL },
    Way { function: moves, mode: RowMode::ROW_COUNTED_IN_BURSTS, burst: true, keep_min_ns: KEEP_ALL },
];

/// Takes some tens of milliseconds. `drain` empties the rings, which may be small. The caller throws away what the thread
/// that was traced for it left in rings and counters.
pub fn calibrate(
    calls: &mut Calls,
    counts: &mut CallCounts,
    hooks: &[BorrowedFd<'_>],
    drain: impl FnMut(),
) -> Result<(Calibration, TaskId)> {
    let row = rows().position(|row| row.meaning().is_kernel_launch()).context("no function that launches")?;
    let probe = |function: extern "C" fn()| -> Result<Probe> {
        let file_offset = file_offset_of(function as *const () as usize)?;
        Ok(Probe { row, symbol: "own".to_owned(), file_offset, emulated: true })
    };
    let probes = [probe(pushes)?, probe(moves)?];
    let attached = Attached::attach(&calls.programs(), Path::new(OWN_BINARY), &probes, LinkKind::Burst);
    let worker = Worker::start()?;
    calls.calibrate(worker.tid);
    let calibration = measure(&worker, calls, counts, row as u16, hooks, drain);
    calls.calibrate(0);
    let task = TaskId { pid: std::process::id(), tid: worker.tid };
    drop(worker);
    // Nobody has to wait for the removal.
    thread::spawn(move || drop(attached));
    Ok((calibration?, task))
}

fn measure(
    worker: &Worker,
    calls: &mut Calls,
    counts: &mut CallCounts,
    row: u16,
    hooks: &[BorrowedFd<'_>],
    mut drain: impl FnMut(),
) -> Result<Calibration> {
    // The first call makes the counter.
    calls.set_mode(row, RowMode::ROW_IN_BURSTS);
    calls.open_burst(true);
    worker.call(pushes)?;
    counts.hits();
    let mut costs: [Vec<f64>; WAYS.len()] = Default::default();
    for _ in 0..TURNS {
        for (way, costs) in WAYS.iter().zip(&mut costs) {
            calls.set_mode(row, way.mode);
            calls.open_burst(way.burst);
            counts.keep_from(std::process::id(), row, way.keep_min_ns);
            costs.push(worker.call(way.function)?);
        }
        drain();
    }
    calls.set_mode(row, RowMode::ROW_IN_BURSTS);
    let timed = program_times(worker, calls, hooks, drain)?;
    calls.set_mode(row, RowMode::ROW_ALWAYS);
    calls.open_burst(false);
    let [plain, skipped, counted, recorded, kept, stepped] = costs.map(median);
    let (program_ns, switch_ns) = timed.unwrap_or_else(|| {
        // At the entry and at the return, beside what a probe costs that is hit for nothing.
        let program_ns = ((kept - skipped) / 2.0).max(0.0);
        (program_ns, PROGRAMS_OF_A_SWITCH * program_ns)
    });
    Ok(Calibration {
        skipped_ns: (skipped - plain).max(0.0),
        counted_ns: (counted - plain).max(0.0),
        recorded_ns: (recorded - plain).max(0.0),
        kept_ns: (kept - plain).max(0.0),
        stepped_extra_ns: (stepped - counted).max(0.0),
        program_ns,
        switch_ns,
        is_virtual_machine: is_virtual_machine(),
    })
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied().unwrap_or(0.0)
}

/// What programs take, by the kernel's own clock: those at calls and those at switches. `None` where it may not be asked
/// to time them, which needs CAP_SYS_ADMIN.
fn program_times(
    worker: &Worker,
    calls: &Calls,
    hooks: &[BorrowedFd<'_>],
    mut drain: impl FnMut(),
) -> Result<Option<(f64, f64)>> {
    let Ok(_timing) = time_programs() else { return Ok(None) };
    let before = calls.run_time();
    for _ in 0..TURNS {
        worker.call(pushes)?;
        drain();
    }
    let program_ns = calls.run_time().since(before).mean_ns();
    let before = run_time(hooks.iter().copied());
    worker.sleep()?;
    let switches = run_time(hooks.iter().copied()).since(before);
    Ok(Some((program_ns, switches.ns as f64 / f64::from(SLEEPS))))
}

fn is_virtual_machine() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    std::arch::x86_64::__cpuid(1).ecx & HYPERVISOR != 0
}

enum Order {
    Call(extern "C" fn()),
    Sleep,
}

/// The thread that is measured.
struct Worker {
    tid: u32,
    orders: Option<Sender<Order>>,
    results: Receiver<f64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    fn start() -> Result<Self> {
        let (orders, inbox) = channel();
        let (outbox, results) = channel();
        let (tell_tid, tid) = channel();
        let thread = thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            let _ = tell_tid.send(unsafe { libc::gettid() } as u32);
            work(&inbox, &outbox);
        });
        let tid = tid.recv().context("the calibrating thread ended")?;
        Ok(Self { tid, orders: Some(orders), results, thread: Some(thread) })
    }

    /// Nanoseconds for a call and the work before it.
    fn call(&self, function: extern "C" fn()) -> Result<f64> {
        self.order(Order::Call(function))
    }

    fn sleep(&self) -> Result<f64> {
        self.order(Order::Sleep)
    }

    fn order(&self, order: Order) -> Result<f64> {
        let orders = self.orders.as_ref().context("no calibrating thread")?;
        orders.send(order).context("the calibrating thread ended")?;
        self.results.recv().context("the calibrating thread ended")
    }
}

impl Drop for Worker {
    /// The kernel tells of the thread's end before this returns.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(orders: &Receiver<Order>, results: &Sender<f64>) {
    let mut memory = vec![1u64; 4096];
    while let Ok(order) = orders.recv() {
        let start = Instant::now();
        let units = match order {
            Order::Call(function) => {
                for _ in 0..CALLS {
                    disturb_caches(&mut memory);
                    std::hint::black_box(function)();
                }
                CALLS
            }
            Order::Sleep => {
                for _ in 0..SLEEPS {
                    thread::sleep(Duration::from_micros(1));
                }
                SLEEPS
            }
        };
        if results.send(start.elapsed().as_nanos() as f64 / f64::from(units)).is_err() {
            return;
        }
    }
}

/// A few microseconds of work on 32 KiB.
fn disturb_caches(memory: &mut [u64]) {
    let mut sum = 0u64;
    for value in memory.iter_mut() {
        sum = sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(*value);
        *value = sum;
    }
    std::hint::black_box(sum);
}
