//! With exactly the Linux capabilities that docs/running.md lists everything works; without one of them it is named.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::time::Duration;

use gpuwhy_testbed::{Behaviour, Testbed, Truth, Workload};
use support::{Finished, Place, Tracing, counts_agree, gpuwhy, needs_root, output};
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// By number: older tools do not know the names of the newer ones.
const DOCUMENTED: &[(&str, u32)] =
    &[("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_PTRACE", 19), ("CAP_DAC_READ_SEARCH", 2)];

fn all_but(left_out: Option<&str>) -> String {
    let granted = DOCUMENTED.iter().filter(|(name, _)| Some(*name) != left_out);
    std::iter::once("-all".to_owned()).chain(granted.map(|(_, number)| format!(",+cap_{number}"))).collect()
}

/// The tracer as root that has been left these capabilities only.
fn limited(left_out: Option<&str>, arguments: &[&str]) -> Command {
    let tracer = gpuwhy(arguments);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", &all_but(left_out), "--inh-caps", "-all"]);
    command.arg(tracer.get_program()).args(tracer.get_args());
    command
}

/// A program of another user, who lets nobody into the folder with its libraries.
struct Other {
    _folder: TempDir,
    testbed: Testbed,
}

impl Other {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let testbed = Testbed::unpack(folder.path()).unwrap();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            chown(entry.unwrap().path(), Some(NOBODY), None).unwrap();
        }
        chown(folder.path(), Some(NOBODY), None).unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        Self { _folder: folder, testbed }
    }

    /// Traced from before its first call by a tracer that finds it by itself.
    fn traced(&self, place: &Place, left_out: Option<&str>) -> (Truth, Finished) {
        let workload = Workload::new(&self.testbed)
            .op("cuStreamSynchronize", Behaviour::Sleep, Duration::from_millis(20))
            .calls(50)
            .through(&["setpriv", "--reuid=65534", "--clear-groups"]);
        let mut running = workload.start().unwrap();
        running.wait_ready().unwrap();
        let (file, pid) = (place.file(), running.pid().to_string());
        let words = ["trace", "--budget", "0", "--out", file.to_str().unwrap(), "-p", &pid];
        let mut tracing = Tracing::start(limited(left_out, &words), file.clone());
        tracing.wait_ready();
        let truth = running.finish().unwrap();
        (truth, tracing.wait_finished().1)
    }
}

#[test]
fn root_the_documented_capabilities_are_enough_for_everything() {
    needs_root();
    let (place, other) = (Place::new(), Other::new());
    let (truth, finished) = other.traced(&place, None);
    counts_agree(&truth, &finished, "driver");
    // Waits, their lines, who it is and what the process belongs to.
    let waits = "SELECT count(*) FROM cuda_events WHERE op = 'cuStreamSynchronize' AND blocked_on = 'sleep'";
    assert!(finished.number(waits) >= 45, "{:?}", finished.log);
    let stacks = "SELECT count(*) FROM stack_lines WHERE module LIKE '%workload%' AND function <> ''";
    assert!(finished.number(stacks) > 0);
    let who =
        format!("SELECT count(*) FROM processes WHERE uid = {NOBODY} AND cmdline LIKE '%workload%' AND exe <> ''");
    assert_eq!(finished.number(&who), 1);
    let names_one = |line: &String| DOCUMENTED.iter().any(|(name, _)| line.contains(name));
    assert!(!finished.log.iter().any(names_one), "{:?}", finished.log);
    let (code, said, _) = output(limited(None, &["check", "--exit-code"]));
    assert!(code == 0 && !said.contains("FAIL"), "{said}");
}

#[test]
fn root_without_one_of_them_it_is_named() {
    needs_root();
    for (name, _) in &DOCUMENTED[..2] {
        let (code, _, stderr) = output(limited(Some(name), &["trace", "--duration", "1s"]));
        assert!(code == 1 && stderr.contains(&format!("{name} is missing")), "{stderr}");
    }
    for (name, _) in &DOCUMENTED[2..] {
        let (place, other) = (Place::new(), Other::new());
        let (_, finished) = other.traced(&place, Some(name));
        let said = finished.log.join("\n");
        assert!(said.contains(&format!("{name} is missing")), "{said}");
        // It matters: the program's library was not found.
        assert_eq!(finished.number("SELECT count(*) FROM cuda_events"), 0, "{name}: {said}");
        let (_, said, _) = output(limited(Some(name), &["check"]));
        assert!(said.contains(&format!("{name} is missing")), "{said}");
    }
}
