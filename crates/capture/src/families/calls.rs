//! The call tracer: uprobes on library functions, and the maps they share with the other families.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use gpuwhy_apis::rows;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramMut};

use super::maps::{shared_maps, stack_maps};
use super::{Settings, SharedMaps, StackMaps, apply_settings, object_place};
use crate::attach::{AttachPath, Programs};
use crate::call_table::{own_operands, spec};
use crate::run_time::{Runs, program_info, run_time};
use crate::skeleton::types::row_state;
use crate::skeleton::{CallsSkel, CallsSkelBuilder};
use crate::wire::bytes_of;

pub use crate::skeleton::types::row_mode as RowMode;

/// Every call gets a record, or none does; see `keep_min_ns` in `wire.h`.
pub const KEEP_ALL: u64 = 0;
pub const KEEP_NONE: u64 = u64::MAX;

pub struct Calls {
    skeleton: CallsSkel<'static>,
    path: AttachPath,
}

// SAFETY: libbpf objects have no thread affinity; `Calls` is moved between threads, never shared.
unsafe impl Send for Calls {}

impl Calls {
    pub fn load(settings: &Settings, path: AttachPath) -> Result<Self> {
        let mut open = CallsSkelBuilder::default().open(object_place()).context("open")?;
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

    pub fn path(&self) -> AttachPath {
        self.path
    }

    pub fn shared_maps(&self) -> Result<SharedMaps> {
        let maps = &self.skeleton.maps;
        let stacks = stack_maps!(take { maps StackMaps });
        Ok(shared_maps!(take { maps SharedMaps stacks }))
    }

    pub fn counts_maps(&self) -> Result<(MapHandle, MapHandle)> {
        let maps = &self.skeleton.maps;
        Ok((MapHandle::try_from(&maps.call_counts)?, MapHandle::try_from(&maps.free_slots)?))
    }

    /// Tells the kernel side what each row means.
    pub fn describe_rows(&self, keep_min_ns: u64) -> Result<()> {
        let maps = &self.skeleton.maps;
        for (index, row) in rows().enumerate() {
            let key = (index as u32).to_ne_bytes();
            let describe = || -> libbpf_rs::Result<()> {
                maps.own_operands.update(&key, bytes_of(&own_operands(&row)), MapFlags::ANY)?;
                maps.api_specs.update(&key, bytes_of(&spec(&row, keep_min_ns)), MapFlags::ANY)
            };
            describe().with_context(|| format!("describe {}", row.api.name))?;
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

    /// Takes effect at once.
    pub fn set_mode(&mut self, row: u16, mode: RowMode) {
        self.change_row(row, |state| state.mode = mode.0 as u8);
    }

    /// The generation of links that is due for each function.
    pub fn generations(&self) -> Vec<u8> {
        let bss = self.skeleton.maps.bss_data.as_deref();
        bss.map_or_else(Vec::new, |bss| bss.row_states.iter().map(|state| state.generation).collect())
    }

    pub fn next_generation(&mut self, row: u16) {
        self.change_row(row, |state| state.generation = state.generation.wrapping_add(1));
    }

    /// Says that calls which entered through a link of this function may not be seen to return.
    pub fn removes_links(&mut self, row: u16) {
        self.change_row(row, |state| state.removals = state.removals.wrapping_add(1));
    }

    /// Whether a call that entered when links of its function had been removed so often will be seen to return.
    pub fn sees_return(&self, row: u16, removals: u16) -> bool {
        let bss = self.skeleton.maps.bss_data.as_deref();
        bss.and_then(|bss| bss.row_states.get(usize::from(row))).is_some_and(|state| state.removals == removals)
    }

    fn change_row(&mut self, row: u16, change: impl FnOnce(&mut row_state)) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            change(&mut bss.row_states[row as usize]);
        }
    }

    pub fn open_burst(&mut self, open: bool) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.burst_is_open = open;
        }
    }

    /// A process's own link for a function, which takes the place of bursts.
    pub fn set_own_link(&self, pid: u32, row: u16, there: bool) {
        let key = [pid.to_ne_bytes(), u32::from(row).to_ne_bytes()].concat();
        let own_links = &self.skeleton.maps.own_links;
        let done = if there { own_links.update(&key, &[1], MapFlags::ANY) } else { own_links.delete(&key) };
        if let Err(error) = done {
            tracing::warn!("note a link of process {pid}: {error}");
        }
    }

    /// Lets this thread of the tracer be traced; 0 for none.
    pub fn calibrate(&mut self, tid: u32) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            bss.calibrating_tid = tid as i32;
        }
        self.raise_generation();
    }

    /// The memory of calls without a record.
    pub fn recorder_map(&self) -> Result<MapHandle> {
        Ok(MapHandle::try_from(&self.skeleton.maps.recorder)?)
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
        self.loaded().map(|program| program_info(program.as_fd()).recursion_misses).sum()
    }

    /// How long and how often its programs have run while that was timed.
    pub fn run_time(&self) -> Runs {
        run_time(self.loaded().map(AsFd::as_fd))
    }

    fn loaded(&self) -> impl Iterator<Item = &ProgramMut<'static>> {
        let progs = &self.skeleton.progs;
        [&progs.call_session, &progs.call_enter, &progs.call_leave, &progs.call_enter_one, &progs.call_leave_one]
            .into_iter()
            .filter(|program| program.autoload())
    }
}
