//! The Python interpreters of this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Result, ensure};

/// Folders of folders with `bin/python3.N` in each, below the home folder and below the cache.
const AT_HOME: &[&str] = &[".pyenv/versions"];
const IN_CACHE: &str = "python";
const FIXED: &[&str] = &["/usr/bin/python3"];
/// More of them, separated by colons.
const VARIABLE: &str = "GPUWHY_PYTHONS";

const FIRST_MINOR: u8 = 9;
const LAST_MINOR: u8 = 14;

/// An interpreter and the minor version it says it has.
#[derive(Clone, Debug)]
pub struct Python {
    pub path: PathBuf,
    pub minor: u8,
}

impl Python {
    /// All that are supported. A machine without any cannot tell whether we are right.
    pub fn supported() -> Result<Vec<Self>> {
        let is_supported = |python: &Self| (FIRST_MINOR..=LAST_MINOR).contains(&python.minor);
        let found: Vec<_> = Self::all().into_iter().filter(is_supported).collect();
        ensure!(!found.is_empty(), "no Python to test with: name some in {VARIABLE}, separated by colons");
        Ok(found)
    }

    /// Those that are too old.
    pub fn too_old() -> Vec<Self> {
        Self::all().into_iter().filter(|python| python.minor < FIRST_MINOR).collect()
    }

    fn all() -> Vec<Self> {
        static ALL: LazyLock<Vec<Python>> = LazyLock::new(look_around);
        ALL.clone()
    }

    /// What a line of Python prints.
    pub fn ask(path: &Path, line: &str) -> Option<String> {
        let output = Command::new(path).args(["-c", line]).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

fn look_around() -> Vec<Python> {
    let named = std::env::var(VARIABLE).unwrap_or_default();
    let named = named.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
    let fixed = FIXED.iter().map(PathBuf::from).filter(|path| path.exists());
    let found = named.chain(fixed).chain(in_folders());
    let versioned = |path: PathBuf| {
        let minor = Python::ask(&path, "import sys; print(sys.version_info[1])")?.parse().ok()?;
        Some(Python { path, minor })
    };
    found.filter_map(versioned).collect()
}

fn in_folders() -> Vec<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let cache = std::env::var_os("GPUWHY_CACHE").map_or_else(|| home.join(".cache/gpuwhy"), PathBuf::from);
    let folders = AT_HOME.iter().map(|folder| home.join(folder)).chain([cache.join(IN_CACHE)]);
    let versions = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let bins = versions.filter_map(|version| std::fs::read_dir(version.ok()?.path().join("bin")).ok()).flatten();
    let is_python = |name: &str| name.strip_prefix("python3.").is_some_and(|minor| minor.parse::<u8>().is_ok());
    let files = bins.filter_map(|file| Some(file.ok()?.path()));
    files.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_python)).collect()
}
