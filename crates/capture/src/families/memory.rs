//! Reclaim, compaction and OOM kills.

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::maps::shared_maps;
use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/memory.skel.rs"));
}

pub const FAMILY: Family = Family { name: "memory", without: Some("reclaim, compaction and OOM kills"), load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::MemorySkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    shared_maps!(reuse { open, shared });
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let links = vec![
        progs.reclaim_begin.attach_trace().context("attach mm_vmscan_direct_reclaim_begin")?,
        progs.reclaim_end.attach_trace().context("attach mm_vmscan_direct_reclaim_end")?,
        progs.cgroup_reclaim_begin.attach_trace().context("attach mm_vmscan_memcg_reclaim_begin")?,
        progs.cgroup_reclaim_end.attach_trace().context("attach mm_vmscan_memcg_reclaim_end")?,
        progs.compact_begin.attach_trace().context("attach mm_compaction_begin")?,
        progs.compact_end.attach_trace().context("attach mm_compaction_end")?,
        progs.oom_kill.attach().context("attach oom/mark_victim")?,
    ];
    let programs = handles(&[
        &progs.reclaim_begin,
        &progs.reclaim_end,
        &progs.cgroup_reclaim_begin,
        &progs.cgroup_reclaim_end,
        &progs.compact_begin,
        &progs.compact_end,
        &progs.oom_kill,
    ])?;
    Ok(Loaded::new(programs, links, skeleton))
}
