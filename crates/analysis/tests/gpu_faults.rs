//! GPUs that say of themselves that something of them is broken, and who suffers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{Finding, Severity};
use gpuwhy_window::{Device, GpuFaults, GpuLinkFault, GpuLost, LinkSlowed, Window, Xid};
use support::*;

/// Two processes on the GPU with number 0.
fn job() -> Window {
    let mut scene = Scene::new(4 * S);
    for (pid, launches) in [(4711, 20), (4712, 10)] {
        let thread = scene.program(pid, if pid == 4711 { "python" } else { "helper" });
        for step in 0..200 {
            scene.step(thread, step * 20 * MS, launches, 11 * MS);
        }
    }
    scene.finished()
}

/// What is told of the GPU with this number.
fn told(number: u16, faults: GpuFaults) -> Vec<Finding> {
    let mut window = job();
    window.gpu_faults.insert(Device { host: 0, number }, faults);
    faults_of(&window)
}

fn faults_of(window: &Window) -> Vec<Finding> {
    let explanation = gpuwhy_analysis::explain(window);
    explanation.findings.into_iter().filter(|finding| finding.cause == "gpu-fault").collect()
}

#[track_caller]
fn one(findings: &[Finding]) -> (Severity, &str) {
    let [finding] = findings else { panic!("{findings:#?}") };
    (finding.severity, &finding.summary)
}

const WIDTH: LinkSlowed = LinkSlowed { moments: 8, slow: 8, last_slow: 8, least: 4, most: 16 };

#[test]
fn a_gpu_that_fell_off_the_bus_is_told_with_all_who_use_it() {
    let lost = Some(GpuLost { at_ns: START_NS + S, had_answered: true });
    let findings = told(0, GpuFaults { lost, link_width: Some(WIDTH), ..GpuFaults::default() });
    let said = "GPU 0 fell off the bus: it does not answer any more while python (4711) and another process used it.";
    assert_eq!(one(&findings), (Severity::High, said));
    assert_eq!((findings[0].victims, findings[0].victim.pid), (2, 4711));
    let users = findings[0].chain.edges().last().unwrap();
    assert_eq!(users.what, "python (4711), helper (4712) use it");
}

#[test]
fn what_the_driver_has_reported_is_not_told_twice() {
    let mut window = job();
    let lost = Some(GpuLost { at_ns: START_NS + S, had_answered: true });
    window.gpu_faults.insert(Device::default(), GpuFaults { lost, ..GpuFaults::default() });
    window.xids = vec![Xid { at_ns: START_NS + S, host: 0, device: "0".to_owned(), code: 79, pid: Some(4711) }];
    let findings = faults_of(&window);
    assert!(one(&findings).1.starts_with("GPU 0 reported Xid 79 (it has fallen off the bus) while "), "{findings:#?}");
    window.xids[0].code = 31;
    assert_eq!(faults_of(&window).len(), 2, "another one is another fault");
}

#[test]
fn a_link_to_the_host_is_slow_when_it_was_at_the_last_looks_or_at_many() {
    let width = |link| one_severity(&told(0, GpuFaults { link_width: Some(link), ..GpuFaults::default() }));
    assert_eq!(width(WIDTH), Some(Severity::High));
    assert_eq!(width(LinkSlowed { least: 8, ..WIDTH }), Some(Severity::Medium));
    assert_eq!(width(LinkSlowed { moments: 1000, slow: 2, last_slow: 2, ..WIDTH }), Some(Severity::High), "right now");
    assert_eq!(width(LinkSlowed { moments: 20, slow: 3, last_slow: 0, ..WIDTH }), Some(Severity::High), "often");
    assert_eq!(width(LinkSlowed { moments: 1000, slow: 3, last_slow: 1, ..WIDTH }), None, "by chance");
    let generation = LinkSlowed { least: 4, most: 5, ..WIDTH };
    let findings = told(0, GpuFaults { link_generation: Some(generation), ..GpuFaults::default() });
    assert!(one(&findings).1.contains("a link of generation 4, and could at 5 (at 8 of 8 looks)"), "{findings:#?}");
    assert_eq!(findings[0].severity, Severity::Medium);
}

fn one_severity(findings: &[Finding]) -> Option<Severity> {
    (!findings.is_empty()).then(|| one(findings).0)
}

#[test]
fn links_to_other_gpus_are_as_grave_as_what_is_wrong_with_them() {
    let links = |links: &[GpuLinkFault]| told(0, GpuFaults { links: links.to_vec(), ..GpuFaults::default() });
    let damaged = GpuLinkFault { number: 2, replays: 3, damaged: 4, ..GpuLinkFault::default() };
    let down = GpuLinkFault { number: 5, is_down: true, ..GpuLinkFault::default() };
    assert_eq!(one_severity(&links(&[damaged])), Some(Severity::Low));
    assert_eq!(one_severity(&links(&[GpuLinkFault { recoveries: 1, ..damaged }])), Some(Severity::Medium));
    let findings = links(&[damaged, down]);
    let said = "has trouble with links to other GPUs (link 2: 3 packets sent again, 4 damaged packets; link 5: down)";
    assert!(one(&findings).1.contains(said), "{findings:#?}");
    assert_eq!(findings[0].severity, Severity::High);
}

#[test]
fn memory_that_waits_for_a_reset_is_told_as_grave_as_it_is_new() {
    let pending = GpuFaults { repair_pending: true, ..GpuFaults::default() };
    assert_eq!(one_severity(&told(0, pending.clone())), Some(Severity::Low));
    let new = GpuFaults { repair_is_new: true, ..pending };
    assert_eq!(one_severity(&told(0, new.clone())), Some(Severity::Medium));
    assert_eq!(one_severity(&told(0, GpuFaults { repair_failed: true, ..new })), Some(Severity::High));
}

#[test]
fn faults_of_different_kinds_are_told_apart() {
    let faults = GpuFaults { link_width: Some(WIDTH), repair_failed: true, ..GpuFaults::default() };
    assert_eq!(told(0, faults).len(), 2);
}

#[test]
fn a_fault_after_the_last_work_is_told_first_and_once_for_each_gpu() {
    let explained = |number: u16| {
        let mut window = job();
        let lost = Some(GpuLost { at_ns: START_NS + S, had_answered: true });
        window.gpu_faults.insert(Device { host: 0, number }, GpuFaults { lost, ..GpuFaults::default() });
        gpuwhy_analysis::explain(&window)
    };
    let mut before = gpuwhy_analysis::explain(&job());
    let faults = |one: &gpuwhy_model::Explanation| {
        one.findings.iter().take_while(|finding| finding.cause == "gpu-fault").count()
    };
    for (number, count) in [(0, 1), (0, 1), (1, 2)] {
        gpuwhy_analysis::add_end(&mut before, explained(number));
        assert_eq!(faults(&before), count, "{before:#?}");
    }
}

/// Where the driver's files cannot be read, nobody knows which GPU a program uses.
#[test]
fn who_may_use_that_gpu_is_told_as_such() {
    let mut window = job();
    window.calls.rows.iter_mut().for_each(|call| call.device = None);
    window.gpu_faults.insert(Device::default(), GpuFaults { link_width: Some(WIDTH), ..GpuFaults::default() });
    let findings = faults_of(&window);
    assert!(one(&findings).1.ends_with(" while python (4711) and another process used a GPU."), "{findings:#?}");
}

#[test]
fn troubles_of_a_gpu_that_nobody_here_uses_are_nobodys() {
    let lost = Some(GpuLost { at_ns: START_NS, had_answered: false });
    assert_eq!(told(3, GpuFaults { lost, ..GpuFaults::default() }), []);
    assert_eq!(told(3, GpuFaults { link_width: Some(WIDTH), ..GpuFaults::default() }), []);
    assert_eq!(told(0, GpuFaults::default()), []);
    assert_eq!(told(0, GpuFaults { lost, ..GpuFaults::default() }).len(), 1);
}
