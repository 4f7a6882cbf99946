//! A family is a BPF object with its loader. `calls` comes first and owns the maps that all share; the others are
//! listed in `FAMILIES`, and one that the kernel refuses does not take the rest down.

mod block;
pub mod calls;
mod ioctl;
mod life;
mod memory;
mod sched;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapHandle, OpenObject, ProgramMut};

use crate::stacks::StackMaps;

pub const FAMILIES: &[Family] = &[sched::FAMILY, life::FAMILY, block::FAMILY, memory::FAMILY, ioctl::FAMILY];

pub struct Family {
    pub name: &'static str,
    /// What is missing from a trace without it; `None` when there can be no trace.
    pub without: Option<&'static str>,
    pub load: fn(&Settings, &SharedMaps) -> Result<Loaded>,
}

/// A family in the kernel; dropping it takes it out.
#[derive(Default)]
pub struct Loaded {
    /// The iterator over the clocks of watched threads, from the family that keeps them.
    pub thread_clocks: Option<Link>,
    /// Files not to tell of again, from the family that tells of them.
    pub seen_files: Option<MapHandle>,
    /// Who uses which block device how much, from the family that adds it up.
    pub io_usage: Option<MapHandle>,
    /// Its programs, to ask the kernel about them.
    pub programs: Vec<OwnedFd>,
    _links: Vec<Link>,
    _skeleton: Option<Box<dyn Send>>,
}

impl Loaded {
    fn new(programs: Vec<OwnedFd>, links: Vec<Link>, skeleton: impl Skel<'static> + 'static) -> Self {
        Self { programs, _links: links, _skeleton: Some(kept(skeleton)), ..Self::default() }
    }
}

/// Fixed before any program is loaded.
#[derive(Clone, Debug)]
pub struct Settings {
    pub tracer_pid: u32,
    pub ring_mask: u32,
    pub filter_targets: bool,
    pub target_user: Option<u32>,
}

/// The maps of `shared.bpf.h`, created by `calls`.
pub struct SharedMaps {
    pub threads: MapHandle,
    pub targets: MapHandle,
    pub known_processes: MapHandle,
    pub losses: MapHandle,
    pub rings: MapHandle,
    pub completions: MapHandle,
    /// Those of `stacks.bpf.h`.
    pub stacks: StackMaps,
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

/// Hands an object the maps that `calls` created.
macro_rules! share_maps {
    ($open:ident, $shared:ident) => {{
        use std::os::fd::AsFd;
        $open.maps.threads.reuse_fd($shared.threads.as_fd())?;
        $open.maps.targets.reuse_fd($shared.targets.as_fd())?;
        $open.maps.known_processes.reuse_fd($shared.known_processes.as_fd())?;
        $open.maps.losses.reuse_fd($shared.losses.as_fd())?;
        $open.maps.rings.reuse_fd($shared.rings.as_fd())?;
        $open.maps.completions.reuse_fd($shared.completions.as_fd())?;
    }};
}
pub(crate) use share_maps;

/// Hands an object that walks stacks what it needs for that.
macro_rules! share_stack_maps {
    ($open:ident, $stacks:expr) => {{
        use std::os::fd::AsFd;
        $open.maps.code_mappings.reuse_fd($stacks.code_mappings.as_fd())?;
        $open.maps.unwind_shards.reuse_fd($stacks.unwind_shards.as_fd())?;
        $open.maps.walked_processes.reuse_fd($stacks.walked_processes.as_fd())?;
        $open.maps.python_layouts.reuse_fd($stacks.python_layouts.as_fd())?;
        $open.maps.seen_stacks.reuse_fd($stacks.seen_stacks.as_fd())?;
        $open.maps.walk_memory.reuse_fd($stacks.walk_memory.as_fd())?;
        $open.maps.code_copies.reuse_fd($stacks.code_copies.as_fd())?;
        $open.maps.walk_counts.reuse_fd($stacks.walk_counts.as_fd())?;
        $open.maps.stack_settings.reuse_fd($stacks.stack_settings.as_fd())?;
        $open.maps.walks.reuse_fd($stacks.walks.as_fd())?;
        $open.maps.walks_under_way.reuse_fd($stacks.walks_under_way.as_fd())?;
    }};
}
pub(crate) use share_stack_maps;
