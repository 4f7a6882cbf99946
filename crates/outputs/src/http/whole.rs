//! The trace as a whole, for `merge` and `export` of another host.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use tokio_util::io::ReaderStream;

use super::Doors;
use crate::Refusal;

pub async fn trace(State(doors): State<Arc<Doors>>) -> Result<Response, Refusal> {
    let copied = doors.asker.copy().await?;
    let headers = [(CONTENT_TYPE, "application/vnd.sqlite3".to_owned()), (CONTENT_LENGTH, copied.bytes.to_string())];
    Ok((headers, Body::from_stream(ReaderStream::with_capacity(copied, 1 << 16))).into_response())
}
