//! Process life and newly mapped files.

use anyhow::{Context, Result};
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::maps::shared_maps;
use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/life.skel.rs"));
}

pub const FAMILY: Family =
    Family { name: "life", without: Some("libraries mapped after the start, forks, execs and exits"), load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::LifeSkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    shared_maps!(reuse { open, shared });
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let links = vec![
        progs.process_fork.attach_trace().context("attach sched_process_fork")?,
        progs.process_exec.attach_trace().context("attach sched_process_exec")?,
        progs.process_exit.attach_trace().context("attach sched_process_exit")?,
        progs.file_mapped.attach().context("attach sys_enter_mmap")?,
    ];
    let seen_files = MapHandle::try_from(&skeleton.maps.seen_files).context("share a map")?;
    let programs = handles(&[&progs.process_fork, &progs.process_exec, &progs.process_exit, &progs.file_mapped])?;
    Ok(Loaded { seen_files: Some(seen_files), ..Loaded::new(programs, links, skeleton) })
}
