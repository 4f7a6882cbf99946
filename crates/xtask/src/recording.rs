//! The recording that `gpuwhy demo` explains where it may not trace: the demo's own scenario, without a word about the
//! machine it was made on.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

use crate::bench::build_gpuwhy;
use crate::docs;

const FILE: &str = "crates/gpuwhy/data/demo.trace";
const DURATION: &str = "2500ms";

/// What tells of the machine, and what is said instead.
const WIPE: &str = "
    UPDATE sessions SET host = 'demo', boot_id = '', command = 'gpuwhy demo';
    UPDATE processes SET comm = 'other' WHERE comm NOT IN ('scenario', 'disk-loader', 'gpuwhy');
    UPDATE threads SET comm = 'other' WHERE comm NOT IN ('scenario', 'disk-loader', 'gpuwhy');
    UPDATE process_life SET comm = 'other' WHERE comm NOT IN ('scenario', 'disk-loader', 'gpuwhy');
    UPDATE processes SET uid = 0, exe = comm, cmdline = comm, cgroup = '/', cgroup_id = 1, container_id = NULL;
    UPDATE modules SET path = replace(path, rtrim(path, replace(path, '/', '')), '');
    UPDATE frames SET file = replace(file, rtrim(file, replace(file, '/', '')), ''),
      module = replace(module, rtrim(module, replace(module, '/', '')), '');
    DELETE FROM warnings;
    PRAGMA journal_mode = DELETE;
    VACUUM;
";

pub fn run() -> Result<()> {
    let binary = build_gpuwhy()?;
    let folder = tempfile::tempdir()?;
    let made = folder.path().join("demo.trace");
    let status = Command::new(binary).args(["demo", "--duration", DURATION, "--out"]).arg(&made).status()?;
    ensure!(status.success(), "gpuwhy demo: {status}");
    Connection::open(&made)?.execute_batch(WIPE).context("wipe the recording")?;
    let bytes = std::fs::copy(&made, docs::root().join(FILE))?;
    println!("wrote {FILE}, {bytes} bytes");
    Ok(())
}
