//! The call tracer: uprobes on library functions, and the maps they share with the other families.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapImpl, libbpf_sys};

use super::{Settings, SharedMaps, apply_settings, object_place};
use crate::attach::{AttachPath, Programs};
use crate::wire;

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/calls.skel.rs"));
}
pub use skeleton::types;

pub struct Calls {
    skeleton: skeleton::CallsSkel<'static>,
    path: AttachPath,
}

// SAFETY: libbpf objects have no thread affinity; `Calls` is moved between threads, never shared.
unsafe impl Send for Calls {}

impl Calls {
    pub fn load(settings: &Settings, path: AttachPath) -> Result<Self> {
        let mut open = skeleton::CallsSkelBuilder::default().open(object_place()).context("open")?;
        apply_settings!(open, settings);
        let progs = &mut open.progs;
        progs.call_session.set_autoload(path == AttachPath::Session);
        progs.call_enter.set_autoload(path == AttachPath::Multi);
        progs.call_leave.set_autoload(path == AttachPath::Multi);
        progs.call_enter_one.set_autoload(path == AttachPath::Single);
        progs.call_leave_one.set_autoload(path == AttachPath::Single);
        let skeleton = open.load().context("load")?;
        Ok(Self { skeleton, path })
    }

    pub fn shared_maps(&self) -> Result<SharedMaps> {
        let maps = &self.skeleton.maps;
        let handle = |map: &MapImpl<'_>| MapHandle::try_from(map).context("share a map");
        Ok(SharedMaps {
            threads: handle(&maps.threads)?,
            targets: handle(&maps.targets)?,
            known_processes: handle(&maps.known_processes)?,
            losses: handle(&maps.losses)?,
            rings: handle(&maps.rings)?,
        })
    }

    pub fn counts_maps(&self) -> Result<(MapHandle, MapHandle)> {
        let maps = &self.skeleton.maps;
        Ok((MapHandle::try_from(&maps.call_counts)?, MapHandle::try_from(&maps.free_slots)?))
    }

    /// Tells the kernel side what each row means.
    pub fn describe_rows(&self, keep_min_ns: u64) -> Result<()> {
        for (index, row) in wire::rows().enumerate() {
            let spec = wire::spec(row.api, keep_min_ns);
            let key = (index as u32).to_ne_bytes();
            self.skeleton
                .maps
                .api_specs
                .update(&key, wire::spec_bytes(&spec), MapFlags::ANY)
                .with_context(|| format!("describe {}", row.api.name))?;
        }
        Ok(())
    }

    pub fn programs(&self) -> Programs<'_> {
        let progs = &self.skeleton.progs;
        match self.path {
            AttachPath::Session => Programs::Session(&progs.call_session),
            AttachPath::Multi => Programs::Multi { enter: &progs.call_enter, leave: &progs.call_leave },
            AttachPath::Single => Programs::Single { enter: &progs.call_enter_one, leave: &progs.call_leave_one },
        }
    }

    /// Makes every thread ask again whether it is wanted.
    pub fn raise_generation(&mut self) {
        if let Some(data) = self.skeleton.maps.data_data.as_deref_mut() {
            data.generation = data.generation.wrapping_add(1);
        }
    }

    /// Makes every program return at once.
    pub fn pause(&mut self) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.paused = true;
        }
    }

    pub fn epoch(&self) -> u64 {
        self.skeleton.maps.data_data.as_deref().map_or(0, |data| data.epoch)
    }

    /// Starts a new bucket of time and returns the number of the one that ended.
    pub fn next_epoch(&mut self) -> u64 {
        let Some(data) = self.skeleton.maps.data_data.as_deref_mut() else { return 0 };
        let ended = data.epoch;
        data.epoch += 1;
        ended
    }

    /// Probe hits the kernel skipped because a program was already running on that CPU.
    pub fn missed(&self) -> u64 {
        let progs = &self.skeleton.progs;
        [&progs.call_session, &progs.call_enter, &progs.call_leave, &progs.call_enter_one, &progs.call_leave_one]
            .into_iter()
            .filter(|program| program.autoload())
            .map(|program| missed_by(program.as_fd()))
            .sum()
    }
}

fn missed_by(program: BorrowedFd<'_>) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is writable for `length` bytes; all its pointers are null with a count of 0.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) };
    if result == 0 { info.recursion_misses } else { 0 }
}
