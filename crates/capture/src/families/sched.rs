//! The scheduler's hooks: they keep the clocks that split a call's time.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

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
    let skeleton = open.load().context("load")?;
    let progs = &skeleton.progs;
    let mut links = vec![
        progs.sched_switch.attach_trace().context("attach sched_switch")?,
        progs.sched_waking.attach_trace().context("attach sched_waking")?,
        progs.sched_migrate.attach_trace().context("attach sched_migrate_task")?,
        progs.thread_exit.attach_trace().context("attach sched_process_exit")?,
    ];
    let clocks = progs.thread_clocks.attach_trace().context("attach the task iterator")?;
    let ticks = clock_ticks().context("let the clock tick for samples")?;
    let samples = ticks.into_iter().map(|tick| progs.run_sample.attach_perf_event(tick.into_raw_fd()));
    links.extend(samples.collect::<Result<Vec<_>, _>>().context("attach to the clock's ticks")?);
    let programs = handles(&[
        &progs.sched_switch,
        &progs.sched_waking,
        &progs.sched_migrate,
        &progs.thread_exit,
        &progs.run_sample,
    ])?;
    Ok(Loaded { thread_clocks: Some(clocks), ..Loaded::new(programs, links, skeleton) })
}

/// How often the clock ticks for samples, on each CPU. Not a divisor of what programs do regularly.
const TICKS_PER_SECOND: u64 = 47;

/// One event for each CPU that is there.
fn clock_ticks() -> Result<Vec<OwnedFd>> {
    let cpus = 0..libbpf_rs::num_possible_cpus()? as i32;
    let ticks: Vec<io::Result<OwnedFd>> = cpus.map(clock_tick).collect();
    // CPUs that are switched off have none.
    let is_off = |error: &io::Error| error.raw_os_error() == Some(libc::ENODEV);
    Ok(ticks.into_iter().filter(|tick| !tick.as_ref().is_err_and(is_off)).collect::<io::Result<_>>()?)
}

fn clock_tick(cpu: i32) -> io::Result<OwnedFd> {
    use libbpf_rs::libbpf_sys::{PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr};
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: size_of::<perf_event_attr>() as u32,
        config: PERF_COUNT_SW_CPU_CLOCK.into(),
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_freq = TICKS_PER_SECOND;
    attributes.set_freq(1);
    // SAFETY: the attributes outlive the call and say their own size; the result is a new descriptor or an error.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, u64::from(PERF_FLAG_FD_CLOEXEC))
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
