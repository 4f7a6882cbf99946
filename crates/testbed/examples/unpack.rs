//! Writes the fake libraries and workloads to a folder: `cargo run -p gpuwhy-testbed --example unpack DIR`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use gpuwhy_testbed::Testbed;

fn main() -> Result<()> {
    let dir = PathBuf::from(std::env::args_os().nth(1).context("name a folder")?);
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let testbed = Testbed::unpack(&dir)?;
    println!("{}", testbed.dir().display());
    Ok(())
}
