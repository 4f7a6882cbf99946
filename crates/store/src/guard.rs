//! SQL from anybody, kept harmless: one statement that only reads, with an end in time, rows, bytes and memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::Value as Parameter;
use rusqlite::{Batch, Connection, ErrorCode, Row, Statement};

use crate::{Answer, Limits, QueryError, Truncation, Value};

/// What SQLite may allocate for one query, sorting and temporary tables included.
const MOST_MEMORY: i64 = 256 << 20;

/// Virtual machine steps between two looks at the clock.
const STEPS: i32 = 1000;

/// The longest string, blob or row. Some built-in functions take quadratic time that nothing interrupts: half a second
/// at this length.
const MOST_LENGTH: i32 = 1 << 18;

const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_LENGTH, MOST_LENGTH),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 100_000),
    (Limit::SQLITE_LIMIT_COLUMN, 500),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 100),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 1000),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Functions that reach outside of the database in some build of SQLite.
const FORBIDDEN_FUNCTIONS: &[&str] =
    &["load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "sqlite_log", "zipfile"];

/// Pragmas that only tell how the tables look.
const ALLOWED_PRAGMAS: &[&str] =
    &["table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "function_list"];

/// Stops a query that takes too long or too much.
#[derive(Clone, Default)]
pub struct Guard(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    deadline: Option<Instant>,
    most_memory: i64,
    stopped_by: Option<Stop>,
    /// Set when nobody waits for the answer any more.
    cancelled: Option<Arc<AtomicBool>>,
}

#[derive(Clone, Copy)]
enum Stop {
    Time,
    Memory,
    Cancelled,
}

impl Guard {
    /// Closes the connection to everything but reading.
    pub fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let guard = Self::default();
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        for (limit, most) in LIMITS {
            connection.set_limit(*limit, *most)?;
        }
        connection.authorizer(Some(authorize))?;
        let watch = guard.clone();
        connection.progress_handler(STEPS, Some(move || watch.must_stop()))?;
        Ok(guard)
    }

    /// Runs one statement.
    pub fn query(
        &self,
        connection: &Connection,
        sql: &str,
        parameters: &[Parameter],
        limits: &Limits,
    ) -> Result<Answer, QueryError> {
        self.start(limits);
        let answer = prepare(connection, sql).and_then(|statement| collect(statement, parameters, limits));
        let stopped_by = self.end();
        answer.map_err(|error| explain(error, stopped_by, limits))
    }

    /// Runs statements of our own under the same watch.
    pub fn watch<T>(&self, limits: &Limits, work: impl FnOnce() -> rusqlite::Result<T>) -> Result<T, QueryError> {
        self.start(limits);
        let done = work();
        let stopped_by = self.end();
        done.map_err(|error| explain(Failure::Sqlite(error), stopped_by, limits))
    }

    fn start(&self, limits: &Limits) {
        let most_memory = memory_used() + MOST_MEMORY;
        let mut state = self.state();
        (state.deadline, state.most_memory) = (Instant::now().checked_add(limits.time), most_memory);
        state.stopped_by = None;
    }

    fn end(&self) -> Option<Stop> {
        let mut state = self.state();
        state.deadline = None;
        state.stopped_by.take()
    }

    /// From now on everything that is read stops as soon as this is set, statements of our own too.
    pub fn stop_when(&self, cancelled: Arc<AtomicBool>) {
        self.state().cancelled = Some(cancelled);
    }

    fn must_stop(&self) -> bool {
        let mut state = self.state();
        if state.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            state.stopped_by = Some(Stop::Cancelled);
            return true;
        }
        let Some(deadline) = state.deadline else { return false };
        if Instant::now() >= deadline {
            state.stopped_by = Some(Stop::Time);
        } else if memory_used() > state.most_memory {
            state.stopped_by = Some(Stop::Memory);
        }
        state.stopped_by.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn memory_used() -> i64 {
    // SAFETY: reads a counter; it has no preconditions and may be called from any thread.
    unsafe { rusqlite::ffi::sqlite3_memory_used() }
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    let is_in = |list: &[&str], name: &str| list.iter().any(|listed| listed.eq_ignore_ascii_case(name));
    let allowed = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => !is_in(FORBIDDEN_FUNCTIONS, function_name),
        AuthAction::Pragma { pragma_name, .. } => is_in(ALLOWED_PRAGMAS, pragma_name),
        _ => false,
    };
    if allowed { Authorization::Allow } else { Authorization::Deny }
}

enum Failure {
    Query(QueryError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn prepare<'c>(connection: &'c Connection, sql: &str) -> Result<Statement<'c>, Failure> {
    if sql.contains('\0') {
        // SQLite would take it for the end.
        return Err(Failure::Query(QueryError::Syntax { message: "the query holds a NUL character".into() }));
    }
    let mut statements = Batch::new(connection, sql);
    let Some(statement) = statements.next()? else {
        return Err(Failure::Query(QueryError::Empty));
    };
    match statements.next() {
        Ok(None) if statement.readonly() => Ok(statement),
        Ok(None) => Err(Failure::Query(QueryError::NotReadOnly { what: "the statement writes".into() })),
        _ => Err(Failure::Query(QueryError::SeveralStatements)),
    }
}

fn collect(mut statement: Statement<'_>, parameters: &[Parameter], limits: &Limits) -> Result<Answer, Failure> {
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut answer = Answer { columns, rows: Vec::new(), truncated: None };
    let mut bytes = 0;
    for (at, parameter) in parameters.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, parameter)?;
    }
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = values(row, answer.columns.len())?;
        bytes += values.iter().map(Value::bytes).sum::<usize>();
        answer.truncated = match answer.rows.len() >= limits.rows {
            true => Some(Truncation::Rows),
            false => (bytes > limits.bytes).then_some(Truncation::Bytes),
        };
        if answer.truncated.is_some() {
            break;
        }
        answer.rows.push(values);
    }
    Ok(answer)
}

fn values(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns).map(|at| row.get_ref(at).map(Value::from)).collect()
}

fn explain(failure: Failure, stopped_by: Option<Stop>, limits: &Limits) -> QueryError {
    match failure {
        Failure::Query(error) => error,
        Failure::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            match stopped_by {
                Some(Stop::Memory) => QueryError::TooMuchMemory,
                Some(Stop::Cancelled) => QueryError::Cancelled,
                _ => QueryError::TimedOut { limit: limits.time },
            }
        }
        Failure::Sqlite(error) => QueryError::from_sqlite(error),
    }
}
