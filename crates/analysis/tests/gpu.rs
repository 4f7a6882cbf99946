//! The GPU's own time: what is seen, what is estimated, and between which bounds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{Contradiction, Evidence, Explanation, GpuTime, ProcessId, Severity, Span, TargetKind, WaitReason};
use gpuwhy_window::{Device, GpuHealth, GpuWord, Window, Xid};
use support::*;

/// Steps of 10 ms: the GPU is given work at once, somebody waits for it from 2 to 5 ms, and nobody asks for more until the
/// next step: idle for half of the time.
fn half_idle() -> Window {
    let mut scene = Scene::new(8 * S);
    let thread = scene.program(4711, "python");
    for step in 0..800 {
        let start_ns = step * 10 * MS;
        scene.call(thread, "cuLaunchKernel", start_ns, 5 * US);
        scene.sync(thread, start_ns + 2 * MS, 3 * MS);
    }
    let mut window = scene.finished();
    window.call_seconds.iter_mut().for_each(|second| second.seen = second.calls);
    window
}

/// What is left where launches were watched for 60 ms of each 510.
fn in_looks(mut window: Window) -> Window {
    let looks = (0..).map(|look| START_NS + 100 * MS + look * 510 * MS).take_while(|&from_ns| from_ns < window.to_ns);
    window.watched = looks.map(|from_ns| Span { from_ns, to_ns: from_ns + 60 * MS }).collect();
    let is_watched = |at_ns: u64| window.watched.iter().any(|span| (span.from_ns..span.to_ns).contains(&at_ns));
    window.calls.rows.retain(|call| call.op != op("cuLaunchKernel") || is_watched(call.start_ns));
    window
        .call_seconds
        .iter_mut()
        .filter(|second| second.op == op("cuLaunchKernel"))
        .for_each(|second| second.seen /= 8);
    window
}

fn gpu(window: &Window) -> GpuTime {
    let explanation = gpuwhy_analysis::explain(window);
    let [gpu] = &explanation.gpus[..] else { panic!("{:#?}", explanation.gpus) };
    gpu.clone()
}

#[test]
fn from_a_wait_that_returned_to_the_next_launch_it_is_idle() {
    let gpu = gpu(&half_idle());
    assert!((gpu.idle_share - 0.5).abs() < 0.01, "{gpu:#?}");
    assert!((gpu.interval[1] - 0.7).abs() < 0.01, "{gpu:#?}");
    assert_eq!(gpu.known_by, Evidence::Observed);
}

#[test]
fn where_launches_are_watched_now_and_then_the_rest_is_estimated() {
    let seen = gpu(&half_idle());
    let gpu = gpu(&in_looks(half_idle()));
    assert!((gpu.idle_share - 0.5).abs() < 0.05, "{gpu:#?}");
    assert!(gpu.interval[0] > 0.3 && gpu.interval[0] <= 0.5 && gpu.interval[1] >= 0.5, "{gpu:#?}");
    assert_eq!(gpu.known_by, Evidence::Inferred);
    assert_eq!(gpu.busy_ns, seen.busy_ns, "waits are seen always");
    let because: u64 = gpu.idle_because.iter().map(|because| because.ns).sum();
    assert!(because.abs_diff(gpu.idle_ns) < gpu.idle_ns / 20, "what the host did stands for all of it: {gpu:#?}");
}

/// In the first of three looks the GPU is idle for most of the time, in the others hardly ever.
#[test]
fn an_idle_time_that_may_as_well_be_next_to_nothing_is_no_alarm() {
    let mut scene = Scene::new(8 * S);
    let thread = scene.program(4711, "python");
    for step in 0..800 {
        let start_ns = step * 10 * MS;
        scene.call(thread, "cuLaunchKernel", start_ns, 5 * US);
        scene.sync(thread, start_ns + if step < 20 { 2 * MS } else { 9 * MS - 50 * US }, MS);
    }
    let mut window = scene.finished();
    window.call_seconds.iter_mut().for_each(|second| second.seen = second.calls);
    let mut window = in_looks(window);
    window.watched.truncate(3);
    let last_ns = window.watched[2].to_ns;
    window.calls.rows.retain(|call| call.op != op("cuLaunchKernel") || call.start_ns < last_ns);
    let explanation = gpuwhy_analysis::explain(&window);
    let finding = explanation.findings.iter().find(|finding| finding.cause == "host-compute").unwrap();
    assert!(finding.impact.share > 0.2 && finding.severity == Severity::Low, "{finding:#?}");
    assert!(explanation.gpus[0].interval[0] < 0.05, "{:#?}", explanation.gpus);
}

/// What is estimated of launches between two looks is counted with the later one.
#[test]
fn seconds_with_waits_and_without_launches_had_some() {
    let mut window = in_looks(half_idle());
    let is_late = |at_ns: u64| (START_NS + 3 * S..START_NS + 6 * S).contains(&at_ns);
    window.watched.retain(|look| !is_late(look.from_ns));
    window.calls.rows.retain(|call| call.op != op("cuLaunchKernel") || !is_late(call.start_ns));
    window.call_seconds.retain(|second| second.op != op("cuLaunchKernel") || !is_late(second.bucket_ns));
    let gpu = gpu(&window);
    assert!((gpu.idle_share - 0.5).abs() < 0.1, "{gpu:#?}");
}

#[test]
fn where_nobody_says_when_launches_were_watched_they_are_not_known() {
    let mut window = in_looks(half_idle());
    window.watched.clear();
    let gpu = gpu(&window);
    assert_eq!(gpu.interval[0], 0.0, "{gpu:#?}");
    assert!(gpu.interval[1] >= 0.69, "{gpu:#?}");
}

/// Five moments a second for eight seconds.
fn word(busy: f64, processes: Option<u64>) -> GpuWord {
    GpuWord { busy, moments: 40, processes }
}

#[test]
fn a_gpu_is_believed_when_it_says_itself_how_much_it_worked() {
    let mut window = in_looks(half_idle());
    window.gpu_words.insert(Device::default(), word(0.25, Some(1)));
    let gpu = gpu(&window);
    assert_eq!((gpu.known_by, gpu.unknown_ns), (Evidence::Explicit, 0));
    assert!((gpu.idle_share - 0.75).abs() < 0.02, "{gpu:#?}");
    assert!((0.7..=0.73).contains(&gpu.interval[0]) && (0.87..0.92).contains(&gpu.interval[1]), "{gpu:#?}");
    let idle = gpu.idle_ns as f64 / (gpu.idle_ns + gpu.busy_ns) as f64;
    assert!((idle - gpu.idle_share).abs() < 0.001, "{gpu:#?}");
}

#[test]
fn what_the_host_did_is_no_more_than_the_idle_time_that_a_gpu_says_it_had() {
    let mut window = half_idle();
    window.gpu_words.insert(Device::default(), word(0.9, None));
    let gpu = gpu(&window);
    let because: u64 = gpu.idle_because.iter().map(|because| because.ns).sum();
    assert!(because.abs_diff(gpu.idle_ns) < gpu.idle_ns / 20, "{gpu:#?}");
}

#[test]
fn the_word_of_a_gpu_that_others_use_too_or_that_hardly_says_anything_does_not_count() {
    let told = |word: GpuWord| {
        let mut window = half_idle();
        window.gpu_words.insert(Device::default(), word);
        gpu(&window)
    };
    let seen = gpu(&half_idle());
    assert_eq!(GpuTime { contradiction: None, ..told(word(0.9, Some(2))) }, seen);
    assert_eq!(told(GpuWord { moments: 3, ..word(0.9, Some(1)) }), seen);
}

/// What is told of a GPU that is idle for 50 to 70 % of the time as far as calls tell.
fn contradiction(word: GpuWord) -> Option<Contradiction> {
    let mut window = half_idle();
    window.gpu_words.insert(Device::default(), word);
    gpu(&window).contradiction
}

#[test]
fn a_gpu_that_works_while_nothing_is_asked_of_it_contradicts_the_calls() {
    let told = contradiction(word(0.9, Some(3))).unwrap();
    assert_eq!(told.because, "2 of 3 processes on it are not traced");
    let [[least, _], [_, most]] = [told.by_calls, told.by_itself];
    assert!((told.difference - (least - most)).abs() < 0.001 && told.difference > 0.2, "{told:?}");
    assert_eq!(contradiction(word(0.9, None)).unwrap().because, "others may use it: it does not say who does");
    let hidden = contradiction(word(0.9, Some(1))).unwrap();
    assert!(hidden.because.contains("calls that are not traced"), "{hidden:?}");
}

#[test]
fn a_gpu_that_is_idle_while_somebody_waits_for_it_contradicts_the_calls() {
    let told = contradiction(word(0.1, Some(1))).unwrap();
    assert!(told.because.starts_with("what the host waits for is no kernel"), "{told:?}");
    assert!(told.by_itself[0] > told.by_calls[1], "{told:?}");
}

#[test]
fn what_both_intervals_allow_is_no_contradiction() {
    for busy in [0.28, 0.35, 0.5, 0.55] {
        assert_eq!(contradiction(word(busy, Some(1))), None, "{busy}");
    }
    assert_eq!(contradiction(GpuWord { moments: 3, ..word(0.9, Some(1)) }), None, "it hardly says anything");
    assert_eq!(gpu(&half_idle()).contradiction, None);
}

#[test]
fn nothing_is_grave_on_a_gpu_that_worked_all_the_time() {
    let starved = |busy: Option<f64>| {
        let mut cast = None;
        let mut scene = training(|scene, thread, at| {
            let (other, pipe) = *cast.get_or_insert_with(|| {
                (scene.thread(ProcessId(1), 4720, "reader"), scene.target(TargetKind::Lock, "0x7f10"))
            });
            scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, pipe, other));
        });
        scene
            .window
            .gpu_words
            .extend(busy.map(|busy| (Device::default(), GpuWord { moments: 50, ..word(busy, Some(1)) })));
        scene.explained()
    };
    assert_eq!(grave(&starved(None)), [("lock-wait", Severity::High)]);
    assert_eq!(grave(&starved(Some(0.7))), [("lock-wait", Severity::High)]);
    let busy = starved(Some(0.99));
    assert_eq!(grave(&busy), []);
    let finding = busy.findings.iter().find(|finding| finding.cause == "lock-wait").unwrap();
    let said = finding.chain.edges().find(|edge| edge.evidence == Evidence::Explicit).unwrap();
    assert!(said.what.starts_with("the GPU says that this took "), "{}", said.what);
}

/// Steps of 20 ms. A thread waits 6 ms for a lock, with or without work on the GPU, which says that it idles for 10 %.
#[test]
fn a_wait_beside_work_on_the_gpu_is_not_what_it_idles_for() {
    let waits = |launches_before: bool| {
        let mut scene = Scene::new(10 * S);
        let thread = scene.program(4711, "python");
        let other = scene.thread(ProcessId(1), 4720, "reader");
        let lock = scene.target(TargetKind::Lock, "0x7f10");
        for start_ns in (0..500).map(|step| step * 20 * MS) {
            if launches_before {
                scene.call(thread, "cuLaunchKernel", start_ns, 5 * US);
            }
            scene.stretch(thread, start_ns + MS, Off::on(WaitReason::Futex, 6 * MS, lock, other));
            scene.step(thread, start_ns + 7 * MS, 5, 11 * MS);
        }
        let mut window = scene.finished();
        window.call_seconds.iter_mut().for_each(|second| second.seen = second.calls);
        window.gpu_words.insert(Device::default(), GpuWord { moments: 50, ..word(0.9, Some(1)) });
        gpuwhy_analysis::explain(&window)
    };
    assert_eq!(grave(&waits(false)), [("lock-wait", Severity::Medium)]);
    let explained = waits(true);
    assert_eq!(grave(&explained), [], "{explained:#?}");
}

/// The rest of each step is a wait for work that was given before; the GPU alone can say that it idles between launches.
#[test]
fn a_gpu_that_idles_between_launches_in_rapid_succession_is_held_up_by_them() {
    let launching = |busy: f64| {
        let mut scene = Scene::new(8 * S);
        let thread = scene.program(4711, "python");
        for step in 0..400 {
            let start_ns = step * 20 * MS;
            for launch in 0..500 {
                scene.call(thread, "cuLaunchKernel", start_ns + launch * 20 * US, 5 * US);
            }
            scene.call(thread, "cuGraphLaunch", start_ns + 10 * MS, 10 * US);
            scene.sync(thread, start_ns + 10 * MS + 20 * US, 9 * MS + 900 * US);
        }
        scene.window.gpu_words.insert(Device::default(), word(busy, Some(1)));
        scene.explained()
    };
    assert_eq!(grave(&launching(0.95)), []);
    let explanation = launching(0.6);
    let finding = only(&explanation, "launch-bound");
    assert!((finding.impact.share - 0.4).abs() < 0.05, "{finding:#?}");
}

/// The host computes for most of a step, and never waits for the GPU: nothing is seen of its idle time.
fn computing(busy: f64, faults: u64, in_kernel_ns: u64) -> Explanation {
    let mut scene = Scene::new(8 * S);
    let thread = scene.program(4711, "python");
    for step in 0..400 {
        for launch in 0..20 {
            scene.call(thread, "cuLaunchKernel", step * 20 * MS + launch * 100 * US, 5 * US);
        }
    }
    let times = scene.times(thread);
    (times.minor_faults, times.system_ns) = (faults, in_kernel_ns);
    scene.window.gpu_words.insert(Device::default(), word(busy, Some(1)));
    let mut window = scene.finished();
    window.call_seconds.iter_mut().for_each(|second| second.seen = second.calls);
    gpuwhy_analysis::explain(&window)
}

#[test]
fn a_gpu_that_nobody_waits_for_is_idle_while_nothing_is_asked_of_it_for_long() {
    assert_eq!(grave(&computing(0.95, 0, 0)), []);
    let explanation = computing(0.6, 0, 0);
    let finding = only(&explanation, "host-compute");
    assert!((finding.impact.share - 0.4).abs() < 0.05, "{finding:#?}");
    assert_eq!(explanation.gpus[0].idle_because[0].why, "its own code ran");
}

/// Files that are mapped anew in each step: a third of what the host computes, and most of what the GPU misses.
#[test]
fn faults_of_a_host_that_computes_all_the_time_keep_the_gpu_waiting() {
    let explanation = computing(0.6, 1_600_000, 2_600 * MS);
    let finding = only(&explanation, "page-fault");
    assert!((finding.impact.share - 0.325).abs() < 0.05, "{finding:#?}");
    only(&computing(0.6, 1_600_000, S), "host-compute");
    only(&computing(0.6, 1_000, 2_600 * MS), "host-compute");
    assert_eq!(grave(&computing(0.95, 1_600_000, 2_600 * MS)), []);
}

/// What is told of a GPU, with how grave it is.
fn severity(window: &Window, cause: &str) -> Option<Severity> {
    let explanation = gpuwhy_analysis::explain(window);
    explanation.findings.iter().find(|finding| finding.cause.as_str() == cause).map(|finding| finding.severity)
}

#[test]
fn a_gpu_that_is_held_down_is_as_grave_as_it_is_slow() {
    let told = |held_down: u64, speed: Option<f64>| {
        let mut window = half_idle();
        let health = GpuHealth { moments: 100, held_down, reasons: 0x40, speed, memory_errors: 0 };
        window.gpu_health.insert(Device::default(), health);
        severity(&window, "gpu-throttled")
    };
    assert_eq!(told(100, Some(0.5)), Some(Severity::High));
    assert_eq!(told(60, Some(0.85)), Some(Severity::Medium));
    assert_eq!(told(60, Some(0.99)), Some(Severity::Low));
    assert_eq!(told(60, None), Some(Severity::Low), "nobody knows what it costs");
    assert_eq!(told(5, Some(0.5)), None, "a few moments");
    assert_eq!(severity(&half_idle(), "gpu-throttled"), None);
}

#[test]
fn a_fault_of_the_gpu_is_grave_and_one_of_the_program_less_so() {
    let told = |code: u32| {
        let mut window = half_idle();
        window.xids = vec![Xid { at_ns: START_NS + S, host: 0, device: "0".to_owned(), code, pid: Some(4711) }; 2];
        let explanation = gpuwhy_analysis::explain(&window);
        let found = explanation.findings.into_iter().find(|finding| finding.cause.as_str() == "gpu-fault").unwrap();
        (found.severity, found.summary)
    };
    let (severity, said) = told(79);
    assert_eq!(severity, Severity::High);
    assert_eq!(said, "GPU 0 reported Xid 79 (it has fallen off the bus), 2 times while python (4711) used it.");
    assert_eq!(told(31).0, Severity::Medium);
    assert_eq!(told(9999).0, Severity::High);
    let mut window = half_idle();
    window.gpu_health.insert(Device::default(), GpuHealth { memory_errors: 3, ..GpuHealth::default() });
    assert_eq!(self::severity(&window, "gpu-fault"), Some(Severity::High));
}
