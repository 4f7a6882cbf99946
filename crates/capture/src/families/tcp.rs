//! TCP segments that are sent again.

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::maps::shared_maps;
use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tcp.skel.rs"));
}

pub const FAMILY: Family = Family { name: "tcp", without: Some("TCP segments that are sent again"), load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::TcpSkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    shared_maps!(reuse { open, shared });
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let links = vec![progs.retransmit.attach_trace().context("attach tcp_retransmit_skb")?];
    let programs = handles(&[&progs.retransmit])?;
    Ok(Loaded::new(programs, links, skeleton))
}
