//! Puts the call tracer's programs on a file's functions, in the cheapest way the kernel has.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::{ptr, thread};

use anyhow::{Context, Result};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};

use crate::image::Probe;
use crate::skeleton::types::cookie_bits;

/// How probes are attached, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachPath {
    /// One link for a file's entries and returns (Linux 6.13).
    Session,
    /// One link for its entries and one for its returns (Linux 6.6).
    Multi,
    /// A link for each entry and each return.
    Single,
}

impl AttachPath {
    pub const ALL: &'static [Self] = &[Self::Session, Self::Multi, Self::Single];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Multi => "multi",
            Self::Single => "single",
        }
    }
}

/// The programs of one attach path.
pub enum Programs<'a> {
    Session(&'a ProgramMut<'a>),
    Multi { enter: &'a ProgramMut<'a>, leave: &'a ProgramMut<'a> },
    Single { enter: &'a ProgramMut<'a>, leave: &'a ProgramMut<'a> },
}

/// What calls a link sees, see `is_due` in `calls.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind<'a> {
    /// Those of every process that maps the file. The generation of each row tells links apart of which one takes the
    /// other's place.
    Always(&'a [u8]),
    /// The same, while a burst is open.
    Burst,
    /// Those of one process, which has no part in bursts.
    OneProcess(u32),
}

impl LinkKind<'_> {
    /// Where no link takes another one's place.
    pub const FIRST: Self = Self::Always(&[]);

    fn pid(self) -> i32 {
        match self {
            Self::Always(_) | Self::Burst => -1,
            Self::OneProcess(pid) => pid as i32,
        }
    }

    fn cookie(self, probe: &Probe) -> u64 {
        let kind = match self {
            Self::Always(generations) => {
                let generation = generations.get(probe.row).copied().unwrap_or(0);
                u32::from(generation) << cookie_bits::COOKIE_GENERATION_SHIFT.0
            }
            Self::Burst => cookie_bits::COOKIE_BURST.0,
            Self::OneProcess(_) => cookie_bits::COOKIE_OWN_LINK.0,
        };
        probe.row as u64 | u64::from(kind)
    }
}

/// Links that are removed when this is dropped.
#[derive(Default)]
pub struct Attached {
    links: Vec<Link>,
    pub probes: usize,
    /// Functions the kernel refused to probe, with its reason.
    pub refused: Vec<(String, String)>,
}

// SAFETY: a link is a descriptor and its bookkeeping in libbpf, neither of which belongs to a thread.
unsafe impl Send for Attached {}

impl Attached {
    /// Probes functions of a file. Those the kernel refuses are left out and listed.
    pub fn attach(programs: &Programs<'_>, file: &Path, probes: &[Probe], kind: LinkKind<'_>) -> Self {
        let mut attached = Self::default();
        attached.attach_or_split(programs, file, probes, kind);
        attached
    }

    /// One refused function fails a whole link: halve the list until it stands alone.
    fn attach_or_split(&mut self, programs: &Programs<'_>, file: &Path, probes: &[Probe], kind: LinkKind<'_>) {
        if probes.is_empty() {
            return;
        }
        match links(programs, file, probes, kind) {
            Ok(links) => {
                self.links.extend(links);
                self.probes += probes.len();
            }
            Err(error) if probes.len() == 1 => {
                self.refused.push((probes[0].symbol.clone(), format!("{error:#}")));
            }
            Err(_) => {
                let (first, second) = probes.split_at(probes.len() / 2);
                self.attach_or_split(programs, file, first, kind);
                self.attach_or_split(programs, file, second, kind);
            }
        }
    }
}

/// Lets go of links without waiting for the kernel: to remove one takes it a tenth of a second, on a crowded machine
/// seconds, and it removes one after the other. A child that does nothing else holds them a moment longer than this
/// process does, and removes them by ending.
pub fn leave_to_child<T>(links: T) -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: the child calls only close, read and _exit, which are safe after a fork of a threaded process.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let mut byte = 0u8;
            // SAFETY: both descriptors are open and `byte` is writable; nothing after `_exit` runs.
            unsafe {
                // Whoever reads the parent's output must not wait for this child.
                (0..=2).for_each(|standard| {
                    libc::close(standard);
                });
                libc::close(writer.as_raw_fd());
                libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0)
            }
        }
        child => child,
    };
    drop(links);
    drop(writer);
    // SAFETY: waitpid has no preconditions. This process may end before.
    thread::spawn(move || unsafe { libc::waitpid(child, ptr::null_mut(), 0) });
    Ok(())
}

pub fn links(programs: &Programs<'_>, file: &Path, probes: &[Probe], kind: LinkKind<'_>) -> Result<Vec<Link>> {
    match programs {
        Programs::Session(program) => Ok(vec![multi(program, file, probes, kind, false, true)?]),
        Programs::Multi { enter, leave } => {
            // Returns first, so that no entry is open without its return.
            Ok(vec![multi(leave, file, probes, kind, true, false)?, multi(enter, file, probes, kind, false, false)?])
        }
        Programs::Single { enter, leave } => probes
            .iter()
            .flat_map(|probe| [single(leave, file, probe, kind, true), single(enter, file, probe, kind, false)])
            .collect(),
    }
}

fn multi(
    program: &ProgramMut<'_>,
    file: &Path,
    probes: &[Probe],
    kind: LinkKind<'_>,
    retprobe: bool,
    session: bool,
) -> Result<Link> {
    let options = UprobeMultiOpts {
        offsets: probes.iter().map(|probe| probe.file_offset as usize).collect(),
        cookies: probes.iter().map(|probe| kind.cookie(probe)).collect(),
        retprobe,
        session,
        ..Default::default()
    };
    program
        .attach_uprobe_multi_with_opts(kind.pid(), file, "", options)
        .with_context(|| format!("attach {} probes in {}", probes.len(), file.display()))
}

fn single(program: &ProgramMut<'_>, file: &Path, probe: &Probe, kind: LinkKind<'_>, retprobe: bool) -> Result<Link> {
    let options = UprobeOpts { cookie: kind.cookie(probe), retprobe, func_name: None, ..Default::default() };
    program
        .attach_uprobe_with_opts(kind.pid(), file, probe.file_offset as usize, options)
        .with_context(|| format!("attach {} in {}", probe.symbol, file.display()))
}
