//! The live view on a real terminal, and what it leaves behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use gpuwhy_testbed::{Running, Workload};
use support::pty::OnTerminal;
use support::{Place, gpuwhy, needs_root, wait_until};

const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

/// A workload that calls all the time, and `gpuwhy` on a terminal that watches it.
struct Watched {
    place: Place,
    running: Running,
    terminal: OnTerminal,
}

impl Watched {
    fn start(command: &[&str], columns: u16, lines: u16) -> Self {
        let place = Place::new();
        std::fs::create_dir(place.dir.path().join("tmp")).unwrap();
        let workload = Workload::new(&place.testbed).mix("launch").rate(500.0).duration(Duration::from_secs(60));
        let mut running = workload.name("trainer").start().unwrap();
        running.wait_ready().unwrap();
        running.go().unwrap();
        let file = place.file();
        let file = file.to_str().unwrap();
        let words: Vec<_> = command.iter().map(|&word| if word == "FILE" { file } else { word }).collect();
        let mut command = gpuwhy(&words);
        command.args(["-p", &running.pid().to_string()]).env("TMPDIR", place.dir.path().join("tmp"));
        command.env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let terminal = OnTerminal::start(command, columns, lines);
        Self { place, running, terminal }
    }

    fn temporary_files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.place.dir.path().join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// It ended well, and everything is as it was before.
    fn ends_in_order(&mut self) {
        let status = self.terminal.wait_exit();
        assert!(status.success(), "{status}: {}", self.terminal.output());
        // What was written last may still be on its way.
        wait_until("the screen is left and the cursor is back", || {
            let output = self.terminal.output();
            let is_left = output.rfind(LEAVE_SCREEN) > output.rfind(ENTER_SCREEN);
            (is_left && output.contains("\u{1b}[?25h")).then_some(())
        });
        assert!(self.terminal.is_in_order());
        assert_eq!(self.temporary_files(), Vec::<PathBuf>::new());
    }
}

#[test]
fn root_top_shows_the_calls_of_a_workload_and_q_leaves_nothing_behind() {
    needs_root();
    let mut watched = Watched::start(&["top"], 80, 24);
    watched.terminal.wait_for(ENTER_SCREEN).wait_for("cuLaunchKernel").wait_for("trainer");
    assert!(!watched.terminal.is_in_order(), "keys are read one by one");
    assert_eq!(watched.temporary_files().len(), 1);
    // The first answer to why the GPU waits. Only what changes is drawn, so words are whole only when all is drawn anew.
    wait_until("an answer", || {
        watched.terminal.press("\u{c}");
        let output = watched.terminal.output();
        ["HIGH", "MEDIUM", "LOW", "keeps"].iter().any(|word| output.contains(word)).then_some(())
    });
    watched.terminal.press("?");
    watched.terminal.wait_for("Esc");
    watched.terminal.press("q");
    watched.terminal.press("q");
    watched.ends_in_order();
    wait_until("what was said meanwhile comes after the screen", || {
        let output = watched.terminal.output();
        let after = &output[output.rfind(LEAVE_SCREEN)?..];
        (after.contains("tracing ") && after.contains("attached ")).then_some(())
    });
    assert!(watched.running.pid() > 0);
}

#[test]
fn root_a_top_that_is_ended_from_outside_gives_the_terminal_back() {
    needs_root();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut watched = Watched::start(&["top"], 80, 24);
        watched.terminal.wait_for("cuLaunchKernel");
        watched.terminal.signal(signal);
        watched.ends_in_order();
    }
}

#[test]
fn root_a_top_whose_terminal_is_gone_ends_and_leaves_nothing_behind() {
    needs_root();
    let mut watched = Watched::start(&["top"], 80, 24);
    watched.terminal.wait_for("cuLaunchKernel");
    watched.terminal.hang_up();
    let status = watched.terminal.wait_exit();
    assert!(status.success(), "{status}");
    assert_eq!(watched.temporary_files(), Vec::<PathBuf>::new());
}

#[test]
fn root_ctrl_z_gives_the_terminal_back_and_the_screen_returns_on_continue() {
    needs_root();
    let mut watched = Watched::start(&["top"], 80, 24);
    watched.terminal.wait_for("cuLaunchKernel");
    watched.terminal.press("\u{1a}");
    let status = format!("/proc/{}/status", watched.terminal.pid());
    let is_stopped = || std::fs::read_to_string(&status).unwrap().contains("State:\tT");
    wait_until("it stops", || is_stopped().then_some(()));
    watched.terminal.wait_for(LEAVE_SCREEN);
    assert!(watched.terminal.is_in_order());
    let stopped_at = watched.terminal.written();
    watched.terminal.signal(libc::SIGCONT);
    watched.terminal.wait_after(stopped_at, ENTER_SCREEN).wait_after(stopped_at, "cuLaunchKernel");
    watched.terminal.press("q");
    watched.ends_in_order();
}

#[test]
fn root_trace_on_a_terminal_shows_the_same_and_follows_its_size() {
    needs_root();
    let mut watched = Watched::start(&["trace", "--out", "FILE"], 40, 10);
    watched.terminal.wait_for(ENTER_SCREEN).wait_for("3 Findings");
    let small = watched.terminal.written();
    watched.terminal.resize(120, 40);
    watched.terminal.wait_after(small, "1 Threads").wait_after(small, "cuLaunchKernel");
    watched.terminal.press("\u{3}");
    watched.ends_in_order();
    // The summary is printed at the end.
    watched.terminal.wait_for("kept in");
    assert!(watched.place.file().exists());
}

#[test]
fn root_top_without_a_terminal_prints_text_and_ends_with_its_reader() {
    needs_root();
    let place = Place::new();
    let folder = place.dir.path().join("tmp");
    std::fs::create_dir(&folder).unwrap();
    let workload = Workload::new(&place.testbed).mix("launch").rate(500.0).duration(Duration::from_secs(60));
    let mut running = workload.start().unwrap();
    running.wait_ready().unwrap();
    running.go().unwrap();
    let mut command = gpuwhy(&["top", "-p", &running.pid().to_string()]);
    command.env("TMPDIR", &folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let call = lines.find(|line| line.contains("cuLaunchKernel")).unwrap();
    assert!(call.is_ascii() && !call.contains('\u{1b}'), "{call}");
    drop(lines);
    let status = wait_until("it ends", || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
