//! File systems made for one test; unmounted when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Mount(PathBuf);

impl Mount {
    /// `None`, with the reason on stderr, when the kernel refuses.
    pub fn new(kind: &str, options: &str, at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let output = Command::new("mount").args(["-t", kind, "-o", options, "none"]).arg(at).output().unwrap();
        if output.status.success() {
            return Some(Self(at.to_owned()));
        }
        eprintln!("{kind} cannot be mounted: {}", String::from_utf8_lossy(&output.stderr));
        None
    }

    pub fn tmpfs(options: &str, at: &Path) -> Self {
        Self::new("tmpfs", options, at).unwrap()
    }

    pub fn resize(&self, size: &str) {
        let options = format!("remount,{size}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
