//! Finds the files to attach to: whatever any process maps that exports the functions of a known library.
//!
//! Files are told apart by inode, not by name. Each is read once.

use std::collections::{HashMap, HashSet};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpuwhy_capture::Image;

use crate::procfs::{Mapping, Procfs};

/// A file's identity on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// A file to attach to.
#[derive(Clone, Debug)]
pub struct Found {
    pub file: FileId,
    /// Opens the file from here.
    pub path: PathBuf,
    /// What its users call it.
    pub name: PathBuf,
    pub image: Image,
}

/// A file that looks like one of ours and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub pid: u32,
    pub name: PathBuf,
    pub why: String,
}

#[derive(Default)]
pub struct Discovery {
    procfs: Procfs,
    known: HashMap<FileId, Fingerprint>,
    skipped: HashSet<FileId>,
    /// Processes that map a file to attach to.
    pub users: Vec<u32>,
    pub unusable: Vec<Unusable>,
}

enum Look {
    New(Box<Found>),
    /// Attached already.
    Known,
    NotOurs,
}

/// What two names of one file on an overlay have in common. The kernel probes the file underneath, once for each
/// container would count each call once for each container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    overlay: bool,
}

impl Fingerprint {
    fn is_same_file(&self, other: &Self) -> bool {
        let same = (self.inode, self.size, self.modified) == (other.inode, other.size, other.modified);
        same && (self.overlay || other.overlay)
    }
}

impl Discovery {
    pub fn new(procfs: Procfs) -> Self {
        Self { procfs, ..Self::default() }
    }

    /// New files among those that these processes map.
    pub fn scan(&mut self, pids: &[u32]) -> Vec<Found> {
        pids.iter().flat_map(|&pid| self.scan_process(pid)).collect()
    }

    fn scan_process(&mut self, pid: u32) -> Vec<Found> {
        let Ok(mappings) = self.procfs.code(pid) else { return Vec::new() };
        mappings.iter().filter_map(|mapping| self.look_at(pid, mapping)).collect()
    }

    /// The file that a process has just mapped, by inode; all its files if that is gone again.
    pub fn mapped(&mut self, pid: u32, inode: u64) -> Vec<Found> {
        let Ok(mappings) = self.procfs.code(pid) else { return Vec::new() };
        let named: Vec<_> = mappings.iter().filter(|mapping| mapping.inode == inode).collect();
        let chosen = if named.is_empty() { mappings.iter().collect() } else { named };
        chosen.into_iter().filter_map(|mapping| self.look_at(pid, mapping)).collect()
    }

    fn look_at(&mut self, pid: u32, mapping: &Mapping) -> Option<Found> {
        let path = self.procfs.openable(pid, mapping);
        match self.look_at_file(&path, &mapping.path) {
            Ok(Look::New(found)) => {
                self.users.push(pid);
                Some(*found)
            }
            Ok(Look::Known) => {
                self.users.push(pid);
                None
            }
            Ok(Look::NotOurs) => None,
            Err(why) => {
                // A process that has just ended is no news.
                if self.procfs.exists(pid) && has_telling_name(&mapping.path) {
                    self.unusable.push(Unusable { pid, name: mapping.path.clone(), why });
                }
                None
            }
        }
    }

    /// A driver that no process has mapped yet, so that the first call of the next one is not missed.
    pub fn installed(&mut self, folders: &[PathBuf]) -> Vec<Found> {
        const NAMES: &[&str] = &["libcuda.so.1", "libcudart.so.12", "libcudart.so.13"];
        let paths = folders.iter().flat_map(|folder| NAMES.iter().map(move |name| folder.join(name)));
        let found = paths.filter_map(|path| match self.look_at_file(&path, &path) {
            Ok(Look::New(found)) => Some(*found),
            _ => None,
        });
        found.collect()
    }

    fn look_at_file(&mut self, path: &Path, name: &Path) -> Result<Look, String> {
        let metadata = path.metadata().map_err(|error| format!("cannot be read: {error}"))?;
        let file = FileId { device: metadata.st_dev(), inode: metadata.st_ino() };
        if self.known.contains_key(&file) {
            return Ok(Look::Known);
        }
        if self.skipped.contains(&file) {
            return Ok(Look::NotOurs);
        }
        let image = Image::read(path).map_err(|error| {
            self.skipped.insert(file);
            format!("{error:#}")
        })?;
        let fingerprint = Fingerprint {
            inode: metadata.st_ino(),
            size: metadata.st_size(),
            modified: (metadata.st_mtime(), metadata.st_mtime_nsec()),
            overlay: is_on_overlay(path),
        };
        if image.library.is_none() {
            self.skipped.insert(file);
            return Ok(Look::NotOurs);
        }
        let is_known = self.known.values().any(|known| known.is_same_file(&fingerprint));
        self.known.insert(file, fingerprint);
        if is_known {
            return Ok(Look::Known);
        }
        Ok(Look::New(Box::new(Found { file, path: path.to_owned(), name: name.to_owned(), image })))
    }
}

/// Only a hint for messages: files are recognised by what they export.
pub fn has_telling_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.contains("libcuda.so") || name.contains("libcudart")
}

fn is_on_overlay(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: statfs is a struct of integers, for which zero is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is zero-terminated and `stat` is writable.
    let result = unsafe { libc::statfs(path.as_ptr(), &mut stat) };
    result == 0 && stat.f_type == libc::OVERLAYFS_SUPER_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_under_two_overlays_is_attached_once() {
        let on = |overlay, size| Fingerprint { inode: 5, size, modified: (1, 2), overlay };
        assert!(on(true, 10).is_same_file(&on(true, 10)));
        assert!(on(true, 10).is_same_file(&on(false, 10)));
        assert!(!on(false, 10).is_same_file(&on(false, 10)));
        assert!(!on(true, 10).is_same_file(&on(true, 11)));
    }

    #[test]
    fn a_library_that_is_no_elf_file_is_reported_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("libcuda.so.1");
        std::fs::write(&library, "not a library").unwrap();
        let process = root.path().join("7");
        std::fs::create_dir(&process).unwrap();
        std::fs::write(process.join("stat"), "").unwrap();
        std::fs::write(process.join("maps"), format!("1000-2000 r-xp 0 08:01 9 {}\n", library.display())).unwrap();
        std::os::unix::fs::symlink("/", process.join("root")).unwrap();
        let mut discovery = Discovery::new(Procfs::new(root.path()));
        assert!(discovery.scan(&[7]).is_empty());
        assert_eq!(discovery.unusable.len(), 1);
        assert!(discovery.unusable[0].why.contains("not a 64-bit ELF file"), "{}", discovery.unusable[0].why);
    }
}
