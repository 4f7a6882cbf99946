//! The scheduler's hooks: they keep the clocks that split a call's time.

use std::os::fd::IntoRawFd;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::clock::Ticks;
use super::maps::{shared_maps, stack_maps};
use super::{Family, Loaded, Settings, SharedMaps, apply_settings, handles, object_place};

#[allow(clippy::all, clippy::restriction, dead_code)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/sched.skel.rs"));
}

pub const FAMILY: Family = Family { name: "sched", without: None, load };

fn load(settings: &Settings, shared: &SharedMaps) -> Result<Loaded> {
    let mut open = skeleton::SchedSkelBuilder::default().open(object_place()).context("open")?;
    apply_settings!(open, settings);
    shared_maps!(reuse { open, shared });
    stack_maps!(reuse { open, shared.stacks });
    open.maps.rodata_data.as_deref_mut().context("the object has no settings")?.state_at_wakeups =
        settings.state_at_wakeups;
    open.maps
        .cpu_histories
        .set_max_entries(libbpf_rs::num_possible_cpus()? as u32)
        .context("size the turns of CPUs")?;
    open.progs.sched_switch.set_autoload(settings.switches_say_state);
    open.progs.sched_switch_by_state.set_autoload(!settings.switches_say_state);
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let sched_switch = if settings.switches_say_state { &progs.sched_switch } else { &progs.sched_switch_by_state };
    let mut links = vec![
        sched_switch.attach_trace().context("attach sched_switch")?,
        progs.sched_waking.attach_trace().context("attach sched_waking")?,
        progs.sched_migrate.attach_trace().context("attach sched_migrate_task")?,
        progs.thread_exit.attach_trace().context("attach sched_process_exit")?,
    ];
    let clocks = progs.thread_clocks.attach_trace().context("attach the task iterator")?;
    let ticks = Ticks::start().context("let the clock tick for samples")?;
    for tick in ticks.events() {
        let tick = tick.context("keep the clock ticking")?.into_raw_fd();
        links.push(progs.run_sample.attach_perf_event(tick).context("attach to the clock's ticks")?);
    }
    let programs =
        handles(&[sched_switch, &progs.sched_waking, &progs.sched_migrate, &progs.thread_exit, &progs.run_sample])?;
    Ok(Loaded { thread_clocks: Some(clocks), ticks: Some(ticks), ..Loaded::new(programs, links, skeleton) })
}
