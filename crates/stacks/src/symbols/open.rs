//! Opening files of processes that may wish us ill.
//!
//! A path that a process sees is looked up below that process's root, where symbolic links cannot lead out of. Only
//! regular files are opened, and never in a way that waits for somebody, as the opening of a pipe does.

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// What makes a file the same file with the same contents, as far as can be told without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
    pub size: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl Identity {
    pub fn of(file: &File) -> Result<Self> {
        Ok(Self::from(&file.metadata().context("ask for the file's identity")?))
    }

    /// Whether the other is the same file, whatever was written to it.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<&Metadata> for Identity {
    fn from(of: &Metadata) -> Self {
        Self {
            device: of.dev(),
            inode: of.ino(),
            size: of.size(),
            modified_s: of.mtime(),
            modified_ns: of.mtime_nsec(),
        }
    }
}

/// Opens a path of our own view of the file system, such as `/proc/PID/map_files/...`.
pub fn regular(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    ensure!(file.metadata()?.is_file(), "{} is not a regular file", path.display());
    Ok(file)
}

/// Opens a path as a process sees it, or says that there is no regular file.
pub fn below(root: &Path, path: &Path) -> Option<File> {
    let directory = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root).ok()?;
    let file = open_in_root(&directory, path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The root of the process that a path under `/proc/PID` belongs to, or our own.
pub fn root_of(openable: &Path) -> PathBuf {
    let mut components = openable.components();
    let is_proc =
        components.next() == Some(Component::RootDir) && components.next() == Some(Component::Normal("proc".as_ref()));
    let process = components.next().filter(|_| is_proc).map(|process| process.as_os_str());
    match process.filter(|process| process.as_bytes().iter().all(u8::is_ascii_digit) || *process == "self") {
        Some(process) => Path::new("/proc").join(process).join("root"),
        None => PathBuf::from("/"),
    }
}

fn open_in_root(directory: &File, path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `open_how` is plain data, for which zeros are valid and mean nothing special.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path and `how` outlive the call, and the size is the one of `how`.
    let descriptor = unsafe {
        libc::syscall(libc::SYS_openat2, directory.as_raw_fd(), path.as_ptr(), &raw const how, size_of_val(&how))
    };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { File::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_symbolic_link_does_not_lead_out_of_the_root() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        fs::write(outside.path(), "outside").unwrap();
        symlink(outside.path(), root.path().join("absolute")).unwrap();
        symlink("/inside", root.path().join("own")).unwrap();
        fs::write(root.path().join("inside"), "inside").unwrap();
        assert!(below(root.path(), Path::new("/absolute")).is_none());
        let mut text = String::new();
        below(root.path(), Path::new("/../own")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    #[test]
    fn a_pipe_is_neither_opened_nor_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let pipe = CString::new(root.path().join("pipe").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert!(below(root.path(), Path::new("/pipe")).is_none());
        let error = regular(&root.path().join("pipe")).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error:#}");
    }

    #[test]
    fn the_root_is_the_one_of_the_process_in_the_path() {
        for (path, root) in [
            ("/proc/12/map_files/1-2", "/proc/12/root"),
            ("/proc/12/root/usr/lib/x.so", "/proc/12/root"),
            ("/proc/self/exe", "/proc/self/root"),
            ("/proc/sys/kernel", "/"),
            ("/usr/lib/x.so", "/"),
            ("proc/12/x", "/"),
        ] {
            assert_eq!(root_of(Path::new(path)), Path::new(root), "{path}");
        }
    }
}
