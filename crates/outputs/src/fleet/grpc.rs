//! The same over gRPC, as OpenTelemetry's SDKs and collectors send it by default: a call is a POST over HTTP/2, its message
//! comes behind five bytes, and its status behind the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use gpuwhy_history::Kind;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use prost::Message;

use super::ingest::{header, is_packed, routine, sent_ns};
use crate::Refusal;
use crate::http::{Doors, Grant, Remark, body};

const GRPC: &str = "application/grpc";
const PREFIX_BYTES: usize = 5;
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const REASON: HeaderName = HeaderName::from_static("grpc-message");
const ENCODING: &str = "grpc-encoding";

/// Where one kind of message is told.
pub fn door(kind: Kind) -> MethodRouter<Arc<Doors>> {
    post(
        async move |State(doors): State<Arc<Doors>>,
                    Extension(grant): Extension<Grant>,
                    headers: HeaderMap,
                    body: Body| { call(kind, &doors, &grant, &headers, body).await },
    )
}

/// Whoever is no client of gRPC gets a plain refusal; a client is told in its own way.
async fn call(kind: Kind, doors: &Doors, grant: &Grant, headers: &HeaderMap, body: Body) -> Result<Response, Refusal> {
    let fleet = doors.asker.fleet().ok_or(Refusal::NoSuchPath)?;
    let is_grpc = header(headers, CONTENT_TYPE.as_str()).split(['+', ';']).next() == Some(GRPC);
    if !is_grpc {
        return Err(Refusal::NotGrpc);
    }
    let answer = async {
        let bytes = body::bytes(headers, body, &doors.patience).await?;
        let (message, is_packed) = message(&bytes, header(headers, ENCODING))?;
        fleet.hear(kind, message, is_packed, sent_ns(headers), grant)
    };
    Ok(match answer.await {
        Ok(answer) => answered(&answer.encode_to_vec()),
        Err(refusal) => refused(&refusal),
    })
}

/// The only message of a call, and whether it is packed.
fn message<'b>(bytes: &'b [u8], encoding: &str) -> Result<(&'b [u8], bool), Refusal> {
    let malformed = |message: &str| Refusal::BadMessage { message: message.to_owned() };
    let Some(([packed, length @ ..], message)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(malformed("the call has no message"));
    };
    if message.len() != u32::from_be_bytes(*length) as usize {
        return Err(malformed("the call is not one whole message"));
    }
    match packed {
        0 => Ok((message, false)),
        1 => Ok((message, is_packed(encoding)?)),
        _ => Err(malformed("nobody knows how the message is packed")),
    }
}

fn answered(message: &[u8]) -> Response {
    let mut bytes = vec![0; PREFIX_BYTES];
    bytes[1..].copy_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend(message);
    let trailers = async { Some(Ok(HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]))) };
    let mut response = Body::new(Full::new(Bytes::from(bytes)).with_trailers(trailers)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response.extensions_mut().insert(routine());
    response
}

/// gRPC's numbers for what went wrong.
fn refused(refusal: &Refusal) -> Response {
    const INVALID_ARGUMENT: &str = "3";
    const PERMISSION_DENIED: &str = "7";
    const RESOURCE_EXHAUSTED: &str = "8";
    const UNAVAILABLE: &str = "14";
    let status = match refusal {
        Refusal::BodyTooLarge { .. } => RESOURCE_EXHAUSTED,
        Refusal::WrongRole { .. } | Refusal::ForeignCluster { .. } | Refusal::ForeignNode { .. } => PERMISSION_DENIED,
        Refusal::Busy | Refusal::Stopping | Refusal::SlowBody => UNAVAILABLE,
        _ => INVALID_ARGUMENT,
    };
    // A header has no line breaks and no letters beyond ASCII.
    let words: String =
        refusal.to_string().chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    let mut response = Body::empty().into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(STATUS, HeaderValue::from_static(status));
    headers.extend(HeaderValue::from_str(&words).ok().map(|words| (REASON, words)));
    let remark = Remark { refused: Some(refusal.code()), ..Remark::default() };
    response.extensions_mut().insert(remark);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_whole_message() {
        let framed = |packed: u8, length: u32, message: &[u8]| [&[packed][..], &length.to_be_bytes(), message].concat();
        assert_eq!(message(&framed(0, 3, b"abc"), "").unwrap(), (&b"abc"[..], false));
        assert_eq!(message(&framed(1, 3, b"abc"), "gzip").unwrap(), (&b"abc"[..], true));
        for wrong in [vec![], framed(0, 2, b"abc"), framed(0, 4, b"abc"), framed(2, 3, b"abc")] {
            assert!(message(&wrong, "gzip").is_err(), "{wrong:?}");
        }
        assert!(message(&framed(1, 3, b"abc"), "zstd").is_err());
    }
}
