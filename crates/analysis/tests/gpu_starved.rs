//! A GPU that idles while the host has work for it, where nothing else explains it; and all those who only look like that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{Evidence, Explanation, Finding, Severity, TargetKind, WaitReason};
use gpuwhy_window::{Device, GpuWord};
use support::*;

const SECONDS: u64 = 8;

/// Launches every `every_ns`, with whatever a test lets the thread do before each of them, on a GPU that says this.
fn launching(
    every_ns: u64,
    said: GpuWord,
    mut before: impl FnMut(&mut Scene, gpuwhy_model::ThreadId, u64),
) -> Explanation {
    let mut scene = Scene::new(SECONDS * S);
    let thread = scene.program(4711, "python");
    for at_ns in (0..SECONDS * S - every_ns).step_by(every_ns as usize) {
        before(&mut scene, thread, at_ns);
        scene.call(thread, "cuLaunchKernel", at_ns + every_ns - 10 * US, 5 * US);
    }
    scene.window.gpu_words.insert(Device::default(), said);
    let mut window = scene.finished();
    window.call_seconds.iter_mut().for_each(|second| second.seen = second.calls);
    gpuwhy_analysis::explain(&window)
}

fn word(busy: f64, processes: Option<u64>) -> GpuWord {
    GpuWord { busy, moments: 5 * SECONDS, processes }
}

const OFTEN: u64 = 400 * US;

fn is_told(explanation: &Explanation) -> bool {
    explanation.findings.iter().any(|finding| finding.cause == "gpu-starved")
}

/// It is no alarm.
#[track_caller]
fn starved(explanation: &Explanation) -> &Finding {
    assert_eq!(grave(explanation), [], "{explanation:#?}");
    let found = explanation.findings.iter().find(|finding| finding.cause == "gpu-starved");
    found.unwrap_or_else(|| panic!("{explanation:#?}"))
}

#[track_caller]
fn silent(explanation: &Explanation) {
    assert!(!is_told(explanation), "{explanation:#?}");
}

#[test]
fn idle_times_between_launches_that_are_too_short_to_be_seen_are_told_with_what_is_missing() {
    let explanation = launching(OFTEN, word(0.5, Some(1)), |_, _, _| {});
    let finding = starved(&explanation);
    assert_eq!((finding.severity, finding.victim.pid), (Severity::Low, 4711));
    assert!((finding.impact.share - 0.48).abs() < 0.03, "{finding:#?}");
    assert_eq!(finding.chain.weakest(), Evidence::Missing);
    assert!(finding.confidence <= 0.5, "{finding:#?}");
    let missing = finding.chain.edges().last().unwrap();
    assert!(missing.what.ends_with("too short to be told from the GPU's work"), "{}", missing.what);
}

#[test]
fn a_gpu_that_works_and_one_that_idles_a_little_have_nothing_to_say() {
    silent(&launching(OFTEN, word(0.95, Some(1)), |_, _, _| {}));
    silent(&launching(OFTEN, word(0.82, Some(1)), |_, _, _| {}));
}

#[test]
fn where_others_use_the_gpu_or_nobody_knows_who_does_nobody_is_starved() {
    silent(&launching(OFTEN, word(0.5, Some(2)), |_, _, _| {}));
    silent(&launching(OFTEN, word(0.5, None), |_, _, _| {}));
}

#[test]
fn a_gpu_without_a_word_of_its_own_is_not_starved() {
    silent(&launching(OFTEN, GpuWord { moments: 2, ..word(0.5, Some(1)) }, |_, _, _| {}));
}

/// Half of its time a server waits for somebody to ask, in short waits.
#[test]
fn servers_that_nobody_asks_hold_nothing_back() {
    for reason in [WaitReason::Poll, WaitReason::Sleep, WaitReason::Stream, WaitReason::Other] {
        let idle = |scene: &mut Scene, thread, at_ns| scene.stretch(thread, at_ns, Off::blocked(reason, OFTEN / 2));
        silent(&launching(OFTEN, word(0.5, Some(1)), idle));
    }
    let mut client = None;
    let asked = |scene: &mut Scene, thread, at_ns| {
        let (other, socket) =
            *client.get_or_insert_with(|| (scene.program(4800, "client"), scene.target(TargetKind::Unix, "a socket")));
        scene.stretch(thread, at_ns, Off::on(WaitReason::Poll, OFTEN / 2, socket, other));
    };
    silent(&launching(OFTEN, word(0.5, Some(1)), asked));
}

/// A notebook: launches now and then, and in between nothing for seconds.
#[test]
fn a_notebook_that_rests_holds_nothing_back() {
    let mut scene = Scene::new(SECONDS * S);
    let thread = scene.program(4711, "ipykernel");
    for second in [0, 3, 6] {
        for launch in 0..400 {
            scene.call(thread, "cuLaunchKernel", second * S + launch * 100 * US, 5 * US);
        }
        scene.stretch(thread, second * S + 100 * MS, Off::blocked(WaitReason::Poll, S * 3 / 2));
    }
    scene.window.gpu_words.insert(Device::default(), word(0.05, Some(1)));
    silent(&scene.explained());
}

#[test]
fn a_program_that_loads_for_long_or_has_ended_is_not_starving_its_gpu() {
    for seconds in [3..SECONDS, 0..SECONDS - 3] {
        let mut scene = Scene::new(SECONDS * S);
        let thread = scene.program(4711, "python");
        for at_ns in (seconds.start * S..seconds.end * S).step_by(OFTEN as usize) {
            scene.call(thread, "cuLaunchKernel", at_ns, 5 * US);
        }
        scene.window.gpu_words.insert(Device::default(), word(0.5, Some(1)));
        silent(&scene.explained());
    }
}

#[test]
fn what_another_finding_explains_is_not_told_again() {
    let mut cast = None;
    let waits = |scene: &mut Scene, thread, at_ns| {
        let (other, lock) = *cast.get_or_insert_with(|| {
            (scene.thread(gpuwhy_model::ProcessId(1), 4720, "reader"), scene.target(TargetKind::Lock, "0x7f10"))
        });
        scene.stretch(thread, at_ns, Off::on(WaitReason::Futex, OFTEN / 2, lock, other));
    };
    let explanation = launching(OFTEN, word(0.5, Some(1)), waits);
    only(&explanation, "lock-wait");
    silent(&explanation);
    // Times that are long enough to be seen are its own code's.
    silent(&launching(4 * MS, word(0.3, Some(1)), |_, _, _| {}));
    // Launches in rapid succession are what the GPU waits for.
    silent(&launching(20 * US, word(0.5, Some(1)), |_, _, _| {}));
}
