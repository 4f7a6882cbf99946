//! A family is a BPF object with its loader. `calls` comes first and owns the maps that all share; the others are
//! listed in `FAMILIES`, and one that the kernel refuses does not take the rest down.

mod block;
pub mod calls;
mod clock;
mod ioctl;
mod life;
mod maps;
mod memory;
mod sched;
mod tcp;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapHandle, OpenObject, ProgramMut};

use clock::Ticks;
pub use maps::{SharedMaps, StackMaps};

pub const FAMILIES: &[Family] =
    &[sched::FAMILY, life::FAMILY, block::FAMILY, memory::FAMILY, ioctl::FAMILY, tcp::FAMILY];

pub struct Family {
    pub name: &'static str,
    /// What is missing from a trace without it; `None` when there can be no trace.
    pub without: Option<&'static str>,
    pub load: fn(&Settings, &SharedMaps) -> Result<Loaded>,
}

/// A family that there can be a trace without, and whether the kernel takes it.
#[derive(Clone, Debug)]
pub struct FamilyState {
    pub name: &'static str,
    /// What is missing from a trace without it.
    pub without: &'static str,
    pub refused: Option<String>,
}

impl FamilyState {
    pub fn warning(&self) -> Option<String> {
        let Self { name, without, refused } = self;
        refused.as_ref().map(|error| format!("the kernel refuses the {name} family ({error}): no {without}"))
    }
}

/// A family in the kernel; dropping it takes it out.
#[derive(Default)]
pub struct Loaded {
    /// The iterator over the clocks of watched threads, from the family that keeps them.
    pub thread_clocks: Option<Link>,
    /// What makes it look at who runs, from the family that does.
    pub ticks: Option<Ticks>,
    /// Files not to tell of again, from the family that tells of them.
    pub seen_files: Option<MapHandle>,
    /// Who uses which block device how much, from the family that adds it up.
    pub io_usage: Option<MapHandle>,
    /// Its programs, to ask the kernel about them.
    pub programs: Vec<OwnedFd>,
    pub links: Vec<Link>,
    _skeleton: Option<Box<dyn Send>>,
}

impl Loaded {
    fn new(programs: Vec<OwnedFd>, links: Vec<Link>, skeleton: impl Skel<'static> + 'static) -> Self {
        Self { programs, links, _skeleton: Some(kept(skeleton)), ..Self::default() }
    }
}

/// Fixed before any program is loaded.
#[derive(Clone, Debug)]
pub struct Settings {
    pub tracer_pid: u32,
    pub ring_mask: u32,
    pub filter_targets: bool,
    pub target_user: Option<u32>,
    /// Whether a thread can get its state where the scheduler's locks are held.
    pub state_at_wakeups: bool,
    /// Whether `sched_switch` says what state a thread leaves its CPU in.
    pub switches_say_state: bool,
}

/// libbpf wants a place for the object that outlives the skeleton; it is the size of a pointer.
fn object_place() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// Handles to programs that outlive the skeleton.
fn handles(programs: &[&ProgramMut<'_>]) -> Result<Vec<OwnedFd>> {
    programs.iter().map(|program| program.as_fd().try_clone_to_owned().context("keep a program")).collect()
}

/// A skeleton that is only kept to be dropped.
fn kept(skeleton: impl Skel<'static> + 'static) -> Box<dyn Send> {
    struct Kept<T>(T);
    // SAFETY: nothing but dropping is done with it, and libbpf objects may be closed from any thread.
    unsafe impl<T: Skel<'static>> Send for Kept<T> {}
    Box::new(Kept(skeleton))
}

/// Each object has its own copy of the settings.
macro_rules! apply_settings {
    ($open:ident, $settings:ident) => {{
        let rodata = $open.maps.rodata_data.as_deref_mut().context("the object has no settings")?;
        rodata.tracer_pid = $settings.tracer_pid;
        rodata.ring_mask = $settings.ring_mask;
        rodata.filter_targets = $settings.filter_targets;
        rodata.filter_user = $settings.target_user.is_some();
        rodata.target_user = $settings.target_user.unwrap_or_default();
    }};
}
pub(crate) use apply_settings;
