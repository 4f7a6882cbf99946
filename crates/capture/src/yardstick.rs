//! Tries probes on a function of our own: which attach path this kernel has, and what a bare probe costs here.

use std::arch::naked_asm;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::attach::{AttachPath, LinkKind, Programs, links};
use crate::features::quietly;
use crate::image::{Probe, file_offset_of};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/yardstick.skel.rs"));
}

/// A function that starts with a `push`, as those of the CUDA libraries do.
#[unsafe(naked)]
extern "C" fn probed() {
    naked_asm!("push rbp", "mov rbp, rsp", "pop rbp", "ret")
}

pub const OWN_BINARY: &str = "/proc/self/exe";

#[derive(Clone, Copy, Debug)]
pub struct Yardstick {
    pub path: AttachPath,
    /// An entry and a return with a program that does nothing.
    pub probe_ns: u64,
}

impl Yardstick {
    /// Tries the paths from the best to the plainest; takes a few milliseconds.
    pub fn measure() -> Result<Self> {
        quietly(Self::measure_best)
    }

    fn measure_best() -> Result<Self> {
        let mut refusals = Vec::new();
        for &path in AttachPath::ALL {
            match probe_cost_ns(path) {
                Ok(probe_ns) => return Ok(Self { path, probe_ns }),
                Err(error) => refusals.push(format!("{}: {error:#}", path.as_str())),
            }
        }
        anyhow::bail!("the kernel attaches no uprobe ({})", refusals.join("; "))
    }

    /// The same for a path that was asked for.
    pub fn measure_path(path: AttachPath) -> Result<Self> {
        Ok(Self { path, probe_ns: probe_cost_ns(path)? })
    }

    /// Whether the kernel takes links of a path.
    pub fn attaches(path: AttachPath) -> bool {
        own_probe().and_then(|probe| attach(path, Path::new(OWN_BINARY), &probe)).is_ok()
    }

    /// The programs that do nothing, on any function, until the result is dropped.
    pub fn attach_to(path: AttachPath, file: &Path, probe: &Probe) -> Result<Vec<Link>> {
        attach(path, file, probe)
    }
}

fn probe_cost_ns(path: AttachPath) -> Result<u64> {
    let bare = best_call_ns();
    let _links = attach(path, Path::new(OWN_BINARY), &own_probe()?)?;
    Ok(best_call_ns().saturating_sub(bare))
}

fn own_probe() -> Result<Probe> {
    let file_offset = file_offset_of(probed as *const () as usize)?;
    Ok(Probe { row: 0, symbol: "probed".to_owned(), file_offset, emulated: true })
}

/// The fastest of a few rounds, since whatever disturbs a round makes it slower.
fn best_call_ns() -> u64 {
    const ROUNDS: u32 = 8;
    const CALLS: u32 = 250;
    let round = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(probed as extern "C" fn())();
        }
        start.elapsed().as_nanos() as u64 / u64::from(CALLS)
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or(0)
}

fn attach(path: AttachPath, file: &Path, probe: &Probe) -> Result<Vec<Link>> {
    let mut place = MaybeUninit::uninit();
    let mut open = skeleton::YardstickSkelBuilder::default().open(&mut place).context("open")?;
    let progs = &mut open.progs;
    progs.empty_session.set_autoload(path == AttachPath::Session);
    progs.empty_multi.set_autoload(path == AttachPath::Multi);
    progs.empty_one.set_autoload(path == AttachPath::Single);
    progs.empty_return.set_autoload(path == AttachPath::Single);
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let programs = match path {
        AttachPath::Session => Programs::Session(&progs.empty_session),
        AttachPath::Multi => Programs::Multi { enter: &progs.empty_multi, leave: &progs.empty_multi },
        AttachPath::Single => Programs::Single { enter: &progs.empty_one, leave: &progs.empty_return },
    };
    links(&programs, file, std::slice::from_ref(probe), LinkKind::FIRST)
}
