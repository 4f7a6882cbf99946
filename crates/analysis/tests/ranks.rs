//! Ranks that wait for each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_analysis::{add_end, onset};
use gpuwhy_model::{Call, Explanation, Finding, LifeKind, ProcessLife, Severity, Standstill, ThreadId};
use gpuwhy_window::{Collective, CommunicatorEnd, FabricErrors, Host, Unusual, Window};
use support::*;

const RANKS: u32 = 3;
const STEP_NS: u64 = 40 * MS;

/// Steps of 40 ms: each rank launches, asks for an all-reduce and waits for all others, one of them longer than the rest.
fn job(late_ns: impl Fn(u64, u32) -> u64) -> Scene {
    job_of(RANKS, late_ns)
}

fn job_of(ranks: u32, late_ns: impl Fn(u64, u32) -> u64) -> Scene {
    let mut scene = Scene::new(8 * S);
    let threads: Vec<_> = (0..ranks).map(|rank| scene.program(4000 + rank, "python")).collect();
    for step in 0..200 {
        let start_ns = step * STEP_NS;
        let all_ns = start_ns + 5 * MS + (0..ranks).map(|rank| late_ns(step, rank)).max().unwrap();
        for (rank, &thread) in (0..).zip(&threads) {
            let at_ns = start_ns + late_ns(step, rank);
            for launch in 0..20 {
                scene.call(thread, "cuLaunchKernel", at_ns + launch * 20 * US, 5 * US);
            }
            scene.all_reduce(thread, at_ns + MS, rank, ranks, step);
            scene.sync(thread, at_ns + 2 * MS, all_ns + 15 * MS - at_ns);
        }
    }
    scene
}

fn told(explanation: &Explanation) -> Vec<&str> {
    explanation.findings.iter().map(|finding| finding.cause.as_str()).collect()
}

#[test]
fn the_rank_that_computes_longer_than_the_others_holds_them_up() {
    let explanation = job(|_, rank| if rank == 2 { 12 * MS } else { 0 }).explained();
    let first = &explanation.findings[0];
    assert_eq!((first.cause.as_str(), first.severity), ("straggler", Severity::High), "{explanation:#?}");
    assert_eq!((first.culprit.as_ref().unwrap().pid, first.victims), (4002, 2), "{first:#?}");
    assert!(first.summary.contains("Rank 2 of 3 is late"), "{}", first.summary);
    assert!((first.impact.share - 0.3).abs() < 0.02, "{first:#?}");
    let chain: Vec<&str> = first.chain.edges().map(|edge| edge.what.as_str()).collect();
    assert!(chain.iter().any(|what| what.contains("200 of 200 operations")), "{chain:#?}");
    // What holds it up is told with it, and not once more.
    assert!(chain.len() > 2 && !told(&explanation).contains(&"host-compute"), "{explanation:#?}");
}

#[test]
fn how_late_each_rank_was_is_told_also_of_those_that_were_not() {
    let ranks = job(|_, rank| if rank == 2 { 12 * MS } else { 0 }).explained().ranks;
    let told: Vec<_> = ranks.iter().map(|one| (one.rank, one.pid, one.operations, one.late_operations)).collect();
    assert_eq!(told, [(0, 4000, 200, 0), (1, 4001, 200, 0), (2, 4002, 200, 200)]);
    assert!(ranks.iter().all(|one| one.communicator == "0000000000000007"), "{ranks:#?}");
    assert_eq!((ranks[0].late_ns, ranks[0].share, ranks[0].at_a_time_ns), (0, 0.0, 0));
    // 12 ms in each step of 40 ms, in all of 8 s.
    assert_eq!((ranks[2].late_ns, ranks[2].at_a_time_ns), (200 * 12 * MS, 12 * MS));
    assert!((ranks[2].share - 0.3).abs() < 0.001, "{ranks:#?}");
}

/// Two operations before one wait: the rank is late to both, and the others wait once.
#[test]
fn a_rank_that_is_late_to_several_operations_at_once_is_late_once() {
    let explained = |steps: std::ops::Range<u64>| {
        let late_ns = move |step: u64, rank: u32| if rank == 2 && steps.contains(&step) { 12 * MS } else { 0 };
        let mut scene = job(late_ns);
        let first = scene.window.collectives.rows.clone();
        for one in &mut scene.window.collectives.rows {
            one.sequence *= 2;
        }
        for one in first {
            let (start_ns, sequence) = (one.start_ns + 100 * US, one.sequence * 2 + 1);
            scene.window.collectives.rows.push(Collective { start_ns, sequence, ..one });
        }
        scene.explained()
    };
    let explanation = explained(0..200);
    let first = &explanation.findings[0];
    assert_eq!(first.cause.as_str(), "straggler", "{explanation:#?}");
    assert!(first.chain.edges().any(|edge| edge.what.contains("400 of 400 operations")), "{first:#?}");
    assert!((first.impact.share - 0.3).abs() < 0.02, "{first:#?}");
    assert!(!told(&explained(0..4)).contains(&"straggler"), "eight operations in four steps are no habit");
}

#[test]
fn a_rank_that_is_late_by_little_at_a_time_is_low() {
    let severity = |late_ns: u64| {
        let explanation = job(|_, rank| if rank == 2 { late_ns } else { 0 }).explained();
        explanation.findings.iter().find(|finding| finding.cause.as_str() == "straggler").map(|found| found.severity)
    };
    assert_eq!(severity(3 * MS), Some(Severity::Low));
    assert_eq!(severity(5 * MS), Some(Severity::Medium));
}

/// From a step on, the last rank is late.
fn late_from(step: u64) -> Window {
    job(|now, rank| if rank == 2 && now >= step { 12 * MS } else { 0 }).finished()
}

#[test]
fn a_rank_that_has_become_late_is_seen_after_two_iterations() {
    for step in [185, 198] {
        let onset = onset(&late_from(step)).unwrap();
        assert_eq!((onset.during.to_ns - onset.during.from_ns) / MS, 2000);
        assert_eq!(onset.unusual.late_ns, 5 * MS);
    }
    assert_eq!(onset(&late_from(140)).unwrap().during.from_ns, START_NS + 140 * STEP_NS + MS);
    assert_eq!(onset(&late_from(199)), None);
}

/// Where CPUs are shared, somebody is late now and then.
#[test]
fn among_ranks_that_are_late_in_turn_one_that_is_late_each_time_is_seen() {
    let in_turn =
        |step: u64, rank: u32| if step.is_multiple_of(8) && (step / 8) % 3 == u64::from(rank) { 6 * MS } else { 0 };
    assert_eq!(onset(&job(in_turn).finished()), None);
    let late_from = |from: u64| {
        let late_ns = move |step, rank| if rank == 2 && step >= from { 12 * MS } else { in_turn(step, rank) };
        onset(&job(late_ns).finished())
    };
    assert_eq!(late_from(192).unwrap().unusual.late_ns, 5 * MS);
    assert_eq!(late_from(198), None, "twice is chance");
}

#[test]
fn ranks_that_come_together_or_are_late_in_turn_have_no_onset() {
    assert_eq!(onset(&job(|_, _| 0).finished()), None);
    let in_turn = |step: u64, rank: u32| if step % 3 == u64::from(rank) { 12 * MS } else { 0 };
    assert_eq!(onset(&job(in_turn).finished()), None);
    // It is over, or was late twice only because it was unlucky.
    let for_a_while = |step: u64, rank: u32| if rank == 2 && (130..140).contains(&step) { 12 * MS } else { 0 };
    assert_eq!(onset(&job(for_a_while).finished()), None);
    let unlucky = |step: u64, rank: u32| if rank == 2 && [170, 195].contains(&step) { 12 * MS } else { 0 };
    assert_eq!(onset(&job(unlucky).finished()), None);
}

/// What the run as a whole does not show is told where it is known how ranks came before.
#[test]
fn a_rank_that_was_late_a_few_times_is_told_if_ranks_were_not_before() {
    let few = |unusual| {
        let mut scene = Scene::new(S);
        let threads: Vec<_> = (0..RANKS).map(|rank| scene.program(4000 + rank, "python")).collect();
        for step in 0..3 {
            for (rank, &thread) in (0..).zip(&threads) {
                let at_ns = step * 300 * MS + if rank == 2 { 120 * MS } else { 0 };
                (0..20).for_each(|launch| _ = scene.call(thread, "cuLaunchKernel", at_ns + launch * 20 * US, 5 * US));
                scene.all_reduce(thread, at_ns + MS, rank, RANKS, step);
                scene.sync(thread, at_ns + 2 * MS, step * 300 * MS + 200 * MS - at_ns);
            }
        }
        scene.window.unusual = unusual;
        scene.explained()
    };
    let unusual = Some(Unusual { since_ns: START_NS, late_ns: 5 * MS });
    assert!(told(&few(unusual)).contains(&"straggler"), "{:#?}", few(unusual));
    assert!(!told(&few(None)).contains(&"straggler"), "{:#?}", few(None));
}

/// A launch of a graph that was not seen puts all later ones of the rank out of place.
#[test]
fn a_rank_whose_operations_are_counted_wrong_is_not_late() {
    let mut scene = job(|_, _| 0);
    for one in scene.window.collectives.rows.iter_mut().filter(|one| one.rank == 2 && one.sequence > 50) {
        one.sequence -= 1;
    }
    let explanation = scene.explained();
    assert!(!told(&explanation).contains(&"straggler"), "{explanation:#?}");
}

#[test]
fn what_ranks_wait_longer_than_the_last_one_is_told_as_communication() {
    let late = job(|_, rank| if rank == 2 { 12 * MS } else { 0 }).explained();
    assert_eq!(late.gpus[0].communicating_ns / MS, 200 * 12, "{:#?}", late.gpus);
    let balanced = job(|_, _| 0).explained();
    assert_eq!(balanced.gpus[0].communicating_ns, 0, "{:#?}", balanced.gpus);
}

#[test]
fn ranks_whose_gpu_is_done_in_turn_ask_again_in_turn() {
    let mut scene = job(|_, rank| if rank == 2 { 12 * MS } else { 0 });
    let last = scene.window.collectives.rows.iter().find(|one| one.rank == 2).unwrap().thread;
    let waits = |call: &&mut Call| call.thread == last && call.op == op("cuStreamSynchronize");
    scene.window.calls.rows.iter_mut().filter(waits).for_each(|call| call.duration_ns += 12 * MS);
    let explanation = scene.explained();
    assert!(!told(&explanation).contains(&"straggler"), "{explanation:#?}");
}

/// Whatever holds a host up makes all of its ranks late.
#[test]
fn several_ranks_that_are_late_together_hold_the_others_up() {
    let explanation = job_of(5, |_, rank| if rank >= 3 { 12 * MS + u64::from(rank) * 10 * US } else { 0 }).explained();
    let first = &explanation.findings[0];
    assert_eq!((first.cause.as_str(), first.severity), ("straggler", Severity::High), "{explanation:#?}");
    assert_eq!(first.culprit.as_ref().unwrap().pid, 4004, "{first:#?}");
    let chain: Vec<&str> = first.chain.edges().map(|edge| edge.what.as_str()).collect();
    assert!(chain.iter().any(|what| what.contains("so did another rank")), "{chain:#?}");
}

/// As in a merged trace: the last rank ran on another host.
fn on_two_hosts(late_ns: u64, error_ns: Option<u64>) -> Explanation {
    let mut scene = job(|_, rank| if rank == 2 { late_ns } else { 0 });
    let host = |name: &str, clock_error_ns| Host { name: name.into(), clock_error_ns };
    scene.window.hosts = vec![host("node-a", Some(0)), host("node-b", error_ns)];
    let pids = scene.window.processes.iter().map(|(&id, process)| (id, u16::from(process.pid == 4002)));
    scene.window.host_of = pids.collect();
    scene.explained()
}

#[test]
fn a_rank_on_another_host_is_late_only_by_more_than_its_clock_may_be_off() {
    let explanation = on_two_hosts(12 * MS, Some(MS));
    let first = &explanation.findings[0];
    assert_eq!(first.cause, "straggler", "{explanation:#?}");
    assert_eq!(first.culprit.as_ref().unwrap().host.as_deref(), Some("node-b"), "{first:#?}");
    assert!(first.summary.contains("on node-b"), "{}", first.summary);
    assert_eq!(explanation.gpus.len(), 2, "{explanation:#?}");
    for (late_ns, error_ns) in [(12 * MS, Some(13 * MS)), (12 * MS, None)] {
        let explanation = on_two_hosts(late_ns, error_ns);
        assert!(!told(&explanation).contains(&"straggler"), "{explanation:#?}");
    }
}

/// A job of balanced ranks on a host whose ports count errors.
fn on_a_bad_fabric() -> Scene {
    let error = |port: &str, counter: &str, count| {
        let (port, counter) = (format!("{port}/1/InfiniBand"), counter.into());
        FabricErrors { host: 0, port, counter, count }
    };
    let mut scene = job(|_, _| 0);
    scene.window.fabric_errors = vec![
        error("mlx5_0", "port_rcv_errors", 3),
        error("mlx5_0", "symbol_error", 40),
        error("mlx5_1", "link_downed", 1),
    ];
    scene
}

#[test]
fn a_port_that_counts_errors_while_ranks_communicate_is_told() {
    let explanation = on_a_bad_fabric().explained();
    let found = explanation.findings.iter().find(|finding| finding.cause == "fabric-error").unwrap();
    assert_eq!(found.severity, Severity::Medium, "{found:#?}");
    let expected = "The fabric counted errors meanwhile: 3 port_rcv_errors on mlx5_0/1/InfiniBand, 40 symbol_error on \
        mlx5_0/1/InfiniBand, 1 link_downed on mlx5_1/1/InfiniBand.";
    assert_eq!(found.summary, expected);
}

#[test]
fn a_fabric_that_no_rank_uses_is_nothing_to_be_alarmed_by() {
    let mut scene = on_a_bad_fabric();
    scene.window.collectives.rows.clear();
    let explanation = scene.explained();
    assert!(explanation.findings.iter().all(|finding| finding.severity == Severity::Low), "{explanation:#?}");
    assert!(told(&explanation).contains(&"fabric-error"), "{explanation:#?}");
}

#[test]
fn ranks_that_are_late_in_turn_are_balanced() {
    let explanation = job(|step, rank| if step % 3 == u64::from(rank) { 3 * MS } else { 0 }).explained();
    assert!(!told(&explanation).contains(&"straggler"), "{explanation:#?}");
}

#[test]
fn operations_that_not_all_ranks_were_seen_to_ask_for_say_nothing() {
    let mut scene = job(|_, rank| if rank == 2 { 12 * MS } else { 0 });
    scene.window.collectives.rows.retain(|one| one.rank != 0);
    let explanation = scene.explained();
    assert!(!told(&explanation).contains(&"straggler"), "{explanation:#?}");
}

/// As above, but after two seconds a rank asks for nothing any more and the others wait for it.
fn stuck(in_the_end: impl Fn(&mut Scene)) -> Explanation {
    let mut scene = job(|_, _| 0);
    scene.window.collectives.rows.retain(|one| one.sequence < 50 || (one.sequence == 50 && one.rank != 1));
    scene.window.calls.rows.retain(|call| call.start_ns < START_NS + 2 * S);
    in_the_end(&mut scene);
    scene.explained()
}

#[test]
fn a_rank_that_does_not_take_part_any_more_leaves_the_others_hanging() {
    let explanation = stuck(|_| {});
    let first = &explanation.findings[0];
    assert_eq!((first.cause.as_str(), first.severity), ("collective-hang", Severity::High), "{explanation:#?}");
    assert_eq!((first.culprit.as_ref().unwrap().pid, first.victims), (4001, 2), "{first:#?}");
    assert!(first.summary.starts_with("Rank 1 of 3 does not take part"), "{}", first.summary);
}

/// What a job did before says nothing about how it ends.
#[test]
fn a_job_that_hangs_in_the_end_is_told_first() {
    let mut before = job(|_, rank| if rank == 2 { 12 * MS } else { 0 }).explained();
    let findings = before.findings.len();
    add_end(&mut before, stuck(|_| {}));
    assert_eq!((before.findings[0].cause.as_str(), before.findings.len()), ("collective-hang", findings + 1));
    assert_eq!((before.findings[1].cause.as_str(), before.findings[1].id.as_str()), ("straggler", "f2"));
    assert!(before.ruled_out.iter().all(|line| line.cause.as_str() != "collective-hang"));
    add_end(&mut before, stuck(|_| {}));
    assert_eq!(before.findings.len(), findings + 1, "it is told once");
}

#[test]
fn a_rank_that_asks_for_something_else_leaves_the_others_hanging() {
    let explanation = stuck(|scene| {
        let rows = &mut scene.window.collectives.rows;
        let mut other = *rows.iter().rfind(|one| one.rank == 1).unwrap();
        (other.sequence, other.bytes, other.start_ns) = (50, 8, START_NS + 2 * S + MS);
        rows.push(other);
    });
    let first = &explanation.findings[0];
    assert!(first.summary.starts_with("Rank 1 of 3 asks for something else"), "{first:#?}");
}

#[test]
fn ranks_that_have_all_asked_for_their_last_operation_do_not_hang() {
    let explanation = stuck(|scene| scene.window.collectives.rows.retain(|one| one.sequence < 50));
    assert!(!told(&explanation).contains(&"collective-hang"), "{explanation:#?}");
}

#[test]
fn ranks_that_have_ended_do_not_hang() {
    let explanation = stuck(|scene| {
        for pid in 4000..4003 {
            let (at_ns, kind, comm) = (START_NS + 3 * S, LifeKind::Exit, "python".to_owned());
            let exit = ProcessLife { at_ns, kind, pid, child_pid: None, status: Some(0), comm };
            scene.window.life.push(exit.into());
        }
    });
    assert!(!told(&explanation).contains(&"collective-hang"), "{explanation:#?}");
}

/// Ranks have asked for operations up to 50, and since then each of them is in a wait for the GPU.
fn all_in_waits(in_the_end: impl Fn(&mut Scene)) -> Explanation {
    let mut scene = job(|_, _| 0);
    scene.window.collectives.rows.retain(|one| one.sequence <= 50);
    scene.window.calls.rows.retain(|call| call.start_ns < START_NS + 2 * S);
    for thread in 1..=RANKS {
        stands(&mut scene, ThreadId(thread), 2 * S + 2 * MS);
    }
    in_the_end(&mut scene);
    scene.explained()
}

fn stands(scene: &mut Scene, thread: ThreadId, since_ns: u64) {
    let (start_ns, seen_ns) = (START_NS + since_ns, START_NS + 7 * S);
    let op = Some(op("cuStreamSynchronize"));
    scene.window.standstills.push(Standstill { thread, start_ns, seen_ns, op, reason: None, stack: None });
}

fn hang(explanation: &Explanation) -> &Finding {
    let first = &explanation.findings[0];
    assert_eq!((first.cause.as_str(), first.severity), ("collective-hang", Severity::High), "{explanation:#?}");
    let of_ranks = first.chain.edges().filter(|edge| edge.what.contains("has been in cuStreamSynchronize for 5.0 s"));
    assert_eq!(of_ranks.count(), RANKS as usize, "{first:#?}");
    first
}

#[test]
fn ranks_that_are_all_in_an_operation_for_far_longer_than_before_are_stuck_in_it() {
    let explanation = all_in_waits(|_| {});
    let hang = hang(&explanation);
    assert!(hang.summary.starts_with("All 3 ranks have asked for ncclAllReduce, and none is done"), "{hang:#?}");
    assert_eq!((hang.culprit.is_none(), hang.victims), (true, 3), "{hang:#?}");
}

#[test]
fn ranks_whose_operations_take_long_are_not_stuck_yet() {
    let explanation = all_in_waits(|scene| {
        let long = scene.window.calls.rows.iter_mut().find(|call| call.op == op("cuStreamSynchronize"));
        long.unwrap().duration_ns = S;
    });
    assert!(!told(&explanation).contains(&"collective-hang"), "{explanation:#?}");
}

/// What was never seen of them cannot be said.
#[test]
fn ranks_that_are_stuck_with_others_that_are_not_traced_are_told_as_that() {
    let explanation = all_in_waits(|scene| scene.window.collectives.rows.iter_mut().for_each(|one| one.ranks = 8));
    let summary = &hang(&explanation).summary;
    assert!(summary.starts_with("3 of 8 ranks, all that are traced, have asked for"), "{summary}");
}

#[test]
fn a_rank_that_does_not_come_out_of_an_operation_keeps_the_others_waiting_in_the_next() {
    let explanation = only_the_second_is_inside(|scene, rank, thread| {
        scene.all_reduce(thread, 2 * S + 41 * MS, rank, RANKS, 51);
        stands(scene, thread, 2 * S + 42 * MS);
    });
    let first = &explanation.findings[0];
    assert!(first.summary.starts_with("Rank 1 of 3 does not come out of an operation"), "{explanation:#?}");
    assert_eq!((first.culprit.as_ref().unwrap().pid, first.victims), (4001, 2), "{first:#?}");
}

/// Those who are out of it wait for nobody yet. What they do tells as much.
#[test]
fn all_ranks_are_told_where_one_does_not_come_out_the_one_that_is_inside_first() {
    let explanation = only_the_second_is_inside(|_, _, _| {});
    let hang = &explanation.findings[0];
    assert!(hang.summary.starts_with("Rank 1 of 3 does not come out of an operation"), "{explanation:#?}");
    let steps = hang.chain.edges().map(|edge| edge.what.as_str());
    let ranks: Vec<&str> = steps.skip(2).map(|what| &what[.."rank 0,".len()]).collect();
    assert_eq!(ranks, ["rank 1,", "rank 0,", "rank 2,"], "{hang:#?}");
}

/// The last operation is over for all ranks but the second. What the others do then.
fn only_the_second_is_inside(then: impl Fn(&mut Scene, u32, ThreadId)) -> Explanation {
    all_in_waits(|scene| {
        scene.window.standstills.retain(|one| one.thread == ThreadId(2));
        for (rank, thread) in [(0, ThreadId(1)), (2, ThreadId(3))] {
            let asked = scene.window.collectives.rows.iter().find(|one| (one.rank, one.sequence) == (rank, 50));
            let asked_ns = asked.unwrap().start_ns - START_NS;
            scene.call(thread, "ncclAllReduce", asked_ns, 10 * US);
            scene.sync(thread, asked_ns + MS, 15 * MS);
            then(scene, rank, thread);
        }
    })
}

/// All ranks are in operation 50, or were: some of them gave the communicator up in it.
fn given_up(ranks: &[u32], has_ended: bool) -> Explanation {
    all_in_waits(|scene| {
        let gone = |thread: ThreadId| ranks.contains(&(thread.0 - 1));
        scene.window.standstills.retain(|one| !gone(one.thread));
        for &rank in ranks {
            let process = scene.window.threads[&ThreadId(rank + 1)].process;
            let end = CommunicatorEnd { at_ns: START_NS + 2 * S + 10 * MS, op: op("ncclCommAbort") };
            scene.window.ended_communicators.insert((7, process), end);
            if has_ended {
                scene.window.life.push(exit(4000 + rank, START_NS + 3 * S).into());
            }
        }
    })
}

#[test]
fn a_rank_that_gives_a_communicator_up_leaves_those_who_wait_in_it_hanging() {
    for (has_ended, does) in [(false, "rank 1, "), (true, "ended 5.0 s before")] {
        let explanation = given_up(&[1], has_ended);
        let first = &explanation.findings[0];
        assert!(
            first.summary.starts_with("Rank 1 of 3 has given the communicator up: 2 others wait"),
            "{explanation:#?}"
        );
        assert_eq!((first.culprit.as_ref().unwrap().pid, first.victims), (4001, 2), "{first:#?}");
        let chain: Vec<&str> = first.chain.edges().map(|edge| edge.what.as_str()).collect();
        assert!(chain.iter().any(|what| what.contains("has ended the communicator by ncclCommAbort")), "{chain:#?}");
        assert!(chain.iter().any(|what| what.contains(does)), "{chain:#?}");
    }
}

#[test]
fn ranks_that_have_all_given_a_communicator_up_do_not_hang_in_it() {
    let explanation = given_up(&[0, 1, 2], false);
    assert!(!told(&explanation).contains(&"collective-hang"), "{explanation:#?}");
}

/// Who does not wait for the others may do without them.
#[test]
fn a_rank_that_does_something_else_after_the_others_have_given_up_does_not_hang() {
    let explanation = given_up(&[1, 2], true);
    assert!(told(&explanation).contains(&"collective-hang"), "it waits: {explanation:#?}");
    let explanation = stuck(|scene| {
        for rank in [1, 2] {
            let process = scene.window.threads[&ThreadId(rank + 1)].process;
            let end = CommunicatorEnd { at_ns: START_NS + 3 * S, op: op("ncclCommDestroy") };
            scene.window.ended_communicators.insert((7, process), end);
        }
    });
    assert!(!told(&explanation).contains(&"collective-hang"), "{explanation:#?}");
}

#[test]
fn ranks_that_wait_for_each_other_in_two_communicators_are_one_hang() {
    let explanation = all_in_waits(|scene| {
        scene.window.collectives.rows.retain(|one| one.sequence < 50 || one.rank != 1);
        let mut on_another = |thread, at_ns, rank, sequence| {
            scene.all_reduce(thread, at_ns, rank, RANKS, sequence);
            scene.window.collectives.rows.last_mut().unwrap().communicator = 8;
        };
        for rank in 0..RANKS {
            on_another(ThreadId(rank + 1), S + 2500 * US, rank, 4);
        }
        on_another(ThreadId(2), 2 * S + MS, 1, 5);
    });
    let hang = hang(&explanation);
    assert!(hang.summary.starts_with("Rank 1 of 3 waits in another communicator for those"), "{hang:#?}");
    assert_eq!(told(&explanation).iter().filter(|cause| **cause == "collective-hang").count(), 1, "{explanation:#?}");
}
