//! One writer per file. The lock dies with the process and leaves nothing behind.
//!
//! It is an flock, which does not meet the POSIX locks SQLite takes on the same file. But closing any descriptor of a
//! file drops all POSIX locks the process has on it, so a descriptor opened here stays open until the process ends and
//! is used again when the same file is locked again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::StoreError;

struct Known {
    file: Arc<File>,
    locked: bool,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Held as long as this process writes the file.
pub(crate) struct WriterLock {
    file: Arc<File>,
    created: bool,
}

impl WriterLock {
    /// Locks the file, and makes an empty one where there is none.
    pub fn take(path: &Path) -> Result<Self, StoreError> {
        let mut known = known();
        known.retain(|entry| entry.locked || !is_deleted(&entry.file));
        let (file, created) = open(path, &known)?;
        let at = position(&mut known, &file);
        if known[at].locked {
            return Err(StoreError::Busy { path: path.into() });
        }
        file.try_lock().map_err(|error| refused(path, error))?;
        known[at].locked = true;
        Ok(Self { file, created })
    }

    /// Whether the file was made by taking the lock.
    pub fn created(&self) -> bool {
        self.created
    }

    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        let mut known = known();
        if let Some(entry) = known.iter_mut().find(|entry| Arc::ptr_eq(&entry.file, &self.file)) {
            entry.locked = false;
        }
        // An unlock cannot fail on an open descriptor; if it did, the lock would last as long as the process.
        let _ = self.file.unlock();
    }
}

fn known() -> MutexGuard<'static, Vec<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &Path, known: &[Known]) -> Result<(Arc<File>, bool), StoreError> {
    match path.metadata() {
        Ok(found) if !found.is_file() => Err(StoreError::NotATrace { path: path.into() }),
        Ok(found) => match known.iter().find(|entry| is_same(&entry.file, &found)) {
            Some(entry) => Ok((entry.file.clone(), false)),
            None => opened(path, File::open(path), false),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // `create_new` does not follow a dangling link that somebody left in a shared directory.
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
            opened(path, file, true)
        }
        Err(error) => Err(StoreError::from_io(path, error)),
    }
}

fn opened(path: &Path, file: io::Result<File>, created: bool) -> Result<(Arc<File>, bool), StoreError> {
    match file {
        Ok(file) => Ok((Arc::new(file), created)),
        Err(source) if created && source.kind() == io::ErrorKind::NotFound => {
            let path = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
            Err(StoreError::Io { path, source })
        }
        Err(error) => Err(StoreError::from_io(path, error)),
    }
}

fn is_same(file: &File, found: &std::fs::Metadata) -> bool {
    file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
}

/// A deleted file's descriptor may be closed: nobody else can come to the file any more, and its space is wanted back.
fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|own| own.nlink() == 0)
}

fn position(known: &mut Vec<Known>, file: &Arc<File>) -> usize {
    match known.iter().position(|entry| Arc::ptr_eq(&entry.file, file)) {
        Some(at) => at,
        None => {
            known.push(Known { file: file.clone(), locked: false });
            known.len() - 1
        }
    }
}

fn refused(path: &Path, error: TryLockError) -> StoreError {
    match error {
        TryLockError::WouldBlock => StoreError::Busy { path: path.into() },
        TryLockError::Error(error) => StoreError::from_io(path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_locked_once_and_again_after_release() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.db");
        let first = WriterLock::take(&path).unwrap();
        assert!(first.created());
        assert!(matches!(WriterLock::take(&path), Err(StoreError::Busy { .. })));
        drop(first);
        assert!(!WriterLock::take(&path).unwrap().created());
    }

    #[test]
    fn a_dangling_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(WriterLock::take(&link).is_err());
        assert!(!target.exists());
    }
}
