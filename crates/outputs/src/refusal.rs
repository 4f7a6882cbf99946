//! Why there is no answer. Every door gives the same object; over HTTP its kind decides the status, in one place.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse, Response};
use gpuwhy_questions::AskError;
use gpuwhy_store::{QueryError, StoreError};
use serde_json::{Value, json};
use thiserror::Error;

use crate::http::Remark;

#[derive(Debug, Error)]
pub enum Refusal {
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The same, in words for somebody who need not know where files lie.
    #[error("{message}")]
    Trace { error: AskError, message: String },
    #[error("the answer has {bytes} bytes; at most {most} are sent")]
    TooLarge { bytes: usize, most: usize },
    #[error("the trace has {bytes} bytes; at most {most} are sent as a whole")]
    TraceTooLarge { bytes: u64, most: u64 },
    #[error("too many questions are being answered")]
    Busy,
    #[error("the server is shutting down")]
    Stopping,
    #[error("a token is needed")]
    NoToken,
    #[error("the token is not the right one")]
    WrongToken,
    #[error("this token is not for those who {role}")]
    WrongRole { role: &'static str },
    #[error("this token is not for telling of cluster {cluster:?}")]
    ForeignCluster { cluster: String },
    #[error("this token is for telling as node {own:?} alone")]
    ForeignNode { own: String },
    #[error("a token has no place in a URL, where logs and histories keep it")]
    TokenInUrl,
    #[error("this server does not go by that Host")]
    ForeignHost,
    #[error("pages of another origin may not ask")]
    ForeignOrigin,
    #[error("too many requests")]
    TooManyRequests { retry_after_s: u64 },
    #[error("there is nothing at this path")]
    NoSuchPath,
    #[error("this path does not take that method")]
    WrongMethod,
    #[error("the body is not of type application/json")]
    NotJson,
    #[error("the body is no JSON: {message}")]
    Malformed { message: String },
    #[error("the body is not of type application/x-protobuf")]
    NotProtobuf,
    #[error("the body is not of type application/grpc")]
    NotGrpc,
    #[error("the body is no message of OpenTelemetry: {message}")]
    BadMessage { message: String },
    #[error("the body has more than {most} bytes")]
    BodyTooLarge { most: usize },
    #[error("the body did not arrive in time")]
    SlowBody,
    #[error("the connection ended within the body")]
    BrokenBody,
}

impl Refusal {
    /// What kind of refusal it is, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ask(error) | Self::Trace { error, .. } => error.code(),
            Self::TooLarge { .. } => "too_large",
            Self::TraceTooLarge { .. } => "trace_too_large",
            Self::Busy => "busy",
            Self::Stopping => "shutting_down",
            Self::NoToken => "no_token",
            Self::WrongToken => "wrong_token",
            Self::WrongRole { .. } => "wrong_role",
            Self::ForeignCluster { .. } => "foreign_cluster",
            Self::ForeignNode { .. } => "foreign_node",
            Self::TokenInUrl => "token_in_url",
            Self::ForeignHost => "foreign_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::TooManyRequests { .. } => "too_many_requests",
            Self::NoSuchPath => "no_such_path",
            Self::WrongMethod => "wrong_method",
            Self::NotJson => "not_json",
            Self::NotProtobuf => "not_protobuf",
            Self::NotGrpc => "not_grpc",
            Self::Malformed { .. } | Self::BadMessage { .. } | Self::BrokenBody => "malformed",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::SlowBody => "slow_body",
        }
    }

    pub fn status(&self) -> StatusCode {
        match self {
            Self::Ask(error) | Self::Trace { error, .. } => status_of(error),
            Self::TooLarge { .. } | Self::TraceTooLarge { .. } | Self::BodyTooLarge { .. } => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::Busy | Self::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::ForeignHost | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::WrongRole { .. } | Self::ForeignCluster { .. } | Self::ForeignNode { .. } => StatusCode::FORBIDDEN,
            Self::NoSuchPath => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotJson | Self::NotProtobuf | Self::NotGrpc => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TokenInUrl | Self::Malformed { .. } | Self::BadMessage { .. } | Self::BrokenBody => {
                StatusCode::BAD_REQUEST
            }
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Ask(error) | Self::Trace { error, .. } => return error.hint(),
            Self::TooLarge { .. } => {
                "ask for less: a smaller `limit`, a shorter time with `since` or `from` and `to`, one `pid`, fewer columns"
            }
            Self::TraceTooLarge { .. } => "ask questions of it there instead",
            Self::Busy | Self::Stopping | Self::TooManyRequests { .. } => "wait a moment and ask again",
            Self::NoToken | Self::WrongToken => "send the server's token as `Authorization: Bearer TOKEN`",
            Self::WrongRole { .. } | Self::ForeignCluster { .. } => {
                "use a token with this role and cluster; the server has them in the file that it is given as --tokens"
            }
            Self::ForeignNode { .. } => "tell as this node (--node), or with the other's token: gpuwhy fleet token",
            Self::TokenInUrl => "send it as `Authorization: Bearer TOKEN`; this one should be replaced",
            Self::ForeignHost | Self::ForeignOrigin => "name the host with --allow-host when the server is started",
            Self::NoSuchPath | Self::WrongMethod => "what there is: GET /api/v1/openapi.json",
            Self::NotJson => "send a JSON object with `Content-Type: application/json`",
            Self::NotProtobuf => "let the exporter send http/protobuf",
            Self::NotGrpc => "let the exporter send grpc, or http/protobuf to /v1/metrics",
            Self::Malformed { .. } | Self::BadMessage { .. } | Self::BodyTooLarge { .. } => return None,
            Self::SlowBody | Self::BrokenBody => return None,
        })
    }

    /// The shape of every error, in every door.
    pub fn to_json(&self) -> Value {
        json!({"error": {"code": self.code(), "message": self.to_string(), "hint": self.hint()}})
    }
}

fn status_of(error: &AskError) -> StatusCode {
    match error {
        AskError::Parameters { .. } => StatusCode::BAD_REQUEST,
        AskError::NoQuestion { .. } | AskError::NoTrace { .. } | AskError::NotFound { .. } => StatusCode::NOT_FOUND,
        AskError::NotHere { .. } => StatusCode::CONFLICT,
        AskError::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        AskError::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        AskError::Trace(StoreError::NotFound { .. }) => StatusCode::NOT_FOUND,
        AskError::Trace(StoreError::Busy { .. } | StoreError::Cancelled { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        AskError::Trace(_) => StatusCode::INTERNAL_SERVER_ERROR,
        AskError::Query(error) => match error {
            QueryError::NotReadOnly { .. } | QueryError::SeveralStatements | QueryError::Empty => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            QueryError::Syntax { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            QueryError::TooMuchMemory | QueryError::TooBig => StatusCode::PAYLOAD_TOO_LARGE,
            QueryError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            QueryError::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            QueryError::Unreadable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.to_json())).into_response();
        response.extensions_mut().insert(Remark { refused: Some(self.code()), ..Remark::default() });
        let headers = response.headers_mut();
        match self {
            Self::NoToken | Self::WrongToken => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::TooManyRequests { retry_after_s } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_s));
            }
            Self::Busy | Self::Stopping => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
