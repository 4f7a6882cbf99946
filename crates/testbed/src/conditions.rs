//! What a test needs of the machine: root, the CPUs before everybody else, or something that is not there.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Set in a test that was started again.
const COMES_FIRST: &str = "GPUWHY_TEST_COMES_FIRST";
/// A file for what is left out, which `./dev test` reads at its end.
const LEFT_OUT: &str = "GPUWHY_LEFT_OUT";
const HIGHEST_PRIORITY: &str = "-20";

/// Begins every test whose name starts with `root_`.
///
/// Whatever such a test measures, other work on the machine is not part of it. Under nextest each test is a process. It
/// is started again at the highest priority and in a session of its own. The session matters: the kernel shares CPUs
/// out among sessions first (`sched_autogroup`), and then among the processes of each.
///
/// # Panics
///
/// Without root: a test that did not run must not look like one that passed.
pub fn needs_root() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    assert!(is_root, "this test needs root; -E 'not test(root_)' leaves out all that do");
    if std::env::var_os(COMES_FIRST).is_some() {
        // A kernel without sessions' groups has no such file.
        let _ = std::fs::write("/proc/self/autogroup", HIGHEST_PRIORITY);
    } else if std::env::var_os("NEXTEST").is_some() {
        come_first();
    }
}

/// Starts this test again and ends as it does. It does not outlive this process, which the runner may kill.
fn come_first() -> ! {
    let mut arguments = std::env::args_os();
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "setsid", "nice", "-n", HIGHEST_PRIORITY])
        .args(arguments.next())
        .args(arguments)
        .env(COMES_FIRST, "1")
        .status();
    match status {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => {
            eprintln!("start the test again through setpriv: {error}");
            std::process::exit(1)
        }
    }
}

/// Says what of a test this machine cannot run.
pub fn left_out(what: &str) {
    eprintln!("left out: {what}");
    let Some(path) = std::env::var_os(LEFT_OUT) else { return };
    let file = std::fs::File::options().append(true).create(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes())) {
        eprintln!("note what was left out: {error}");
    }
}
