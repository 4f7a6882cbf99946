//! Time inside ioctls of watched threads.

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::maps::shared_maps;
use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/ioctl.skel.rs"));
}

pub const FAMILY: Family = Family { name: "ioctl", without: Some("time inside ioctls"), load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::IoctlSkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    shared_maps!(reuse { open, shared });
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let links = vec![
        progs.ioctl_enter.attach().context("attach sys_enter_ioctl")?,
        progs.ioctl_exit.attach().context("attach sys_exit_ioctl")?,
    ];
    let programs = handles(&[&progs.ioctl_enter, &progs.ioctl_exit])?;
    Ok(Loaded::new(programs, links, skeleton))
}
