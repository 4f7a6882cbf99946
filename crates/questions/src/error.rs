//! Why there is no answer. Doors choose by the kind, never by the words.

use gpuwhy_store::{QueryError, StoreError};
use serde_json::{Value, json};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum AskError {
    #[error("{message}")]
    Parameters { message: String },
    #[error("there is no question {name:?}")]
    NoQuestion { name: String },
    #[error("no trace {wanted:?} is served here; there is {known}")]
    NoTrace { wanted: String, known: String },
    #[error("{message}")]
    NotFound { message: String },
    #[error(transparent)]
    Trace(#[from] StoreError),
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("the question was withdrawn")]
    Cancelled,
    #[error("{message}")]
    NotHere { message: String },
    #[error("{message}")]
    Failed { message: String },
}

impl AskError {
    pub fn parameter(name: &str, message: impl std::fmt::Display) -> Self {
        Self::Parameters { message: format!("{name}: {message}") }
    }

    /// What kind of error it is, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Parameters { .. } => "bad_parameters",
            Self::NoQuestion { .. } => "no_such_question",
            Self::NoTrace { .. } => "no_such_trace",
            Self::NotFound { .. } => "not_found",
            Self::Trace(StoreError::NotFound { .. }) => "no_such_trace",
            Self::Trace(StoreError::Cancelled { .. }) => "cancelled",
            Self::Trace(_) => "unreadable_trace",
            Self::Query(QueryError::NotReadOnly { .. }) => "not_read_only",
            Self::Query(QueryError::TimedOut { .. }) => "timed_out",
            Self::Query(QueryError::TooMuchMemory | QueryError::TooBig) => "too_large",
            Self::Query(QueryError::Unreadable { .. }) => "unreadable_trace",
            Self::Query(QueryError::Cancelled) | Self::Cancelled => "cancelled",
            Self::Query(QueryError::SeveralStatements | QueryError::Empty | QueryError::Syntax { .. }) => "bad_sql",
            Self::NotHere { .. } => "not_available",
            Self::Failed { .. } => "failed",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Trace(error) => error.hint(),
            Self::Query(error) => error.hint(),
            _ => None,
        }
    }

    /// The shape of every error, in every door.
    pub fn to_json(&self) -> Value {
        json!({"error": {"code": self.code(), "message": self.to_string(), "hint": self.hint()}})
    }
}
