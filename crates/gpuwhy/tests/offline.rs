//! Nothing leaves the host: every command works where there is no network, and never reaches for one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::process::Command;

use support::{Place, needs_root, output};

/// Runs gpuwhy in an empty network namespace. Returns its output and what it asked the kernel's network code for.
fn offline(place: &Place, arguments: &[&str]) -> (String, Vec<String>) {
    let log = place.dir.path().join("strace.log");
    let mut command = Command::new("unshare");
    command.args(["-n", "strace", "-f", "-qq", "-e", "trace=%network", "-e", "signal=none", "-o"]).arg(&log);
    command.arg(env!("CARGO_BIN_EXE_gpuwhy")).args(arguments).env("LD_LIBRARY_PATH", place.testbed.dir());
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, 0, "strace is needed; {stderr}");
    let log = std::fs::read_to_string(&log).unwrap();
    // Calls younger than strace, such as the one a return probe makes, are in every class.
    (stdout, log.lines().filter(|line| !line.contains(" syscall_0x")).map(str::to_owned).collect())
}

/// Sockets that cannot leave the host, between its processes or to its kernel, and calls about those.
fn stays_on_the_host(calls: &[String]) {
    let mut local: Vec<&str> = Vec::new();
    for call in calls {
        if call.contains("socket(") || call.contains("socketpair(") {
            assert!(call.contains("AF_UNIX") || call.contains("AF_NETLINK"), "{call}");
            local.extend(call.rsplit_once("= ").map(|(_, descriptor)| descriptor.trim()));
        } else if !call.contains(" resumed>") {
            let of = call.split_once('(').and_then(|(_, rest)| rest.split([',', ')']).next());
            assert!(of.is_some_and(|of| local.contains(&of)), "{call}");
        }
    }
}

#[test]
fn root_no_command_reaches_for_the_network() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let file = file.to_str().unwrap();
    let workload = place.testbed.workload();
    let (stdout, calls) = offline(&place, &["check", "--json"]);
    assert!(stdout.contains("\"can_trace\":true"), "{stdout}");
    stays_on_the_host(&calls);

    let command = ["--", workload.to_str().unwrap(), "--mix", "launch", "--calls", "100"];
    let (_, calls) = offline(&place, &[&["trace", "--out", file], &command[..]].concat());
    stays_on_the_host(&calls);

    let launches = "SELECT count(*) AS calls FROM cuda_events WHERE op = 'cuLaunchKernel'";
    let (stdout, calls) = offline(&place, &["query", file, launches, "--csv"]);
    assert_eq!(stdout, "calls\n100\n");
    stays_on_the_host(&calls);
}

#[test]
fn root_the_namespace_of_these_tests_has_no_way_out_and_strace_would_see_a_try() {
    needs_root();
    let place = Place::new();
    let log = place.dir.path().join("strace.log");
    let script = "import socket; s = socket.socket(); s.settimeout(1); print(s.connect_ex(('192.0.2.1', 80)))";
    let mut command = Command::new("unshare");
    command.args(["-n", "strace", "-f", "-qq", "-e", "trace=%network", "-o"]).arg(&log);
    command.args(["python3", "-c", script]);
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, 0, "{stderr}");
    assert_ne!(stdout.trim(), "0");
    let seen = std::fs::read_to_string(&log).unwrap();
    assert!(seen.contains("AF_INET") && seen.contains("connect("), "{seen}");
}
