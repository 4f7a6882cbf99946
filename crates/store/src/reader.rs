//! The way out of a trace file, for anybody who may read it, at any time: while it is written, after the tracer was
//! killed, from a directory that is read-only.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::Value as Parameter;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::guard::Guard;
use crate::schema::{APPLICATION_ID, SCHEMA_VERSION};
use crate::{Answer, Filter, Limits, QueryError, StoreError, Value, filter, functions, older};

/// How long to wait for a writer that is just folding its log into the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// A trace that is open for reading.
pub struct Trace {
    connection: Connection,
    guard: Guard,
    path: PathBuf,
    version: u32,
}

impl Trace {
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), |_| Ok(()))
    }

    /// The same, and what a file of an earlier version lacks is there, empty: no statement needs to know versions.
    pub fn open_as_newest(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), older::stand_in)
    }

    fn open_with(path: &Path, fill: fn(&Connection) -> rusqlite::Result<()>) -> Result<Self, StoreError> {
        // An absolute path cannot be taken for a `file:` address.
        let path = std::path::absolute(path).map_err(|error| StoreError::from_io(path, error))?;
        check_kind(&path)?;
        let mut connection = connect(&path)?;
        let version = check_schema(&path, &connection)?;
        let failed = |error| StoreError::from_sqlite(&path, error);
        functions::add_to(&connection).map_err(failed)?;
        if version < SCHEMA_VERSION {
            fill(&connection).map_err(failed)?;
        }
        let guard = Guard::install(&mut connection).map_err(failed)?;
        Ok(Self { connection, guard, path, version })
    }

    /// The schema version of the file; older ones lack what came later.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Everything that is read from it stops as soon as this is set.
    pub fn stop_when(&self, cancelled: Arc<AtomicBool>) {
        self.guard.stop_when(cancelled);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For statements of our own, which need no limits.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The same for several statements that see one state of a file that may be written to meanwhile.
    pub(crate) fn at_one_moment<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        // As long as one statement is under way, all others see the same state.
        let mut first = self.connection.prepare("SELECT name FROM sqlite_schema")?;
        let mut first = first.query([])?;
        first.next()?;
        work(&self.connection)
    }

    /// Runs one statement of anybody's SQL. It can read and nothing else.
    pub fn query(&self, sql: &str, limits: &Limits) -> Result<Answer, QueryError> {
        self.guarded(sql, &[], limits)
    }

    /// The same with values for the statement's `?`, in order.
    pub fn query_with(&self, sql: &str, values: &[Value], limits: &Limits) -> Result<Answer, QueryError> {
        let parameters: Vec<Parameter> = values.iter().cloned().map(Parameter::from).collect();
        self.guarded(sql, &parameters, limits)
    }

    /// Calls that match, the first ones in time.
    pub fn calls(&self, filter: &Filter, limits: &Limits) -> Result<Answer, QueryError> {
        let (sql, parameters) = filter.to_sql(&self.known_ops(limits)?);
        self.guarded(&sql, &parameters, limits)
    }

    pub(crate) fn guarded(&self, sql: &str, values: &[Parameter], limits: &Limits) -> Result<Answer, QueryError> {
        self.guard.query(&self.connection, sql, values, limits)
    }

    /// When the last session ended, or was last seen alive.
    pub fn end_ns(&self) -> Result<Option<u64>, QueryError> {
        let sql = "SELECT max(coalesce(ended_ns, last_commit_ns)) FROM sessions";
        let answer = self.query(sql, &Limits::default())?;
        Ok(match answer.rows.first().and_then(|row| row.first()) {
            Some(Value::Integer(end_ns)) => u64::try_from(*end_ns).ok(),
            _ => None,
        })
    }

    /// Runs a statement of our own whose rows are too many to be kept, one look at each.
    pub(crate) fn watched<T>(
        &self,
        limits: &Limits,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, QueryError> {
        self.guard.watch(limits, || work(&self.connection))
    }

    /// All names in the trace of the function that somebody calls by this one: the driver's or the runtime's, with or
    /// without a version such as `_v2`.
    pub fn names_of(&self, op: &str, limits: &Limits) -> Result<Vec<String>, QueryError> {
        let known = self.known_ops(limits)?;
        Ok(known.into_iter().filter(|known| filter::is_same(known, op)).collect())
    }

    pub(crate) fn known_ops(&self, limits: &Limits) -> Result<Vec<String>, QueryError> {
        let sql = "SELECT name FROM ops UNION SELECT runtime_name FROM ops";
        let limits = Limits { rows: 10_000, ..*limits };
        let names = self.query(sql, &limits)?.rows.into_iter().flatten();
        Ok(names.filter_map(|name| if let Value::Text(name) = name { Some(name) } else { None }).collect())
    }
}

/// Opening a pipe would wait for ever.
fn check_kind(path: &Path) -> Result<(), StoreError> {
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(StoreError::NotATrace { path: path.into() }),
        Err(error) => Err(StoreError::from_io(path, error)),
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| cannot_open(path, error))?;
    let error = match probed(connection) {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    if !is_unwritable_place(&error) {
        return Err(StoreError::from_sqlite(path, error));
    }
    if has_log(path) {
        return Err(StoreError::ReadOnly { path: path.into() });
    }
    // Nothing beside the file is needed, and nobody is writing it.
    let flags = flags | OpenFlags::SQLITE_OPEN_URI;
    let opened = Connection::open_with_flags(immutable_address(path), flags).and_then(probed);
    opened.map_err(|error| StoreError::from_sqlite(path, error))
}

/// The file is there, as was found before.
fn cannot_open(path: &Path, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => StoreError::Permission { path: path.into() },
        _ => StoreError::from_sqlite(path, error),
    }
}

/// SQLite looks at a file only when it is first read.
fn probed(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(PATIENCE)?;
    // Otherwise a statement is planned anew each time its limit is bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    Ok(connection)
}

fn is_unwritable_place(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

fn has_log(path: &Path) -> bool {
    log_of(path).metadata().is_ok_and(|found| found.len() > 0)
}

/// What has yet to be folded into the file.
pub(crate) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn immutable_address(path: &Path) -> OsString {
    let mut address = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => address.push(byte.into()),
            _ => address.push_str(&format!("%{byte:02x}")),
        }
    }
    address.push_str("?immutable=1");
    address.into()
}

fn check_schema(path: &Path, connection: &Connection) -> Result<u32, StoreError> {
    let number = |pragma| {
        let read = connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        read.map_err(|error| StoreError::from_sqlite(path, error))
    };
    if number("application_id")? != i64::from(APPLICATION_ID) {
        return Err(StoreError::NotATrace { path: path.into() });
    }
    match u32::try_from(number("user_version")?) {
        Ok(found) if found > SCHEMA_VERSION => Err(StoreError::newer(path, found)),
        Ok(found) => Ok(found),
        Err(_) => Err(StoreError::NotATrace { path: path.into() }),
    }
}
