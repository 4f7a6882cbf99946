//! Requests to block devices.

use anyhow::{Context, Result};
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::maps::shared_maps;
use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/block.skel.rs"));
}

pub const FAMILY: Family = Family { name: "block", without: Some("devices behind waits for I/O"), load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::BlockSkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    shared_maps!(reuse { open, shared });
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let links = vec![
        progs.rq_insert.attach_trace().context("attach block_rq_insert")?,
        progs.rq_issue.attach_trace().context("attach block_rq_issue")?,
        progs.rq_complete.attach_trace().context("attach block_rq_complete")?,
    ];
    let programs = handles(&[&progs.rq_insert, &progs.rq_issue, &progs.rq_complete])?;
    let io_usage = MapHandle::try_from(&skeleton.maps.io_usage).context("share a map")?;
    Ok(Loaded { io_usage: Some(io_usage), ..Loaded::new(programs, links, skeleton) })
}
