//! Writes the fake libraries and the workloads into a folder, for scripts.

use anyhow::{Context, Result};
use gpuwhy_testbed::Testbed;
use std::path::PathBuf;

fn main() -> Result<()> {
    let dir: PathBuf = std::env::args_os().nth(1).context("usage: unpack DIR")?.into();
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Testbed::unpack(&dir)?;
    Ok(())
}
