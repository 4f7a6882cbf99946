//! The scheduler's hooks: they keep the clocks that split a call's time.

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place, share_maps};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/sched.skel.rs"));
}

pub const FAMILY: Family = Family { name: "sched", without: None, load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::SchedSkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    share_maps!(open, shared);
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let links = vec![
        progs.sched_switch.attach_trace().context("attach sched_switch")?,
        progs.sched_waking.attach_trace().context("attach sched_waking")?,
        progs.sched_migrate.attach_trace().context("attach sched_migrate_task")?,
        progs.thread_exit.attach_trace().context("attach sched_process_exit")?,
    ];
    let clocks = progs.thread_clocks.attach_trace().context("attach the task iterator")?;
    let programs = handles(&[&progs.sched_switch, &progs.sched_waking, &progs.sched_migrate, &progs.thread_exit])?;
    Ok(Loaded { thread_clocks: Some(clocks), ..Loaded::new(programs, links, skeleton) })
}
