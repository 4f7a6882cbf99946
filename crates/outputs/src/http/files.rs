//! The dashboard's files, embedded. They hold no data: it is asked for by the page.

use std::io::Read;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

use super::Doors;
use crate::Refusal;

struct File {
    /// As it is asked for.
    path: &'static str,
    /// Another one when the file is another.
    tag: &'static str,
    gzip: &'static [u8],
}

const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

const NO_DASHBOARD: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>gpuwhy</title>
<h1>This gpuwhy was built without its dashboard</h1>
<p>Build it with <code>./dev web</code>, then build gpuwhy again.
<p>The HTTP API works all the same: <a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>
</html>
";

/// Whatever is no other path: a file of the dashboard, or nothing.
pub async fn file(State(doors): State<Arc<Doors>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let found = if doors.has_dashboard { find(uri.path()) } else { None };
    let is_start = doors.has_dashboard && uri.path() == "/";
    match (found, method) {
        (Some(file), Method::GET | Method::HEAD) => served(file, &headers),
        (None, Method::GET | Method::HEAD) if is_start => page(NO_DASHBOARD),
        (Some(_), _) => wrong_method(),
        (None, _) if is_start => wrong_method(),
        (None, _) => Refusal::NoSuchPath.into_response(),
    }
}

fn find(path: &str) -> Option<&'static File> {
    let path = if path == "/" { "/index.html" } else { path };
    FILES.iter().find(|file| file.path == path)
}

fn wrong_method() -> Response {
    let mut response = Refusal::WrongMethod.into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
    response
}

fn page(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

fn served(file: &File, asked: &HeaderMap) -> Response {
    let says =
        |name, what: &str| asked.get(name).and_then(|value| value.to_str().ok()).is_some_and(|v| v.contains(what));
    let is_same = says(header::IF_NONE_MATCH, file.tag);
    let takes_gzip = says(header::ACCEPT_ENCODING, "gzip");
    let mut response = match (is_same, takes_gzip) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => Body::from(file.gzip).into_response(),
        (false, false) => Body::from(unpacked(file.gzip)).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(file.path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep(file.path)));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", file.tag)) {
        headers.insert(header::ETAG, tag);
    }
    if takes_gzip && !is_same {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Our own file, so it unpacks.
fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = GzDecoder::new(gzip).read_to_end(&mut bytes);
    bytes
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// A name with a hash in it never means anything else; other names are asked about each time.
fn keep(path: &str) -> &'static str {
    let stem = path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
    match stem.rsplit_once('-') {
        Some((_, hash)) if hash.len() >= 6 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            "public, max-age=31536000, immutable"
        }
        _ => "no-cache",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use http_body_util::BodyExt;

    use super::*;

    const TEXT: &[u8] = b"console.log('why')";

    async fn asked(headers: &[(header::HeaderName, &'static str)]) -> (Response<()>, Vec<u8>) {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(TEXT).unwrap();
        let gzip: &'static [u8] = encoder.finish().unwrap().leak();
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let response = served(&File { path: "/app-0A1B2C3D.js", tag: "f00d", gzip }, &headers);
        let (parts, body) = response.into_parts();
        (Response::from_parts(parts, ()), body.collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_file_is_sent_packed_unpacked_or_not_at_all_as_the_client_wants() {
        let (packed, body) = asked(&[(header::ACCEPT_ENCODING, "br, gzip")]).await;
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert_eq!(packed.headers()[header::ETAG], "\"f00d\"");
        assert_eq!(unpacked(&body), TEXT);
        let (plain, body) = asked(&[]).await;
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        assert_eq!(body, TEXT);
        let (same, body) = asked(&[(header::IF_NONE_MATCH, "\"f00d\"")]).await;
        assert_eq!((same.status(), body.len()), (StatusCode::NOT_MODIFIED, 0));
    }

    #[test]
    fn only_names_with_a_hash_are_kept_for_good() {
        assert!(keep("/app-4F2KQ7AB.js").contains("immutable"));
        assert_eq!(keep("/index.html"), "no-cache");
        assert_eq!(keep("/icon.svg"), "no-cache");
        assert_eq!(keep("/app-x.js"), "no-cache");
    }

    #[test]
    fn every_embedded_file_unpacks_and_has_a_type() {
        for file in FILES {
            assert!(!unpacked(file.gzip).is_empty(), "{}", file.path);
            assert_ne!(kind(file.path), "application/octet-stream", "{}", file.path);
        }
    }
}
