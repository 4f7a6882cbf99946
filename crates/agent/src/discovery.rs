//! Finds the files to attach to: whatever any process maps that exports the functions of a known library.
//!
//! Files are told apart by inode, not by name. Each is read once.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;
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

/// A file to attach to. It is held open: whoever led to it may be gone before it is attached.
#[derive(Debug)]
pub struct Found {
    pub file: FileId,
    held: File,
    /// What its users call it.
    pub name: PathBuf,
    pub image: Image,
    /// Since when somebody may have called it, on the kernel's monotonic clock, where it was found by that.
    pub mapped_ns: Option<u64>,
}

impl Found {
    /// Opens the file from here.
    pub fn path(&self) -> PathBuf {
        path_of(&self.held)
    }
}

fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
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
    /// Files that carry a CUDA runtime, by the name their users have for them.
    pub runtimes: Vec<PathBuf>,
    pub unusable: Vec<Unusable>,
}

enum Look {
    New(Box<Found>),
    /// Attached already.
    Known,
    NotOurs,
}

/// What two names of one file on an overlay have in common. The kernel probes the file underneath:
/// attached through each of them, a call would be counted as often.
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

    /// The file that a process is about to map, by inode. `None` when the process does not have it (yet), or ended while it was
    /// looked at.
    pub fn mapped(&mut self, pid: u32, inode: u64) -> Option<Vec<Found>> {
        let mappings = self.procfs.code(pid).ok()?;
        let named: Vec<_> = mappings.iter().filter(|mapping| mapping.inode == inode).collect();
        if named.is_empty() {
            return None;
        }
        let found: Vec<Found> = named.into_iter().filter_map(|mapping| self.look_at(pid, mapping)).collect();
        (!found.is_empty() || self.procfs.has_memory(pid)).then_some(found)
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
                if self.procfs.has_memory(pid) && has_telling_name(&mapping.path) {
                    self.unusable.push(Unusable { pid, name: mapping.path.clone(), why });
                }
                None
            }
        }
    }

    /// New files among those that no process has mapped yet, so that the first call of the next one is not missed.
    pub fn look_ahead(&mut self, paths: &[PathBuf]) -> Vec<Found> {
        let found = paths.iter().filter_map(|path| match self.look_at_file(path, path) {
            Ok(Look::New(found)) => Some(*found),
            _ => None,
        });
        found.collect()
    }

    fn look_at_file(&mut self, path: &Path, name: &Path) -> Result<Look, String> {
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
        let metadata = path.metadata().map_err(unreadable)?;
        let file = FileId { device: metadata.st_dev(), inode: metadata.st_ino() };
        if self.known.contains_key(&file) {
            return Ok(Look::Known);
        }
        if self.skipped.contains(&file) {
            return Ok(Look::NotOurs);
        }
        let held = File::open(path).map_err(unreadable)?;
        let image = Image::read(&path_of(&held)).map_err(|error| {
            self.skipped.insert(file);
            format!("cannot be attached: {}", reason(&error))
        })?;
        if image.has_runtime {
            self.runtimes.push(name.to_owned());
        }
        let fingerprint = Fingerprint {
            inode: metadata.st_ino(),
            size: metadata.st_size(),
            modified: (metadata.st_mtime(), metadata.st_mtime_nsec()),
            overlay: is_on_overlay(&held),
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
        Ok(Look::New(Box::new(Found { file, held, name: name.to_owned(), image, mapped_ns: None })))
    }
}

/// Only a hint for messages: files are recognised by what they export.
pub fn has_telling_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["libcuda.so", "libcudart", "libamdhip64", "libnccl", "librccl"].iter().any(|telling| name.contains(telling))
}

/// Why a file could not be read, without the descriptor it was read by.
fn reason(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    if causes.len() > 1 {
        causes.remove(0);
    }
    causes.join(": ")
}

fn is_on_overlay(file: &File) -> bool {
    // SAFETY: statfs is a struct of integers, for which zero is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `stat` is writable.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) };
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

    /// A process that maps a library, as `/proc` shows it.
    fn mapping(root: &Path, library: &Path, status: &str) -> Discovery {
        let process = root.join("7");
        std::fs::create_dir(&process).unwrap();
        std::fs::write(process.join("status"), status).unwrap();
        std::fs::write(process.join("maps"), format!("1000-2000 r-xp 0 08:01 9 {}\n", library.display())).unwrap();
        std::os::unix::fs::symlink("/", process.join("root")).unwrap();
        Discovery::new(Procfs::new(root))
    }

    #[test]
    fn a_library_that_is_no_elf_file_is_reported_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("libcuda.so.1");
        std::fs::write(&library, "not a library").unwrap();
        let mut discovery = mapping(root.path(), &library, "VmSize:\t8 kB\n");
        assert!(discovery.scan(&[7]).is_empty());
        assert_eq!(discovery.unusable.len(), 1);
        assert!(discovery.unusable[0].why.contains("not a 64-bit ELF file"), "{}", discovery.unusable[0].why);
    }

    #[test]
    fn a_file_of_a_process_that_ends_while_it_is_looked_at_was_not_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let mut discovery = mapping(root.path(), &root.path().join("libcuda.so.1"), "State:\tZ (zombie)\n");
        assert!(discovery.mapped(7, 9).is_none() && discovery.unusable.is_empty());
    }
}
