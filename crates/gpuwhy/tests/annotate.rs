//! `gpuwhy annotate`, and programs that annotate themselves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{Place, Tracing, gpuwhy, needs_root, output, wait_until};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn sockets(place: &Place) -> PathBuf {
    place.dir.path().join("sockets")
}

/// Traces everybody, and listens.
fn listening(place: &Place, more: &[&str]) -> Tracing {
    let (file, folder) = (place.file(), sockets(place));
    let words = ["trace", "--out", file.to_str().unwrap(), "--annotations", folder.to_str().unwrap()];
    let mut tracing = Tracing::start(gpuwhy(&[&words[..], more].concat()), file.clone());
    tracing.wait_ready();
    let _ = wait_until("a socket", || std::fs::read_dir(&folder).ok()?.next());
    tracing
}

fn annotate(place: &Place, words: &[&str]) -> (i32, String, String) {
    let folder = sockets(place);
    output(gpuwhy(&[&["annotate", "--at", folder.to_str().unwrap()], words].concat()))
}

#[test]
fn root_steps_that_a_program_tells_are_on_the_timeline_and_can_be_explained() {
    needs_root();
    let place = Place::new();
    let (file, driver, folder) = (place.file(), place.testbed.libcuda(), sockets(&place));
    let words = ["trace", "--out", file.to_str().unwrap(), "--annotations", folder.to_str().unwrap(), "--"];
    let program = in_repository("crates/gpuwhy/tests/programs/annotates.py");
    let command = ["python3", "-B", program.to_str().unwrap(), driver.to_str().unwrap(), "2"];
    let more = [in_repository("deploy"), folder.clone()];
    let more = more.each_ref().map(|path| path.to_str().unwrap());
    let (code, _, stderr) = output(gpuwhy(&[&words[..], &command, &more].concat()));
    assert_eq!(code, 0, "{stderr}");

    let ask =
        ["ask", "annotations", "--db", file.to_str().unwrap(), "--key", "step", "--longest", "--limit", "1", "--json"];
    let (code, said, stderr) = output(gpuwhy(&ask));
    assert_eq!(code, 0, "{stderr}");
    let answer: Value = serde_json::from_str(&said).unwrap();
    let longest = &answer["annotations"][0];
    assert_eq!(
        (&longest["key"], &longest["value"], &longest["comm"]),
        (&"step".into(), &"7".into(), &"python3".into())
    );
    assert!(longest["duration_ns"].as_u64().unwrap() >= 500_000_000, "{longest}");
    let steps = answer["keys"][0]["count"].as_u64().unwrap();
    assert!(answer["keys"][0]["key"] == "step" && steps > 8, "{answer:#}");
    // All of them have ended, and what was told last holds until the end.
    let finished = support::Finished::open(&file, Vec::new());
    let kinds = "SELECT group_concat(kind, ', ') FROM
        (SELECT key || ' ' || count(*) || ' ' || count(duration_ns) AS kind FROM annotations GROUP BY key ORDER BY key)";
    assert_eq!(finished.text(kinds), format!("note 1 0, step {steps} {steps}"));
    assert_eq!(finished.text("SELECT value FROM annotations WHERE key = 'note'"), "all = done");

    let (code, said, stderr) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--label", "step=7", "--json"]));
    assert_eq!(code, 0, "{stderr}");
    let explanation: Value = serde_json::from_str(&said).unwrap();
    let span = |one: &Value| one["to_ns"].as_u64().unwrap() - one["from_ns"].as_u64().unwrap();
    assert_eq!(span(&explanation["window"]), longest["duration_ns"].as_u64().unwrap(), "{explanation:#}");
    let (code, _, stderr) = output(gpuwhy(&["explain", file.to_str().unwrap(), "--label", "step=x"]));
    assert!(code == 1 && stderr.contains("nobody has put it on the timeline"), "{stderr}");

    let out = place.dir.path().join("out.json");
    let export = ["export", "--format", "chrome", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let (code, _, stderr) = output(gpuwhy(&export));
    assert_eq!(code, 0, "{stderr}");
    let drawn = std::fs::read_to_string(&out).unwrap();
    assert_eq!(drawn.matches("\"step=").count() as u64, steps, "{drawn}");
}

#[test]
fn root_what_a_person_tells_is_about_all_or_about_one_process() {
    needs_root();
    let place = Place::new();
    let tracing = listening(&place, &[]);
    let own = std::process::id().to_string();
    let (code, _, stderr) = annotate(&place, &["--label", "phase=eval", "--label", "owner=me & you"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(annotate(&place, &["--label", "phase=train", "--pid", &own]).0, 0);
    assert_eq!(annotate(&place, &["--label", "phase="]).0, 0);

    let typed = "printf 'step=1\\nnonsense\\nstep=2\\n' | \"$0\" annotate --stdin --at \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", typed, env!("CARGO_BIN_EXE_gpuwhy")]).arg(sockets(&place));
    let (code, _, stderr) = output(shell);
    assert!(code == 1 && stderr.contains("line 2 is not told: a label is a key and a value"), "{stderr}");

    let finished = tracing.stop();
    let told = "SELECT group_concat(told, ', ') FROM (SELECT key || '=' || value || ' of ' || coalesce(pid, 'all') ||
        CASE WHEN duration_ns > 0 THEN ', over' ELSE '' END AS told FROM annotations ORDER BY timestamp_ns)";
    let expected = format!(
        "phase=eval of all, over, owner=me & you of all, phase=train of {own}, step=1 of all, over, step=2 of all"
    );
    assert_eq!(finished.text(told), expected);
    assert_eq!(std::fs::read_dir(sockets(&place)).unwrap().count(), 0);
}

#[test]
fn root_another_users_process_cannot_be_annotated() {
    needs_root();
    let place = Place::new();
    let tracing = listening(&place, &[]);
    let socket = std::fs::read_dir(sockets(&place)).unwrap().next().unwrap().unwrap().path();
    // Nobody may look into the folder of another user, but the folder of sockets is everybody's.
    std::os::unix::fs::chown(place.dir.path(), Some(65534), None).unwrap();
    let send = format!(
        "import os, socket\n\
         s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         for who in ({}, os.getpid()): s.sendto(b'@%d\\nwhose=%d' % (who, who), {socket:?})\n\
         print(os.getpid())",
        std::process::id()
    );
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", &send]);
    let (code, pid, stderr) = output(command);
    assert_eq!(code, 0, "{stderr}");
    let finished = tracing.stop();
    assert_eq!(finished.text("SELECT group_concat(value) FROM annotations"), pid.trim());
    assert_eq!(finished.loss("refused"), 1);
}

#[test]
fn what_cannot_be_told_is_a_clear_error() {
    let place = Place::new();
    let (code, _, stderr) = annotate(&place, &["--label", "step=1"]);
    assert!(code == 1 && stderr.contains("no trace is being taken"), "{stderr}");
    for (label, why) in [("step", "a key and a value"), ("a b=1", "letters, digits"), ("a=\u{1b}[2J", "plain text")] {
        let (code, _, stderr) = annotate(&place, &["--label", label]);
        assert!(code == 2 && stderr.contains(why), "{stderr}");
    }
    let (code, _, stderr) = annotate(&place, &[]);
    assert!(code == 2 && stderr.contains("--label"), "{stderr}");
}

#[test]
fn root_a_trace_is_taken_where_nobody_can_listen() {
    needs_root();
    let place = Place::new();
    let taken = place.dir.path().join("taken");
    std::fs::write(&taken, "a file").unwrap();
    let file = place.file();
    let words = ["trace", "--out", file.to_str().unwrap(), "--annotations", taken.to_str().unwrap(), "--", "true"];
    let (code, _, stderr) = output(gpuwhy(&words));
    assert!(code == 0 && stderr.contains("annotations are not taken: make"), "{stderr}");
}
