//! `gpuwhy completions`: what a shell needs to complete our command lines.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::Shell;

/// Print completions for a shell: `gpuwhy completions bash > /etc/bash_completion.d/gpuwhy`.
#[derive(Args)]
pub struct Completions {
    shell: Shell,
    /// Also write the manual pages into this folder.
    #[arg(long, hide = true)]
    manual: Option<PathBuf>,
}

impl Completions {
    pub fn run(self) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command_line(), "gpuwhy", &mut script);
        stdout().write_all(&script)?;
        if let Some(folder) = self.manual {
            std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
            clap_mangen::generate_to(crate::command_line(), &folder).context("write the manual pages")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
