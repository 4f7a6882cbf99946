//! Rules about how a program uses the GPU: the truth is found, its healthy twin is silent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{Call, Evidence, LifeKind, ProcessLife, Severity, StackId, WorkKind};
use support::*;

/// A wait after every launch.
fn storm() -> Scene {
    let mut scene = Scene::new(10 * S);
    add_storm(&mut scene, 4711, "python");
    scene
}

fn add_storm(scene: &mut Scene, pid: u32, comm: &str) {
    let thread = scene.program(pid, comm);
    for step in 0..500 {
        let start_ns = step * 20 * MS;
        for op in 0..40 {
            let at_ns = start_ns + op * 480 * US;
            scene.call(thread, "cuLaunchKernel", at_ns + 200 * US, 5 * US);
            scene.sync(thread, at_ns + 206 * US, 270 * US);
        }
        scene.call(thread, "cuMemcpyDtoHAsync", start_ns + 19_500 * US, 5 * US).bytes = Some(64);
        scene.sync(thread, start_ns + 19_520 * US, 10 * US);
    }
}

#[test]
fn what_happens_to_many_processes_of_a_program_is_one_finding_with_their_number() {
    let mut scene = Scene::new(10 * S);
    (4711..4714).for_each(|pid| add_storm(&mut scene, pid, "python"));
    add_storm(&mut scene, 5000, "another");
    let explanation = scene.explained();
    let storms = explanation.findings.iter().filter(|finding| finding.cause == "sync-storm");
    let mut told: Vec<(&str, u32)> = storms.map(|finding| (finding.victim.comm.as_str(), finding.victims)).collect();
    told.sort_unstable();
    assert_eq!(told, [("another", 1), ("python", 3)]);
}

#[test]
fn a_wait_after_every_launch_is_a_storm_and_one_a_step_is_not() {
    let explanation = storm().explained();
    let finding = only(&explanation, "sync-storm");
    assert!(finding.impact.share > 0.3, "{}", finding.impact.share);
    innocent(&training(|_, _, _| {}).explained(), "sync-storm");
}

#[test]
fn a_copy_that_waits_and_the_synchronization_after_it_are_one_wait_a_step() {
    let mut scene = Scene::new(10 * S);
    let thread = scene.program(4711, "python");
    for step in 0..1000 {
        let start_ns = step * 10 * MS;
        (0..5).for_each(|launch| {
            scene.call(thread, "cuLaunchKernel", start_ns + launch * 50 * US, 5 * US);
        });
        let copy = scene.call(thread, "cuMemcpyDtoHAsync", start_ns + 300 * US, 9 * MS);
        (copy.bytes, copy.blocked_ns) = (Some(100_000), 0);
        scene.call(thread, "cuStreamSynchronize", start_ns + 9_310 * US, 10 * US);
    }
    innocent(&scene.explained(), "sync-storm");
}

#[test]
fn steps_of_a_copy_and_a_synchronization_each_are_not_counted_twice() {
    let mut scene = Scene::new(6 * S);
    let thread = scene.program(4711, "python");
    for step in 0..2000 {
        let start_ns = step * 3 * MS;
        (0..30).for_each(|launch| {
            scene.call(thread, "cuLaunchKernel", start_ns + launch * 15 * US, 5 * US);
        });
        scene.call(thread, "cuMemcpyDtoHAsync", start_ns + 500 * US, 2 * MS).bytes = Some(1000);
        scene.call(thread, "cuStreamSynchronize", start_ns + 2_510 * US, 10 * US);
    }
    innocent(&scene.explained(), "sync-storm");
}

#[test]
fn copies_in_rapid_succession_are_a_storm_also_where_nothing_else_was_kept() {
    let mut scene = Scene::new(6 * S);
    let thread = scene.program(4711, "python");
    for copy in 0..200_000 {
        scene.call(thread, "cuMemcpyDtoHAsync", copy * 30 * US, 10 * US).bytes = Some(4);
        scene.call(thread, "cuStreamSynchronize", copy * 30 * US + 11 * US, US);
        if copy % 4 == 0 {
            scene.call(thread, "cuLaunchKernel", copy * 30 * US + 13 * US, 5 * US);
        }
    }
    let mut window = scene.finished();
    window.calls.rows.retain(|call| call.op == op("cuMemcpyDtoHAsync") && call.start_ns < START_NS + S);
    only(&gpuwhy_analysis::explain(&window), "sync-storm");
}

/// The budget takes records of launches away first and then those of waits that are not slow; sums stay.
#[test]
fn a_storm_is_one_also_where_most_or_all_of_its_launches_were_not_seen() {
    let [launch, sync] = ["cuLaunchKernel", "cuStreamSynchronize"].map(op);
    type Keeps = fn(offset_ns: u64, is_launch: bool) -> bool;
    let launches_at_first: Keeps = |offset_ns, is_launch| !is_launch || offset_ns < S;
    let at_first: Keeps = |offset_ns, _| offset_ns < S;
    let waits: Keeps = |_, is_launch| !is_launch;
    let nothing: Keeps = |_, _| false;
    for (keeps, evidence) in [
        (launches_at_first, Evidence::Observed),
        (at_first, Evidence::Observed),
        (waits, Evidence::Inferred),
        (nothing, Evidence::Inferred),
    ] {
        let mut window = storm().finished();
        let is_kept =
            |call: &Call| (call.op != launch && call.op != sync) || keeps(call.start_ns - START_NS, call.op == launch);
        window.calls.rows.retain(is_kept);
        let explanation = gpuwhy_analysis::explain(&window);
        let finding = only(&explanation, "sync-storm");
        assert!(finding.impact.share > 0.3, "{}", finding.impact.share);
        assert_eq!(finding.chain.edges().last().unwrap().evidence, evidence);
    }
}

#[test]
fn a_graph_launch_and_a_wait_a_step_is_healthy() {
    let mut scene = Scene::new(10 * S);
    let thread = scene.program(4711, "python");
    for step in 0..1000 {
        let start_ns = step * 10 * MS;
        scene.call(thread, "cuGraphLaunch", start_ns + 900 * US, 10 * US);
        scene.call(thread, "cuMemcpyDtoHAsync", start_ns + 950 * US, 5 * US).bytes = Some(64);
        scene.sync(thread, start_ns + MS, 9 * MS - 10 * US);
    }
    innocent(&scene.explained(), "sync-storm");
}

#[test]
fn an_application_that_computes_before_its_launches_has_no_fault() {
    // The loop computes 8 of its 20 ms; a wait for the GPU follows once a step.
    innocent(&training(|_, _, _| {}).explained(), "launch-bound");
}

#[test]
fn launches_that_fill_the_time_while_the_gpu_has_nothing_are_the_bound() {
    let mut scene = Scene::new(10 * S);
    let thread = scene.program(4711, "python");
    for step in 0..200 {
        let start_ns = step * 50 * MS;
        for launch in 0..1600 {
            scene.call(thread, "cuLaunchKernel", start_ns + launch * 30 * US, 22 * US);
        }
        scene.call(thread, "cuMemcpyDtoHAsync", start_ns + 49 * MS, 5 * US).bytes = Some(64);
        scene.sync(thread, start_ns + 49_100 * US, 20 * US);
    }
    let explanation = scene.explained();
    assert_eq!(only(&explanation, "launch-bound").severity, Severity::High);
}

/// The first part of a step is waited for as long as it took; then come many small launches, which the GPU has done when
/// somebody waits for them.
#[test]
fn a_part_of_each_step_can_be_bound_by_launches() {
    let mut scene = Scene::new(10 * S);
    let thread = scene.program(4711, "python");
    for step in 0..500 {
        let start_ns = step * 20 * MS;
        scene.step(thread, start_ns, 20, 9 * MS);
        for launch in 0..1000 {
            scene.call(thread, "cuLaunchKernel", start_ns + 10 * MS + launch * 9 * US, 4 * US);
        }
        scene.sync(thread, start_ns + 19 * MS, 100 * US);
    }
    let mut window = scene.finished();
    window.call_seconds.iter_mut().for_each(|second| second.seen = second.calls);
    let explanation = gpuwhy_analysis::explain(&window);
    let finding = only(&explanation, "launch-bound");
    assert!((finding.impact.share - 0.2).abs() < 0.02, "{}", finding.impact.share);
}

#[test]
fn launches_that_block_because_the_queue_is_full_are_a_busy_gpu() {
    let mut scene = Scene::new(10 * S);
    let thread = scene.program(4711, "python");
    for launch in 0..9_000 {
        scene.call(thread, "cuLaunchKernel", launch * 1_100 * US, 1_050 * US);
    }
    let explanation = scene.explained();
    assert_eq!(grave(&explanation), []);
    assert_eq!(explanation.findings[0].cause, "gpu-busy");
}

#[test]
fn allocating_in_every_step_is_churn_and_allocating_at_the_start_is_not() {
    let churn = training(|scene, thread, at| {
        for pair in 0..10 {
            let at = at + pair * 500 * US;
            scene.call(thread, "cuMemAlloc", at, 200 * US).address = Some(64);
            scene.call(thread, "cuMemFree", at + 250 * US, 200 * US).address = Some(64);
        }
    });
    let explanation = churn.explained();
    assert_eq!(only(&explanation, "alloc-churn").r#where[0].file, "/opt/train.so");
    let warm_up = training(|scene, thread, at| {
        if at < 2 * S {
            scene.call(thread, "cuMemAlloc", at, 5 * MS).address = Some(at);
            scene.call(thread, "cuMemFree", at + 6 * MS, MS).address = Some(at);
        }
    });
    innocent(&warm_up.explained(), "alloc-churn");
}

#[test]
fn a_driver_that_takes_long_for_a_few_calls_is_to_blame_and_not_the_program() {
    let slow = training(|scene, thread, at| {
        scene.call(thread, "cuMemAlloc", at, 5 * MS).address = Some(64);
        scene.work(thread, WorkKind::Ioctl, at + 10 * US, 4_900 * US, Some("cuMemAlloc"));
        scene.call(thread, "cuMemFree", at + 6 * MS, 5 * US).address = Some(64);
    });
    let explanation = slow.explained();
    let finding = only(&explanation, "driver-call");
    assert!(finding.summary.contains("cuMemAlloc"), "{}", finding.summary);
    let many = training(|scene, thread, at| {
        for pair in 0..20 {
            let at = at + pair * 300 * US;
            scene.call(thread, "cuMemAlloc", at, 100 * US).address = Some(64);
            scene.work(thread, WorkKind::Ioctl, at + US, 98 * US, Some("cuMemAlloc"));
            scene.call(thread, "cuMemFree", at + 150 * US, 100 * US).address = Some(64);
            scene.work(thread, WorkKind::Ioctl, at + 151 * US, 98 * US, Some("cuMemFree"));
        }
    });
    only(&many.explained(), "alloc-churn");
}

#[test]
fn a_refused_allocation_is_explicit_and_grave_when_it_repeats_or_ends_the_process() {
    let failing = |every: u64, ends: bool| {
        let mut scene = training(|scene, thread, at| {
            if at > 0 && (at / (20 * MS)).is_multiple_of(every) {
                let call = scene.call(thread, "cuMemAlloc", at, 100 * US);
                (call.ret_code, call.bytes) = (2, Some(2 << 30));
            }
        });
        if ends {
            let exit = ProcessLife {
                at_ns: START_NS + 9 * S + 500 * MS,
                kind: LifeKind::Exit,
                pid: 4711,
                child_pid: None,
                status: Some(256),
                comm: "python".into(),
            };
            scene.window.life.push(exit.into());
        }
        let explanation = scene.explained();
        let finding = only(&explanation, "alloc-failed");
        assert_eq!(finding.confidence, 1.0);
        assert!(finding.summary.contains("2.0 GiB"), "{}", finding.summary);
        finding.severity
    };
    assert_eq!(
        [failing(450, false), failing(450, true), failing(5, false)],
        [Severity::Medium, Severity::High, Severity::High]
    );
}

fn growing(frees: impl Fn(u64) -> bool) -> Scene {
    training(move |scene, thread, at| {
        let step = at / (20 * MS);
        let call = scene.call(thread, "cuMemAlloc", at, 5 * US);
        (call.address, call.bytes) = (Some(1000 + step), Some(4 << 20));
        if frees(step) {
            scene.call(thread, "cuMemFree", at + MS, 5 * US).address = Some(1000 + step);
        }
    })
}

#[test]
fn memory_that_only_grows_leaks_and_memory_that_is_freed_does_not() {
    let explanation = growing(|_| false).explained();
    let finding = only(&explanation, "memory-leak");
    assert_eq!((finding.severity, finding.r#where[0].file.as_str()), (Severity::High, "/opt/train.so"));
    innocent(&growing(|_| true).explained(), "memory-leak");
    innocent(&growing(|step| step > 100).explained(), "memory-leak");
}

/// A framework with a cache asks the driver rarely, for much: in these steps.
fn asking_in(steps: &'static [u64]) -> Scene {
    training(move |scene, thread, at| {
        if steps.contains(&(at / (20 * MS))) {
            let call = scene.call(thread, "cuMemAlloc", at, 5 * US);
            (call.address, call.bytes) = (Some(at), Some(738 << 20));
        }
    })
}

#[test]
fn a_few_large_allocations_that_go_on_are_a_leak_and_those_of_a_start_are_not() {
    only(&asking_in(&[0, 90, 170, 250, 335, 420, 490]).explained(), "memory-leak");
    only(&asking_in(&[0, 1, 2, 3, 4, 255, 300, 350, 400, 450, 490]).explained(), "memory-leak");
    innocent(&asking_in(&[0, 20, 40, 60, 80, 100]).explained(), "memory-leak");
    innocent(&asking_in(&[0, 1, 2, 3, 4, 200, 400]).explained(), "memory-leak");
}

/// A program that sets itself up slowly: little here and there, and much in few pieces.
#[test]
fn what_a_library_takes_in_a_few_pieces_is_no_leak() {
    let taking = |pieces: &'static [u64]| {
        training(move |scene, thread, at| {
            let step = at / (20 * MS);
            if step.is_multiple_of(10) {
                let call = scene.call(thread, "cuMemAlloc", at, 5 * US);
                (call.address, call.bytes) = (Some(1000 + step), Some(256 << 10));
            }
            if pieces.contains(&step) {
                let call = scene.call(thread, "cuMemAlloc", at + MS, 5 * US);
                (call.address, call.bytes, call.caller) = (Some(9000 + step), Some(64 << 20), None);
            }
        })
        .explained()
    };
    only(&taking(&[]), "memory-leak");
    innocent(&taking(&[170, 260, 490]), "memory-leak");
    only(&taking(&[100, 170, 260, 350, 430, 490]), "memory-leak");
}

/// As two ranks of FSDP do in a run of ten steps; a cache of keys and values that is copied into an ever larger one.
#[test]
fn a_few_pieces_of_different_sizes_are_no_leak_and_many_that_grow_are() {
    let taking = |sizes: &'static [(u64, u64)]| {
        training(move |scene, thread, at| {
            for (number, (_, size)) in (0..).zip(sizes).filter(|(_, (step, _))| *step == at / (20 * MS)) {
                let call = scene.call(thread, "cuMemAlloc", at + number * US, 5 * US);
                (call.address, call.bytes) = (Some(9000 + number), Some(size << 20));
            }
        })
        .explained()
    };
    const FIRST_STEPS: &[(u64, u64)] = &[
        (0, 20),
        (90, 64),
        (90, 32),
        (170, 2),
        (250, 2),
        (300, 64),
        (300, 32),
        (335, 2),
        (400, 2),
        (420, 20),
        (450, 20),
        (490, 64),
    ];
    innocent(&taking(FIRST_STEPS), "memory-leak");
    const GROWS: [(u64, u64); 24] = {
        let mut all = [(0, 0); 24];
        let mut step = 0;
        while step < 24 {
            all[step as usize] = (20 * step, 20 + 2 * step);
            step += 1;
        }
        all
    };
    only(&taking(&GROWS), "memory-leak");
}

#[test]
fn frees_whose_records_were_lost_are_no_leak() {
    let mut window = growing(|_| true).finished();
    let mut number = 0;
    window.memory_calls.rows.retain(|_| {
        number += 1;
        number % 10 != 0
    });
    innocent(&gpuwhy_analysis::explain(&window), "memory-leak");
}

#[test]
fn asynchronous_copies_that_take_as_long_as_their_bytes_are_pageable() {
    let copying = |duration_ns| {
        training(move |scene, thread, at| {
            scene.call(thread, "cuMemcpyHtoDAsync", at, duration_ns).bytes = Some(30_000_000);
        })
        .explained()
    };
    let explanation = copying(5 * MS);
    assert!(only(&explanation, "pageable-copy").summary.contains("6.0 GB/s"));
    innocent(&copying(3 * US), "pageable-copy");
}

#[test]
fn code_that_is_loaded_in_every_step_is_lazy_and_at_the_start_it_is_not() {
    let loading = |until_ns| {
        training(move |scene, thread, at| {
            if at < until_ns {
                scene.call(thread, "cuModuleLoadData", at, 4 * MS);
            }
        })
        .explained()
    };
    only(&loading(10 * S), "lazy-load");
    innocent(&loading(2 * S), "lazy-load");
}

/// A short run that meets new code in its first steps, one that comes back to the same place, and one that never ends to
/// compile.
#[test]
fn code_that_is_loaded_from_ever_new_places_at_first_is_no_habit() {
    let loading_from = |places: u32, until_ns: u64| {
        training(move |scene, thread, at| {
            if at < until_ns {
                let place = (at / (20 * MS)) as u32 % places;
                scene.call(thread, "cuModuleLoadData", at, 4 * MS).stack_id = Some(StackId(place));
            }
        })
        .explained()
    };
    only(&loading_from(7, 6 * S), "lazy-load");
    innocent(&loading_from(1_000, 6 * S), "lazy-load");
    only(&loading_from(1_000, 10 * S), "lazy-load");
}

#[test]
fn a_capture_a_step_is_recapture_and_one_capture_for_all_is_not() {
    let capturing = |every: u64| {
        training(move |scene, thread, at| {
            if (at / (20 * MS)).is_multiple_of(every) {
                scene.call(thread, "cuStreamBeginCapture", at, 5 * US);
                scene.call(thread, "cuGraphInstantiateWithFlags", at + MS, 4 * MS);
            }
            scene.call(thread, "cuGraphLaunch", at + 6 * MS, 10 * US);
        })
        .explained()
    };
    let explanation = capturing(1);
    assert!((only(&explanation, "graph-recapture").impact.share - 0.25).abs() < 0.01);
    // A reply has some launches and begins with a capture: less often, and every second.
    assert!((only(&capturing(4), "graph-recapture").impact.share - 0.0625).abs() < 0.01);
    innocent(&capturing(500), "graph-recapture");
    innocent(&capturing(120), "graph-recapture");
}

#[test]
fn a_killed_worker_of_the_job_is_a_finding_and_a_stranger_is_not() {
    let killed = |parent: u32| {
        let mut scene = training(|_, _, _| {});
        let life = |kind, pid, child_pid| ProcessLife {
            at_ns: START_NS + S,
            kind,
            pid,
            child_pid,
            status: None,
            comm: "worker".into(),
        };
        scene.window.life.push(life(LifeKind::Fork, parent, Some(4800)).into());
        scene.window.life.push(life(LifeKind::OomKill, 4800, None).into());
        scene.explained()
    };
    let explanation = killed(4711);
    let finding = only(&explanation, "oom-kill");
    assert_eq!((finding.confidence, finding.culprit.as_ref().unwrap().pid), (1.0, 4800));
    innocent(&killed(77), "oom-kill");
}
