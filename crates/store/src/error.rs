//! What can go wrong with a trace file, in words a user can act on.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_READONLY_DIRECTORY};
use thiserror::Error;

use crate::schema::SCHEMA_VERSION;

/// A trace file that could not be opened, written or read.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("there is no file {}", .path.display())]
    NotFound { path: PathBuf },
    #[error("{} is not a gpuwhy trace", .path.display())]
    NotATrace { path: PathBuf },
    #[error("{} has schema version {found}; this gpuwhy knows versions up to {supported}", .path.display())]
    Newer { path: PathBuf, found: u32, supported: u32 },
    #[error("{} has schema version {found} and could not be brought to version {SCHEMA_VERSION}: {message}", .path.display())]
    NotMigrated { path: PathBuf, found: u32, message: String },
    #[error("{} is there already", .path.display())]
    Exists { path: PathBuf },
    #[error("{} has a run of the tracer on {host} that another of the files has too", .path.display())]
    MergedTwice { path: PathBuf, host: String },
    #[error("no permission for {}", .path.display())]
    Permission { path: PathBuf },
    #[error("{} or its directory is read-only", .path.display())]
    ReadOnly { path: PathBuf },
    #[error("the disk is full: {} was not written further", .path.display())]
    DiskFull { path: PathBuf },
    #[error("another tracer or tool is writing {}", .path.display())]
    Busy { path: PathBuf },
    #[error("a size cap of {cap} bytes is too small; the least is {least}")]
    CapTooSmall { cap: u64, least: u64 },
    #[error("{} already has {size} bytes, too many for a size cap of {cap}", .path.display())]
    OverCap { path: PathBuf, size: u64, cap: u64 },
    #[error("{} is at its size cap and nothing older can be deleted", .path.display())]
    CapReached { path: PathBuf },
    #[error("a long read of {} keeps it from staying under its size cap", .path.display())]
    ReaderInTheWay { path: PathBuf },
    #[error("{} is damaged: {message}", .path.display())]
    Damaged { path: PathBuf, message: String },
    #[error("nobody waits for what is read from {} any more", .path.display())]
    Cancelled { path: PathBuf },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", .path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

impl StoreError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotFound { .. } => "name a file that `gpuwhy trace --out FILE` wrote",
            Self::NotATrace { .. } => "the file was left as it is; name another one",
            Self::Newer { .. } => "the file was left as it is; read it with the gpuwhy that wrote it, or a newer one",
            Self::NotMigrated { .. } => "the file was left as it is and can be read; write to another file with --out",
            Self::Exists { .. } => "the file was left as it is; name a new one",
            Self::MergedTwice { .. } => "name each trace once",
            Self::Permission { .. } => "choose a place you may write to with --out, or run as the file's owner",
            Self::ReadOnly { .. } => {
                "choose a writable place, or copy the file together with its -wal file to a writable directory"
            }
            Self::DiskFull { .. } => "free some space, or keep traces small with a size cap",
            Self::Busy { .. } => "stop the other tracer, or write to another file with --out",
            Self::CapTooSmall { .. } | Self::CapReached { .. } => "raise the size cap",
            Self::OverCap { .. } => "raise the size cap, or write to another file with --out",
            Self::ReaderInTheWay { .. } => "end the long-running query on the file",
            Self::Damaged { .. } => "save what is left with `sqlite3 FILE .recover`",
            Self::Cancelled { .. } | Self::Io { .. } | Self::Sqlite { .. } => return None,
        })
    }

    pub(crate) fn newer(path: &Path, found: u32) -> Self {
        Self::Newer { path: path.into(), found, supported: SCHEMA_VERSION }
    }

    pub(crate) fn not_migrated(path: &Path, found: u32, source: rusqlite::Error) -> Self {
        let not_migrated = |path, message| Self::NotMigrated { path, found, message };
        match Self::from_sqlite(path, source) {
            Self::Sqlite { path, source } => not_migrated(path, sqlite_message(&source)),
            Self::Busy { path } => not_migrated(path, "another program has it open".into()),
            Self::DiskFull { path } => not_migrated(path, "the disk or the size cap has no room for it".into()),
            other => other,
        }
    }

    pub(crate) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            io::ErrorKind::WouldBlock => Self::Busy { path },
            io::ErrorKind::IsADirectory => Self::NotATrace { path },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        let Some(error) = source.sqlite_error() else {
            return Self::Sqlite { path, source };
        };
        match (error.code, error.extended_code) {
            (ErrorCode::DiskFull, _) | (_, SQLITE_IOERR_SHMSIZE) => Self::DiskFull { path },
            (ErrorCode::ReadOnly, _) | (_, SQLITE_READONLY_DIRECTORY) => Self::ReadOnly { path },
            (ErrorCode::PermissionDenied, _) => Self::Permission { path },
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Busy { path },
            (ErrorCode::NotADatabase, _) => Self::NotATrace { path },
            (ErrorCode::OperationInterrupted, _) => Self::Cancelled { path },
            (ErrorCode::DatabaseCorrupt, _) => Self::Damaged { path, message: source.to_string() },
            _ => Self::Sqlite { path, source },
        }
    }
}

/// A question to a trace that was refused or cut short.
#[derive(Debug, Error)]
pub enum QueryError {
    #[error("only reading is allowed: {what}")]
    NotReadOnly { what: String },
    #[error("one statement at a time, please: there is something after the first one")]
    SeveralStatements,
    #[error("there is no statement to run")]
    Empty,
    #[error("{message}")]
    Syntax { message: String },
    #[error("the query was stopped after {} s", .limit.as_secs_f64())]
    TimedOut { limit: Duration },
    #[error("the query was stopped because it needed too much memory")]
    TooMuchMemory,
    #[error("a value or the query itself is too long")]
    TooBig,
    #[error("nobody waits for the answer any more")]
    Cancelled,
    #[error("the file is damaged or changed while it was read: {message}")]
    Unreadable { message: String },
}

impl QueryError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotReadOnly { .. } => "copy the file and change the copy with sqlite3",
            Self::Syntax { .. } => "the tables and columns are in schema_tables and schema_columns",
            Self::TimedOut { .. } => "narrow it down: add a time range, e.g. WHERE timestamp_ns BETWEEN ... AND ...",
            Self::TooMuchMemory => "narrow it down, or add a LIMIT inside",
            Self::SeveralStatements | Self::Empty | Self::TooBig | Self::Cancelled | Self::Unreadable { .. } => {
                return None;
            }
        })
    }

    pub(crate) fn from_sqlite(source: rusqlite::Error) -> Self {
        let message = sqlite_message(&source);
        match source.sqlite_error_code() {
            Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly) => {
                Self::NotReadOnly { what: message }
            }
            _ if message.starts_with("not authorized") || message.contains("is prohibited") => {
                Self::NotReadOnly { what: message }
            }
            Some(ErrorCode::TooBig) => Self::TooBig,
            Some(ErrorCode::OutOfMemory) => Self::TooMuchMemory,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure | ErrorCode::NotADatabase) => {
                Self::Unreadable { message }
            }
            _ => Self::Syntax { message },
        }
    }
}

/// SQLite's own words, without the statement.
fn sqlite_message(source: &rusqlite::Error) -> String {
    match source {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}
