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

use super::accept::Ends;
use super::grants::Role;
use super::{Doors, Grant};
use crate::{Refusal, clock};

pub async fn pass(State(doors): State<Arc<Doors>>, mut request: Request, next: Next) -> Response {
    let received_ns = clock::now_ns();
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let (peer, here) = match request.extensions().get::<Ends>() {
        Some(ends) => (ends.peer.ip().to_canonical(), ends.here.ip()),
        None => (nowhere, nowhere),
    };
    let admitted = doors.entrance.admit(request.uri(), request.headers(), here);
    let token = admitted.as_ref().ok().and_then(|grant| grant.token.clone());
    let is_known = token.is_some();
    let entry = doors.audit.entry(peer, request.method(), request.uri().path(), token.as_deref());
    let passed = doors.rate.take(peer, is_known, Instant::now()).and(admitted);
    let mut response = match passed.and_then(|grant| permitted(&doors, grant, request.uri().path())) {
        Ok(grant) => {
            request.extensions_mut().insert(grant);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    };
    protect(response.headers_mut());
    clock::stamp(response.headers_mut(), received_ns);
    entry.answered(response)
}

/// Whether somebody who has entered may go on. Whoever comes on a connection that is still open while the server ends has to
/// come again.
fn permitted(doors: &Doors, grant: Grant, path: &str) -> Result<Grant, Refusal> {
    if doors.asker.is_stopping() {
        return Err(Refusal::Stopping);
    }
    grant.permit(Role::of(path))?;
    Ok(grant)
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

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;
    use tower::ServiceExt;

    use super::super::{Patience, Plain, Server, Settings, router};
    use super::*;
    use crate::{Asker, Bounds, Fleet};

    #[tokio::test]
    async fn a_server_that_ends_asks_whoever_still_comes_to_come_again() {
        let asker = Arc::new(Asker::of_fleet(Fleet::default(), Bounds::default()));
        let settings = Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            plain: Plain::OnLoopback,
            token: None,
            tokens: None,
            allowed_hosts: Vec::new(),
            audit_log: Some("/dev/null".into()),
            rate: 50,
            has_dashboard: false,
            patience: Patience::default(),
        };
        let server = Server::bind(settings, Arc::clone(&asker)).await.unwrap();
        let answer = async |path: &str| {
            let request = Request::post(path).header(header::HOST, "localhost").body(Body::empty()).unwrap();
            let answer = router(Arc::clone(&server.doors)).oneshot(request).await.unwrap();
            (answer.status(), answer.headers().contains_key(header::RETRY_AFTER))
        };
        assert_eq!(answer("/v1/metrics").await, (StatusCode::UNSUPPORTED_MEDIA_TYPE, false));
        asker.stop();
        for path in ["/v1/metrics", "/v1/logs", "/mcp", "/api/v1/tools/nodes"] {
            assert_eq!(answer(path).await, (StatusCode::SERVICE_UNAVAILABLE, true), "{path}");
        }
    }
}
