//! What a test needs of the machine: root, or something that is not there.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// A file for what is left out, which `./dev test` reads at its end.
const LEFT_OUT: &str = "GPUWHY_LEFT_OUT";

/// Begins every test whose name starts with `root_`. The runner gives such a test the machine for itself.
///
/// # Panics
///
/// Without root: a test that did not run must not look like one that passed.
pub fn needs_root() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    assert!(is_root, "this test needs root; -E 'not test(root_)' leaves out all that do");
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
