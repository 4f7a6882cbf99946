//! What a service manager is told, and what shells and readers of manuals get.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use support::{LIMIT, Place, gpuwhy, needs_root, output};

#[test]
fn root_a_service_manager_is_told_when_it_is_ready_that_it_lives_and_when_it_stops() {
    needs_root();
    let place = Place::new();
    let path = place.dir.path().join("notify");
    let name = format!("gpuwhy-test-{}", std::process::id());
    let hidden = SocketAddr::from_abstract_name(&name).unwrap();
    let managers = [
        (path.to_str().unwrap().to_owned(), UnixDatagram::bind(&path).unwrap()),
        (format!("@{name}"), UnixDatagram::bind_addr(&hidden).unwrap()),
    ];
    for (address, manager) in managers {
        let file = place.file();
        let mut command = gpuwhy(&["trace", "--duration", "3s", "--live", "never", "--out", file.to_str().unwrap()]);
        command.env("NOTIFY_SOCKET", &address);
        let (code, _, stderr) = output(command);
        assert_eq!(code, 0, "{stderr}");
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != "STOPPING=1") {
            let mut message = [0; 200];
            let length = manager.recv(&mut message).unwrap();
            told.push(String::from_utf8(message[..length].to_vec()).unwrap());
        }
        assert_eq!(told[0], "READY=1", "{told:?}");
        assert!(told[1].starts_with("WATCHDOG=1\nSTATUS=") && told.len() >= 4, "{told:?}");
    }
}

#[test]
fn every_command_is_completed_and_has_a_page_in_the_manual() {
    let place = Place::new();
    let manual = place.dir.path().join("man");
    let (_, help, _) = output(gpuwhy(&["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(commands.len() > 10, "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, stderr) = output(gpuwhy(&["completions", shell, "--manual", manual.to_str().unwrap()]));
        assert_eq!(code, 0, "{stderr}");
        assert!(
            commands.iter().filter(|command| !command.is_empty()).all(|command| script.contains(command)),
            "{script}"
        );
    }
    for command in commands.iter().filter(|command| !["", "help"].contains(*command)) {
        let page = std::fs::read_to_string(manual.join(format!("gpuwhy-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
}
