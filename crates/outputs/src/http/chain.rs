//! The way of every request: who is it, put it on record, is it too much, and then what it asks for. In this order, so that
//! whatever is refused is on record.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{self, HeaderMap};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Doors;
use super::accept::Ends;
use crate::clock;

pub async fn pass(State(doors): State<Arc<Doors>>, request: Request, next: Next) -> Response {
    let received_ns = clock::now_ns();
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let (peer, here) = match request.extensions().get::<Ends>() {
        Some(ends) => (ends.peer.ip().to_canonical(), ends.here.ip()),
        None => (nowhere, nowhere),
    };
    let admitted = doors.entrance.admit(request.uri(), request.headers(), here);
    let is_known = matches!(admitted, Ok(true));
    let entry = doors.audit.entry(peer, request.method(), request.uri().path(), is_known);
    let passed = doors.rate.take(peer, is_known, Instant::now()).and(admitted);
    let mut response = match passed {
        Ok(_) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    protect(response.headers_mut());
    clock::stamp(response.headers_mut(), received_ns);
    entry.answered(response)
}

/// A page may load what this server has and nothing else, and nobody keeps data.
fn protect(headers: &mut HeaderMap) {
    const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
        form-action 'none'; frame-ancestors 'none'";
    let always = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in always {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
