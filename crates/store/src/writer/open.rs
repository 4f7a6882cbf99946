//! Opening a trace for writing: whose file it is, what layout it has, and the settings it is written with.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gpuwhy_model::{Calibration, Cell, Session};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};

use super::calls::MovedCalls;
use super::dictionary::{Dictionaries, newest_event};
use super::ended::Ended;
use super::names::Names;
use super::retention::Cap;
use super::room::LastRoom;
use super::rows::Insert;
use super::samples::Series;
use super::stacks::Stacks;
use super::{Options, PATIENCE, Writer, signed};
use crate::StoreError;
use crate::cells::cut;
use crate::lock::WriterLock;
use crate::schema::{self, APPLICATION_ID, SCHEMA_VERSION};

/// Pages between two checkpoints of a file without a size cap: 16 MiB.
const CHECKPOINT_PAGES: i64 = 4096;

pub(super) fn open(path: &Path, session: &Session, options: &Options) -> Result<Writer, StoreError> {
    // An absolute path cannot be taken for a `file:` address, and stays right when the process changes directory.
    let path = std::path::absolute(path).map_err(|error| StoreError::from_io(path, error))?;
    let lock = WriterLock::take(&path)?;
    let created = lock.created();
    open_locked(&path, session, options, lock).inspect_err(|_| {
        if created {
            // Nobody else has the empty file: it was made a moment ago and is locked.
            let _ = std::fs::remove_file(&path);
        }
    })
}

fn open_locked(path: &Path, session: &Session, options: &Options, lock: WriterLock) -> Result<Writer, StoreError> {
    check_header(path, lock.file())?;
    let cap = options.max_size.map(|cap| Cap::new(path, cap)).transpose()?;
    let failed = |error| StoreError::from_sqlite(path, error);
    let connection = connect(path, cap.as_ref()).map_err(failed)?;
    migrate(path, &connection)?;
    tune(&connection, cap.as_ref()).map_err(failed)?;
    start(connection, path.to_path_buf(), session, cap, lock).map_err(failed)
}

/// Opens a trace of today's layout that is there, without beginning a session.
pub(crate) fn connect_again(path: &Path, lock: &WriterLock) -> Result<Connection, StoreError> {
    check_header(path, lock.file())?;
    let connection = connect(path, None).map_err(|error| StoreError::from_sqlite(path, error))?;
    migrate(path, &connection)?;
    Ok(connection)
}

/// Reads who made the file before SQLite touches it. The header is never only in the write-ahead log, because the
/// schema is written before there is one.
fn check_header(path: &Path, file: &File) -> Result<(), StoreError> {
    let length = file.metadata().map_err(|error| StoreError::from_io(path, error))?.len();
    if length == 0 {
        return Ok(());
    }
    let mut header = [0; 100];
    let is_sqlite = file.read_exact_at(&mut header, 0).is_ok() && header.starts_with(b"SQLite format 3\0");
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if !is_sqlite || number(68) != APPLICATION_ID {
        return Err(StoreError::NotATrace { path: path.into() });
    }
    match number(60) {
        0 => Err(StoreError::NotATrace { path: path.into() }),
        found if found > SCHEMA_VERSION => Err(StoreError::newer(path, found)),
        _ => Ok(()),
    }
}

fn connect(path: &Path, cap: Option<&Cap>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    distrust(&connection)?;
    if let Some(cap) = cap {
        connection.pragma_update(None, "max_page_count", cap.max_pages())?;
    }
    if connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        schema::create(&connection)?;
    }
    Ok(connection)
}

/// Brings a file that an earlier gpuwhy wrote up to date.
fn migrate(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let found: u32 = found.map_err(|error| StoreError::from_sqlite(path, error))?;
    match found {
        SCHEMA_VERSION => Ok(()),
        found if found > SCHEMA_VERSION => Err(StoreError::newer(path, found)),
        _ => schema::migrate(connection, found).map_err(|error| StoreError::not_migrated(path, found, error)),
    }
}

/// The file may have been made by somebody else: nothing in it runs.
fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    Ok(())
}

fn tune(connection: &Connection, cap: Option<&Cap>) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(96);
    let set = |name, value: i64| connection.pragma_update(None, name, value);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    set("cache_size", -4096)?;
    set("journal_size_limit", CHECKPOINT_PAGES * 4096)?;
    match cap {
        // With a cap the writer checkpoints by itself, see `retention`.
        Some(_) => set("wal_autocheckpoint", 0),
        None => set("wal_autocheckpoint", CHECKPOINT_PAGES),
    }
}

fn start(
    connection: Connection,
    path: PathBuf,
    session: &Session,
    cap: Option<Cap>,
    lock: WriterLock,
) -> rusqlite::Result<Writer> {
    let id = write_session(&connection, session)?;
    let mut writer = Writer {
        names: Names::load(&connection)?,
        ended: Ended::default(),
        dictionaries: Dictionaries::load(&connection, cap.as_ref())?,
        stacks: Stacks::load(&connection, cap.as_ref(), newest_event(&connection)?)?,
        series: Series::load(&connection)?,
        moved: MovedCalls::default(),
        newest_record_ns: 0,
        session: id,
        connection,
        room: LastRoom::keep_beside(&path),
        path,
        cap,
        uncommitted_calls: 0,
        not_written: 0,
        _lock: lock,
    };
    writer.measure_sums()?;
    Ok(writer)
}

fn write_session(connection: &Connection, session: &Session) -> rusqlite::Result<i64> {
    let transaction = connection.unchecked_transaction()?;
    let id = insert_session(&transaction, session)?;
    let insert = Insert::new::<Calibration>();
    for calibration in &session.calibrations {
        insert.row(&transaction, &[Cell::Integer(id)], calibration)?;
    }
    transaction.commit()?;
    Ok(id)
}

fn insert_session(connection: &Connection, session: &Session) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO sessions (started_ns, version, host, boot_id, kernel, cpus, gpus, driver, command,
        attach_path, probe_cost_ns, last_commit_ns, stored, budget, is_virtual_machine)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)";
    let started_ns = signed(session.started_ns);
    connection.execute(
        sql,
        params![
            started_ns,
            cut(&session.version),
            cut(&session.host),
            cut(&session.boot_id),
            cut(&session.kernel),
            session.cpus,
            serde_json::Value::from(session.gpus.clone()).to_string(),
            session.driver.as_deref().map(cut),
            cut(&session.command),
            cut(&session.attach_path),
            session.probe_cost_ns.map(signed),
            started_ns,
            session.budget,
            session.is_virtual_machine,
        ],
    )?;
    Ok(connection.last_insert_rowid())
}
