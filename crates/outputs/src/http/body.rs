//! The JSON body of a request: of bounded size, in bounded time.

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use gpuwhy_questions::AskError;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tokio::time::timeout;

use super::Patience;
use crate::Refusal;

pub const MOST_BYTES: usize = 1 << 20;

/// The parameters in a body. No body at all is no parameters.
pub async fn parameters(headers: &HeaderMap, body: Body, patience: &Patience) -> Result<Value, Refusal> {
    let is_json = is_json(headers);
    if !is_json && headers.contains_key(CONTENT_TYPE) {
        return Err(Refusal::NotJson);
    }
    let bytes = bytes(headers, body, patience).await?;
    match bytes.is_empty() {
        true => Ok(Value::Null),
        false if !is_json => Err(Refusal::NotJson),
        false => match parse(&bytes)? {
            Value::Null => Err(AskError::Parameters { message: "parameters are a JSON object".to_owned() }.into()),
            parameters => Ok(parameters),
        },
    }
}

fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal::Malformed { message: error.to_string() })
}

pub fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// All of a body. One that says it is too long is not even begun.
pub async fn bytes(headers: &HeaderMap, body: Body, patience: &Patience) -> Result<Bytes, Refusal> {
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > MOST_BYTES as u64) {
        return Err(Refusal::BodyTooLarge { most: MOST_BYTES });
    }
    match timeout(patience.body, Limited::new(body, MOST_BYTES).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge { most: MOST_BYTES }),
        Ok(Err(_)) => Err(Refusal::BrokenBody),
        Err(_) => Err(Refusal::SlowBody),
    }
}
