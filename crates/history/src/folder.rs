//! The files of all clusters, which one process writes.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::HistoryError;
use crate::file::ClusterFile;

const ENDING: &str = ".db";
const LOCK: &str = "lock";

/// Held as long as this process writes.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder where there is none.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        // What jobs do is nobody else's business.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| HistoryError::from_io(path, error))?;
        let lock = path.join(LOCK);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&lock);
        let file = opened.map_err(|error| HistoryError::from_io(&lock, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_path_buf(), _lock: file }),
            Err(TryLockError::WouldBlock) => Err(HistoryError::Busy { folder: path.into() }),
            Err(TryLockError::Error(error)) => Err(HistoryError::from_io(&lock, error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every cluster that has a file.
    pub fn files(&self) -> Result<BTreeMap<String, ClusterFile>, HistoryError> {
        let failed = |error| HistoryError::from_io(&self.path, error);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(cluster) = name.to_str().and_then(cluster_of) else { continue };
            let file = ClusterFile::open(&file_of(&self.path, &cluster))?;
            files.insert(cluster, file);
        }
        Ok(files)
    }
}

/// The file of a cluster. Whatever a cluster is called, its file lies in the folder.
pub fn file_of(folder: &Path, cluster: &str) -> PathBuf {
    let mut name = String::new();
    for byte in cluster.bytes() {
        match byte {
            b'-' | b'_' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    folder.join(name + ENDING)
}

fn cluster_of(name: &str) -> Option<String> {
    let (name, mut bytes) = (name.strip_suffix(ENDING)?, Vec::new());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    let cluster = String::from_utf8(bytes).ok()?;
    // A file that this program would call otherwise is none of ours.
    (file_of(Path::new(""), &cluster) == Path::new(&format!("{name}{ENDING}"))).then_some(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_a_file_in_the_folder_whatever_it_is_called() {
        let folder = Path::new("/data");
        for cluster in ["west", "West 2", "../../etc/passwd", "a/b", ".", "%41", "süd", "x\0y", ""] {
            let file = file_of(folder, cluster);
            assert_eq!(file.parent(), Some(folder), "{cluster:?}");
            assert_eq!(cluster_of(file.file_name().unwrap().to_str().unwrap()).as_deref(), Some(cluster));
        }
        let others = ["west", "lock", "a%zz.db", "a%4.db", "a.b.db", "journal-0000000001"];
        assert!(others.iter().all(|name| cluster_of(name).is_none()));
    }

    #[test]
    fn a_folder_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let first = Folder::open(folder.path()).unwrap();
        assert!(matches!(Folder::open(folder.path()), Err(HistoryError::Busy { .. })));
        drop(first);
        assert!(Folder::open(folder.path()).unwrap().files().unwrap().is_empty());
    }
}
