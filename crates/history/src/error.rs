//! What can go wrong, in words a user can act on.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::tables::VERSION;

#[derive(Debug, Error)]
pub enum HistoryError {
    #[error("another fleet keeps its history in {}", .folder.display())]
    Busy { folder: PathBuf },
    #[error("{} is not a history of gpuwhy", .path.display())]
    NotOurs { path: PathBuf },
    #[error("{} has version {found}; this gpuwhy knows versions up to {VERSION}", .path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("there is no history of the cluster {cluster:?}")]
    NotFound { cluster: String },
    #[error("this fleet keeps nothing of what it is told")]
    NotKept,
    #[error("the disk is full: {} was not written further", .path.display())]
    DiskFull { path: PathBuf },
    #[error("no permission for {}", .path.display())]
    Permission { path: PathBuf },
    #[error("a size of {size} bytes is too small for a history; the least is {least}")]
    TooSmall { size: u64, least: u64 },
    #[error("{} is damaged: {message}", .path.display())]
    Damaged { path: PathBuf, message: String },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", .path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

impl HistoryError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Busy { .. } => "stop the other one, or name another folder with --data",
            Self::NotOurs { .. } => "it was left as it is; name another folder with --data",
            Self::Newer { .. } => "it was left as it is; use the gpuwhy that wrote it, or a newer one",
            Self::DiskFull { .. } => "free some space, or keep less with --max-size",
            Self::Permission { .. } => "name a folder that you may write to with --data",
            Self::TooSmall { .. } => "raise --max-size",
            Self::Damaged { .. } => "save what is left with `sqlite3 FILE .recover`, and move the file away",
            Self::NotFound { .. } | Self::NotKept | Self::Io { .. } | Self::Sqlite { .. } => return None,
        })
    }

    pub(crate) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                Self::Permission { path }
            }
            Some(ErrorCode::NotADatabase) => Self::NotOurs { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, message: source.to_string() },
            _ => Self::Sqlite { path, source },
        }
    }
}
