//! Rules about waits: the truth is found, its healthy twin is silent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_analysis::HIGH_CONFIDENCE;
use gpuwhy_model::{
    CpuTaker, Evidence, IoRequest, IoUsage, ProcessId, Severity, TargetKind, TcpEvent, TcpEventKind, TimePart,
    WaitReason, WorkKind,
};
use support::*;

#[test]
fn a_healthy_loop_has_no_grave_finding_and_its_time_is_split_exactly() {
    let explanation = training(|_, _, _| {}).explained();
    assert_eq!(grave(&explanation), []);
    let thread = &explanation.threads[0];
    assert_eq!(thread.parts.iter().map(|part| part.ns).sum::<u64>(), thread.wall_ns);
    let gpu = thread.parts.iter().find(|part| part.name == TimePart::WaitingForGpu).unwrap();
    assert_eq!(gpu.ns, 500 * 11 * MS);
    let steps = thread.steps.as_ref().unwrap();
    assert_eq!((steps.count, steps.median_ns, steps.change), (499, 20 * MS, None));
    assert_eq!(explanation.findings.iter().map(|finding| finding.cause.as_str()).collect::<Vec<_>>(), ["gpu-busy"]);
}

#[test]
fn the_process_that_had_the_cpu_most_is_blamed_for_preemption_and_not_the_last_one() {
    let mut others = None;
    let explanation = training(|scene, thread, at| {
        let (hog, other, _) = *others
            .get_or_insert_with(|| (scene.program(1, "stress"), scene.program(2, "cron"), scene.program(3, "x")));
        scene.stretch(thread, at, Off::runnable(4 * MS, Some(hog)));
        scene.stretch(thread, at + 5 * MS, Off::runnable(MS, Some(other)));
    })
    .explained();
    let finding = only(&explanation, "cpu-preempted");
    assert_eq!((finding.severity, finding.impact.share), (Severity::High, 0.25));
    assert_eq!(finding.culprit.as_ref().map(|culprit| culprit.comm.as_str()), Some("stress"));
    assert!(finding.confidence >= HIGH_CONFIDENCE, "{}", finding.confidence);
    assert_eq!(finding.summary, "python (4711) waited 25 % of its time for a CPU that stress (1) used.");
}

#[test]
fn who_had_a_cpu_is_told_no_further_than_it_is_on_record() {
    let mut scene = training(|scene, thread, at| scene.stretch(thread, at, Off::runnable(4 * MS, None)));
    let [most, other] = [scene.program(1, "cc1"), scene.program(2, "as")];
    for stretch in &mut scene.window.stretches.rows {
        let took = [(most, MS / 5), (other, MS / 10)];
        stretch.taken_by = took.map(|(thread, ns)| Some(CpuTaker { thread, ns }));
    }
    let explanation = scene.explained();
    let finding = only(&explanation, "cpu-preempted");
    assert_eq!(finding.summary, "python (4711) waited 20 % of its time for a CPU that many used, cc1 (1) among them.");
    let had = finding.chain.edges().nth(1).unwrap();
    assert_eq!(
        had.what,
        "cc1 (1) and its process had that CPU for 100.0 ms of it, another process 50.0 ms; who had the rest is not on record"
    );
}

#[test]
fn the_tracer_and_an_idle_cpu_are_never_blamed_for_preemption() {
    let mut tracer = None;
    let by_tracer = training(|scene, thread, at| {
        let tracer = *tracer.get_or_insert_with(|| scene.program(9, "gpuwhy"));
        scene.stretch(thread, at, Off::runnable(4 * MS, Some(tracer)));
    });
    innocent(&by_tracer.explained(), "cpu-preempted");
    let by_nobody = training(|scene, thread, at| scene.stretch(thread, at, Off::runnable(2 * MS, None)));
    innocent(&by_nobody.explained(), "cpu-preempted");
}

#[test]
fn a_stop_by_the_quota_is_throttling_and_not_preemption() {
    let mut scene = training(|scene, thread, at| {
        scene.stretch(thread, at, Off { is_throttled: true, ..Off::runnable(5 * MS, None) });
    });
    scene.window.processes.get_mut(&ProcessId(1)).unwrap().cpu_quota = Some(0.25);
    let explanation = scene.explained();
    let finding = only(&explanation, "cpu-throttled");
    assert_eq!(finding.culprit.as_ref().unwrap().detail, "/job may use 0.25 CPUs");
}

/// A lock that another thread holds for 6 ms of every step, doing `meanwhile`.
fn lock_holder(meanwhile: Option<WaitReason>) -> gpuwhy_model::Explanation {
    let mut cast = None;
    training(|scene, thread, at| {
        let (holder, lock) = *cast.get_or_insert_with(|| {
            (scene.thread(ProcessId(1), 4720, "tokenizer"), scene.target(TargetKind::Lock, "0x7f10"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, lock, holder));
        if let Some(reason) = meanwhile {
            scene.stretch(holder, at, Off::blocked(reason, 5 * MS + 900 * US));
        }
    })
    .explained()
}

#[test]
fn the_holder_of_a_lock_is_blamed_with_what_it_did() {
    let computing = lock_holder(None);
    let finding = only(&computing, "lock-wait");
    let culprit = finding.culprit.as_ref().unwrap();
    assert_eq!((culprit.pid, culprit.tid), (4711, 4720));
    assert_eq!(culprit.detail, "computing 100 % of that time");
    assert!(finding.confidence >= HIGH_CONFIDENCE);
    assert!(finding.chain.edges().next().unwrap().what.contains("0x7f10"));
    let reading = lock_holder(Some(WaitReason::Io));
    let detail = &only(&reading, "lock-wait").culprit.as_ref().unwrap().detail;
    assert_eq!(detail, "waiting for a disk 98 % of that time");
    let sleeping = lock_holder(Some(WaitReason::Sleep));
    assert!(only(&sleeping, "lock-wait").fix[0].contains("asleep on purpose"));
}

#[test]
fn a_lock_that_is_held_while_the_gpu_works_for_its_holder_is_nobodys_fault() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (holder, lock) = *cast.get_or_insert_with(|| {
            (scene.thread(ProcessId(1), 4720, "other"), scene.target(TargetKind::Lock, "0x7f10"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, lock, holder));
        // It looks at the GPU again and again instead of going to sleep.
        scene.call(holder, "cuStreamSynchronize", at, 5 * MS + 900 * US);
    })
    .explained();
    innocent(&explanation, "lock-wait");
}

#[test]
fn in_a_convoy_the_thread_that_holds_the_lock_is_blamed_and_not_the_one_before() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (holder, other, lock) = *cast.get_or_insert_with(|| {
            let holder = scene.thread(ProcessId(1), 4720, "holder");
            (holder, scene.thread(ProcessId(1), 4721, "other"), scene.target(TargetKind::Lock, "0x7f10"))
        });
        scene.stretch(other, at, Off::on(WaitReason::Futex, 5 * MS, lock, holder));
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 5 * MS + 100 * US, lock, other));
    })
    .explained();
    let finding = only(&explanation, "lock-wait");
    assert_eq!(finding.culprit.as_ref().unwrap().tid, 4720);
    assert_eq!(finding.chain.edges().count(), 4);
}

#[test]
fn pieces_of_a_wait_for_the_interpreter_lock_belong_to_who_ends_the_last_one() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (holder, gil) = *cast.get_or_insert_with(|| {
            (scene.thread(ProcessId(1), 4720, "Thread-1"), scene.target(TargetKind::Gil, "0x5500"))
        });
        let piece = Off { target: Some(gil), ..Off::blocked(WaitReason::Futex, 4 * MS) };
        scene.stretch(thread, at, piece);
        scene.stretch(thread, at + 4 * MS + 50 * US, Off::on(WaitReason::Futex, MS, gil, holder));
    })
    .explained();
    let finding = only(&explanation, "gil-wait");
    assert_eq!((finding.culprit.as_ref().unwrap().tid, finding.impact.share), (4720, 0.25));
    assert_eq!(finding.chain.weakest(), Evidence::Inferred);
    assert!(finding.confidence >= 0.7);
}

#[test]
fn a_producer_that_computes_starves_its_consumer() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (worker, pipe) =
            *cast.get_or_insert_with(|| (scene.program(4800, "worker"), scene.target(TargetKind::Pipe, "pipe:[7]")));
        scene.stretch(thread, at, Off::on(WaitReason::Stream, 6 * MS, pipe, worker));
    })
    .explained();
    let finding = only(&explanation, "input-starved");
    assert_eq!(finding.culprit.as_ref().unwrap().pid, 4800);
    assert!(finding.culprit.as_ref().unwrap().detail.starts_with("computing"));
}

#[test]
fn a_culprit_that_waits_itself_is_followed_to_the_last_one() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (pinner, worker, queue, pipe) = *cast.get_or_insert_with(|| {
            let pinner = scene.thread(ProcessId(1), 4712, "pin_memory");
            let queue = scene.target(TargetKind::Signal, "0x7f20");
            (pinner, scene.program(4800, "worker"), queue, scene.target(TargetKind::Unix, "unix:[9]"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, queue, pinner));
        scene.stretch(pinner, at, Off::on(WaitReason::Poll, 5 * MS + 900 * US, pipe, worker));
        scene.stretch(worker, at, Off::blocked(WaitReason::Io, 5 * MS));
    })
    .explained();
    let finding = only(&explanation, "input-starved");
    let culprit = finding.culprit.as_ref().unwrap();
    assert_eq!((culprit.pid, culprit.detail.as_str()), (4800, "waiting for a disk 85 % of that time, computing 15 %"));
    let whats: Vec<&str> = finding.chain.edges().map(|edge| edge.what.as_str()).collect();
    assert!(whats[1].contains("pin_memory") && whats[2].contains("worker") && whats[3].contains("disk"), "{whats:?}");
    assert!(finding.chain.edges().all(|edge| !edge.refs.is_empty()));
}

/// The thread that feeds the GPU gets its work from one that writes to a process before it hands over.
#[test]
fn a_thread_whose_producer_is_blocked_in_writing_suffers_from_who_does_not_read() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (writer, reader, queue, pipe) = *cast.get_or_insert_with(|| {
            let writer = scene.thread(ProcessId(1), 4712, "event_loop");
            let queue = scene.target(TargetKind::Signal, "0x7f20");
            (writer, scene.program(4800, "gzip"), queue, scene.target(TargetKind::Pipe, "pipe:[9]"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, queue, writer));
        scene.stretch(writer, at, Off::on(WaitReason::Stream, 5 * MS + 900 * US, pipe, reader));
        scene.in_kernel_function("anon_pipe_write");
    })
    .explained();
    let finding = only(&explanation, "output-blocked");
    assert_eq!(finding.culprit.as_ref().unwrap().pid, 4800);
    let start = "Another thread of python (4711) was blocked in writing for 30 % of its time, until gzip (4800) read";
    assert!(finding.summary.starts_with(start), "{}", finding.summary);
}

/// Stacks are taken now and then; here of one wait in four.
#[test]
fn a_child_that_holds_a_lock_again_and_again_is_not_waited_for_to_its_end() {
    let (mut child, mut step) = (None, 0);
    let explanation = training(|scene, thread, at| {
        let child = *child.get_or_insert_with(|| {
            let child = scene.program(4800, "keeper");
            let process = scene.window.threads[&child].process;
            scene.window.processes.get_mut(&process).unwrap().parent_pid = 4711;
            child
        });
        scene.stretch(thread, at, Off { woken_by: Some(child), ..Off::blocked(WaitReason::Other, 6 * MS) });
        step += 1;
        if step % 4 == 0 {
            scene.in_kernel_function("flock_lock_inode_wait");
        }
    })
    .explained();
    assert_eq!(only(&explanation, "lock-wait").impact.share, 0.3);
}

#[test]
fn a_program_that_reads_from_processes_until_they_end_waits_for_processes() {
    let mut started = 4800;
    let explanation = training(|scene, thread, at| {
        started += 1;
        let child = scene.program(started, "simulate");
        let process = scene.window.threads[&child].process;
        scene.window.processes.get_mut(&process).unwrap().parent_pid = 4711;
        let pipe = scene.target(TargetKind::Pipe, &format!("pipe:[{started}]"));
        scene.stretch(thread, at, Off::on(WaitReason::Stream, 6 * MS, pipe, child));
        scene.window.life.push(exit(started, START_NS + at + 7 * MS).into());
    })
    .explained();
    let finding = only(&explanation, "child-wait");
    assert!(finding.summary.contains("simulate"), "{}", finding.summary);
}

/// A child that runs another program, and is asked in every step or works ahead.
fn with_a_command(is_asked: bool, command: &str) -> gpuwhy_model::Explanation {
    let mut cast = None;
    let scene = training(|scene, thread, at| {
        let (child, answers, questions) = *cast.get_or_insert_with(|| {
            let child = scene.program(4800, "filter");
            let process = scene.window.threads[&child].process;
            let process = scene.window.processes.get_mut(&process).unwrap();
            (process.parent_pid, process.cmdline) = (4711, command.to_owned());
            (child, scene.target(TargetKind::Pipe, "pipe:[8]"), scene.target(TargetKind::Pipe, "pipe:[9]"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Stream, 6 * MS, answers, child));
        if is_asked {
            scene.stretch(child, at + 6 * MS, Off::on(WaitReason::Stream, 14 * MS, questions, thread));
        }
    });
    scene.explained()
}

#[test]
fn a_command_that_is_asked_and_answers_is_waited_for() {
    let explanation = with_a_command(true, "filter --json");
    let finding = only(&explanation, "child-wait");
    assert_eq!(finding.culprit.as_ref().unwrap().pid, 4800);
}

#[test]
fn a_command_that_works_ahead_and_a_worker_that_is_asked_deliver_input() {
    only(&with_a_command(false, "ffmpeg -i clip.mp4 -"), "input-starved");
    only(&with_a_command(true, "python3 -c from multiprocessing.spawn import spawn_main"), "input-starved");
}

/// An event loop gets requests and asks another server before it hands the work to the thread that feeds the GPU.
fn event_loop(asks: bool) -> gpuwhy_model::Explanation {
    let mut cast = None;
    let scene = training(|scene, thread, at| {
        let (event_loop, other, sockets, queue, requests) = *cast.get_or_insert_with(|| {
            let event_loop = scene.thread(ProcessId(1), 4712, "event_loop");
            let other = scene.program(4800, if asks { "features" } else { "client" });
            // It is not known from the beginning that it listens.
            let sockets =
                ["eventfd:[7]", "client of any of its ports"].map(|name| scene.target(TargetKind::Eventfd, name));
            let queue = scene.target(TargetKind::Signal, "0x7f20");
            (event_loop, other, sockets, queue, scene.target(TargetKind::Tcp, "client 127.0.0.1:40000"))
        });
        let sockets = sockets[usize::from(at > 5 * S)];
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, queue, event_loop));
        scene.stretch(event_loop, at, Off::on(WaitReason::Poll, 5 * MS + 900 * US, sockets, other));
        // Whoever answers waits until it is asked.
        let target = if asks { requests } else { queue };
        scene.stretch(other, at + 6 * MS, Off::on(WaitReason::Poll, 13 * MS, target, event_loop));
    });
    scene.explained()
}

#[test]
fn an_event_loop_that_asked_a_server_waits_for_its_answer_and_one_that_was_not_asked_does_not() {
    let explanation = event_loop(true);
    let finding = only(&explanation, "net-wait");
    assert_eq!(finding.culprit.as_ref().unwrap().pid, 4800);
    let explanation = event_loop(false);
    innocent(&explanation, "input-starved");
}

/// The thread that feeds the GPU waits for all its sockets, until another process sends something.
fn client_loop(is_asked: bool) -> gpuwhy_model::Explanation {
    let mut cast = None;
    let scene = training(|scene, thread, at| {
        let (other, sockets, requests) = *cast.get_or_insert_with(|| {
            let sockets = scene.target(TargetKind::Eventfd, "eventfd:[7]");
            let name = if is_asked { "client 127.0.0.1:40000" } else { "127.0.0.1:40000" };
            (scene.program(4800, "features"), sockets, scene.target(TargetKind::Tcp, name))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Poll, 6 * MS, sockets, other));
        scene.stretch(other, at, Off::blocked(WaitReason::Sleep, 5 * MS + 900 * US));
        scene.stretch(other, at + 6 * MS, Off::on(WaitReason::Stream, 13 * MS, requests, thread));
    });
    scene.explained()
}

#[test]
fn an_event_loop_that_serves_nobody_waits_for_the_answer_of_a_server_that_it_asked() {
    let explanation = client_loop(true);
    let finding = only(&explanation, "net-wait");
    assert_eq!(finding.culprit.as_ref().unwrap().pid, 4800);
    let explanation = client_loop(false);
    assert!(explanation.findings.iter().all(|finding| finding.cause != "net-wait"), "{explanation:#?}");
}

/// Training that waits 6 ms of each 20 ms step for a server elsewhere; in so many of four steps a segment is sent again.
fn over_a_link(lossy_of_four: u64, remote: &str) -> gpuwhy_model::Explanation {
    let mut peer = None;
    let mut events = Vec::new();
    let mut scene = training(|scene, thread, at| {
        let peer = *peer.get_or_insert_with(|| scene.target(TargetKind::Tcp, "server 10.0.0.2:9000"));
        scene.stretch(thread, at, Off { target: Some(peer), ..Off::blocked(WaitReason::Stream, 6 * MS) });
        if at / (20 * MS) % 4 < lossy_of_four {
            events.push(START_NS + at + 2 * MS);
        }
    });
    let (address, port) = remote.split_once(':').unwrap();
    let event = |at_ns: u64| TcpEvent {
        at_ns,
        pid: Some(4711),
        kind: TcpEventKind::Retransmit,
        saddr: Some("10.0.0.1".into()),
        sport: Some(40_000),
        daddr: Some(address.into()),
        dport: port.parse().ok(),
        process: Some(ProcessId(1)),
        round_trip_ns: Some(100 * US),
    };
    scene.window.tcp_events = events.into_iter().map(event).collect();
    scene.explained()
}

#[test]
fn segments_that_are_sent_again_during_waits_for_the_network_are_their_cause() {
    let explanation = over_a_link(3, "10.0.0.2:9000");
    let first = &explanation.findings[0];
    assert_eq!(first.cause, "tcp-retransmit", "{explanation:#?}");
    assert!(first.summary.contains("10.0.0.2:9000"), "{}", first.summary);
    assert!(explanation.findings.iter().all(|finding| finding.cause != "net-wait"), "{explanation:#?}");
    // Now and then, or on another connection.
    for (lossy, remote) in [(1, "10.0.0.2:9000"), (4, "10.0.0.3:9000"), (0, "10.0.0.2:9000")] {
        let explanation = over_a_link(lossy, remote);
        only(&explanation, "net-wait");
        assert!(explanation.ruled_out.iter().any(|one| one.cause == "tcp-retransmit"), "{explanation:#?}");
    }
}

#[test]
fn two_threads_that_feed_the_gpu_in_turns_starve_nobody() {
    let mut other = None;
    let mut scene = training(|scene, thread, at| {
        let (other, signal) = *other.get_or_insert_with(|| {
            (scene.thread(ProcessId(1), 4712, "autograd"), scene.target(TargetKind::Signal, "0x7f20"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, signal, other));
        for launch in 0..20 {
            scene.call(other, "cuLaunchKernel", at + MS + launch * 20 * US, 5 * US);
        }
        scene.stretch(other, at + 7 * MS, Off::on(WaitReason::Futex, 10 * MS, signal, thread));
    });
    scene.window.pid = Some(4711);
    innocent(&scene.explained(), "input-starved");
}

#[test]
fn a_producer_that_sleeps_on_purpose_is_no_grave_cause_unless_it_was_asked_and_did_not_speak_first() {
    let starved = |is_asked: bool, spoke_first: bool| {
        let mut cast = None;
        let mut scene = training(|scene, thread, at| {
            let (worker, pipe) =
                *cast.get_or_insert_with(|| (scene.program(4800, "worker"), scene.target(TargetKind::Pipe, "p")));
            if is_asked {
                scene.stretch(worker, at, Off::on(WaitReason::Stream, 100 * US, pipe, thread));
            }
            scene.stretch(worker, at + 200 * US, Off::blocked(WaitReason::Sleep, 5 * MS));
            scene.stretch(thread, at, Off::on(WaitReason::Stream, 6 * MS, pipe, worker));
        });
        let worker = ProcessId(2);
        scene.window.processes.get_mut(&worker).unwrap().started_ns = START_NS + MS;
        if spoke_first {
            scene.window.spoke_first.insert((worker, ProcessId(1), TargetKind::Pipe));
        }
        scene.explained()
    };
    innocent(&starved(false, false), "input-starved");
    only(&starved(true, false), "input-starved");
    innocent(&starved(true, true), "input-starved");
}

/// A user who is a thread of the server: reads the answer, and thinks, which can be interrupted, until it asks again.
#[test]
fn a_thread_that_pauses_until_its_time_is_over_is_no_grave_cause() {
    let starved = |is_interrupted: bool| {
        let mut cast = None;
        let scene = training(|scene, thread, at| {
            let (user, asked, answered) = *cast.get_or_insert_with(|| {
                let user = scene.thread(ProcessId(1), 4712, "user");
                (user, scene.target(TargetKind::Signal, "0x10"), scene.target(TargetKind::Signal, "0x20"))
            });
            scene.stretch(user, at + 7 * MS, Off::on(WaitReason::Futex, MS, answered, thread));
            let pause = Off { target: Some(answered), ..Off::blocked(WaitReason::Futex, 5 * MS) };
            let pause = if is_interrupted { Off::on(WaitReason::Futex, 5 * MS, answered, thread) } else { pause };
            scene.stretch(user, at + 200 * US, pause);
            scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, asked, user));
        });
        scene.explained()
    };
    innocent(&starved(false), "input-starved");
    only(&starved(true), "input-starved");
}

#[test]
fn a_peer_elsewhere_is_named_by_its_address() {
    let mut peer = None;
    let explanation = training(|scene, thread, at| {
        let peer = *peer.get_or_insert_with(|| scene.target(TargetKind::Tcp, "10.0.0.2:8080"));
        scene.stretch(thread, at, Off { target: Some(peer), ..Off::blocked(WaitReason::Stream, 6 * MS) });
    })
    .explained();
    let finding = only(&explanation, "net-wait");
    assert_eq!(finding.culprit.as_ref().unwrap().detail, "a peer elsewhere: 10.0.0.2:8080");
}

#[test]
fn the_user_of_a_saturated_disk_is_blamed_and_otherwise_the_reader_itself() {
    let reading = |hog_busy_ns: u64| {
        let mut scene = training(|scene, thread, at| {
            scene.stretch(thread, at, Off::blocked(WaitReason::Io, 6 * MS));
            scene.window.io_requests.rows.push(IoRequest {
                start_ns: START_NS + at,
                duration_ns: 6 * MS,
                device: "vda".into(),
                bytes: 4096,
                is_write: false,
                issuer: Some(thread),
                waiter: thread,
            });
        });
        let hog = scene.process(4900, "dd");
        let usage = |process, busy_ns| IoUsage {
            bucket_ns: START_NS,
            process,
            device: "vda".into(),
            requests: 500,
            bytes: 1 << 20,
            busy_ns,
        };
        scene.window.io_usage = vec![usage(ProcessId(1), 3 * S), usage(hog, hog_busy_ns)];
        let explanation = scene.explained();
        only(&explanation, "io-wait").culprit.as_ref().unwrap().pid
    };
    assert_eq!([reading(9 * S), reading(S)], [4900, 4711]);
}

#[test]
fn faults_and_reclaim_are_told_apart_from_plain_io() {
    let faults = training(|scene, thread, at| scene.stretch(thread, at, Off::blocked(WaitReason::Fault, 6 * MS)));
    only(&faults.explained(), "page-fault");
    let reclaim = training(|scene, thread, at| {
        scene.work(thread, WorkKind::Reclaim, at, 6 * MS, None);
        scene.stretch(thread, at + MS, Off::blocked(WaitReason::Io, 4 * MS));
    });
    let explanation = reclaim.explained();
    assert_eq!(only(&explanation, "memory-reclaim").impact.share, 0.3);
    assert!(explanation.ruled_out.iter().any(|one| one.cause == "io-wait"));
}

#[test]
fn sleeping_on_purpose_is_no_finding() {
    let explanation = training(|scene, thread, at| scene.stretch(thread, at, Off::blocked(WaitReason::Sleep, 7 * MS)));
    assert_eq!(grave(&explanation.explained()), []);
}

#[test]
fn who_was_never_watched_leaves_a_gap_that_caps_the_confidence() {
    let mut cast = None;
    let mut scene = training(|scene, thread, at| {
        let (holder, lock) =
            *cast.get_or_insert_with(|| (scene.program(4800, "ghost"), scene.target(TargetKind::Lock, "0x1")));
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, lock, holder));
    });
    let ghost = cast.unwrap().0;
    scene.window.thread_sums.retain(|sum| sum.times.thread != ghost);
    let explanation = scene.explained();
    let finding = only(&explanation, "lock-wait");
    assert_eq!(finding.chain.weakest(), Evidence::Missing);
    assert!(finding.confidence <= 0.5);
}

#[test]
fn lost_records_lower_the_confidence() {
    let mut cast = None;
    let mut scene = training(|scene, thread, at| {
        let (holder, lock) =
            *cast.get_or_insert_with(|| (scene.program(4800, "holder"), scene.target(TargetKind::Lock, "0x1")));
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, lock, holder));
    });
    let mut number = 0;
    scene.window.stretches.rows.retain(|_| {
        number += 1;
        number % 4 < 2
    });
    let explanation = scene.explained();
    assert!(explanation.findings[0].confidence < HIGH_CONFIDENCE, "{explanation:#?}");
}

#[test]
fn threads_that_wait_for_each_other_in_a_circle_are_cut() {
    let mut cast = None;
    let explanation = training(|scene, thread, at| {
        let (one, two, lock) = *cast.get_or_insert_with(|| {
            (scene.program(5001, "one"), scene.program(5002, "two"), scene.target(TargetKind::Lock, "0x1"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, lock, one));
        scene.stretch(one, at, Off::on(WaitReason::Futex, 6 * MS, lock, two));
        scene.stretch(two, at, Off::on(WaitReason::Futex, 6 * MS, lock, one));
    })
    .explained();
    assert_eq!(explanation.findings[0].cause, "lock-wait");
}

#[test]
fn threads_that_suffer_from_the_same_culprit_are_one_finding_told_of_the_worst() {
    let mut scene = Scene::new(10 * S);
    let process = scene.process(4711, "python");
    let threads = [scene.thread(process, 4711, "python"), scene.thread(process, 4712, "feeder")];
    let hogs = [scene.program(1, "stress"), scene.program(2, "stress")];
    for step in 0..500 {
        for (thread, (hog, taken_ns)) in threads.into_iter().zip(hogs.into_iter().zip([3 * MS, 6 * MS])) {
            scene.stretch(thread, step * 20 * MS, Off::runnable(taken_ns, Some(hog)));
            scene.step(thread, step * 20 * MS + 8 * MS, 20, 11 * MS);
        }
    }
    let explanation = scene.explained();
    let finding = only(&explanation, "cpu-preempted");
    assert_eq!((finding.victim.tid, finding.impact.share, finding.impact.calls_affected), (4712, 0.3, 1000));
    assert_eq!(explanation.threads.len(), 2);
}

#[test]
fn a_busy_gpu_comes_after_what_is_grave_and_before_what_hardly_takes_any_time() {
    let mut hog = None;
    let explanation = training(|scene, thread, at| {
        let hog = *hog.get_or_insert_with(|| scene.program(1, "stress"));
        scene.stretch(thread, at, Off::blocked(WaitReason::Io, 4 * MS));
        scene.stretch(thread, at + 5 * MS, Off::runnable(400 * US, Some(hog)));
    })
    .explained();
    let causes: Vec<&str> = explanation.findings.iter().map(|finding| finding.cause.as_str()).collect();
    assert_eq!(causes, ["io-wait", "gpu-busy", "cpu-preempted"]);
    let ids: Vec<&str> = explanation.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(ids, ["f1", "f2", "f3"]);
}
