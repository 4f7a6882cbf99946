//! The GPU's own time: what is seen, what is estimated, and between which bounds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{Evidence, GpuTime, Span};
use gpuwhy_window::Window;
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
