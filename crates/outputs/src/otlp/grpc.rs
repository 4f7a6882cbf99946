//! OpenTelemetry's protocol over gRPC: a call is a POST over HTTP/2, its message comes behind five bytes, and its status behind
//! the answer.

use std::error::Error;
use std::time::Duration;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls_native_certs::load_native_certs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};

use super::http::is_later;
use super::messages::{RetryInfo, Status};
use super::queue::Batch;
use super::settings::{OtlpSettings, decoded};
use super::{Failure, MOST_ANSWER, Transport, rejected};
use crate::client::{self, PATIENCE};

/// Before each message: whether it is packed, and how long it is.
const PREFIX_BYTES: usize = 5;
const PACKED: u8 = 1;
/// The status of a call in which all went well.
const OK: usize = 0;

/// How each status is called, and whether the same may be sent again after it, as OpenTelemetry's protocol has it.
const STATUSES: &[(&str, Again)] = &[
    ("OK", Again::Never),
    ("CANCELLED", Again::Later),
    ("UNKNOWN", Again::Never),
    ("INVALID_ARGUMENT", Again::Never),
    ("DEADLINE_EXCEEDED", Again::Later),
    ("NOT_FOUND", Again::Never),
    ("ALREADY_EXISTS", Again::Never),
    ("PERMISSION_DENIED", Again::Never),
    ("RESOURCE_EXHAUSTED", Again::IfItSays),
    ("FAILED_PRECONDITION", Again::Never),
    ("ABORTED", Again::Later),
    ("OUT_OF_RANGE", Again::Later),
    ("UNIMPLEMENTED", Again::Never),
    ("INTERNAL", Again::Never),
    ("UNAVAILABLE", Again::Later),
    ("DATA_LOSS", Again::Later),
    ("UNAUTHENTICATED", Again::Never),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Never,
    Later,
    /// When it comes with a time to wait.
    IfItSays,
}

type Unreached = Box<dyn Error + Send + Sync>;

pub struct Grpc {
    settings: OtlpSettings,
    tls: Option<TlsConnector>,
}

/// What came back, whatever it says.
struct Answer {
    status: StatusCode,
    head: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

impl Grpc {
    pub fn new(settings: OtlpSettings) -> Result<Self, rustls::Error> {
        let trusted = if settings.is_tls { load_native_certs().certs } else { Vec::new() };
        Self::trusting(settings, &trusted)
    }

    fn trusting(settings: OtlpSettings, trusted: &[CertificateDer<'_>]) -> Result<Self, rustls::Error> {
        let tls = settings.is_tls.then(|| client::tls(trusted, b"h2")).transpose()?.map(TlsConnector::from);
        Ok(Self { settings, tls })
    }

    async fn call(&self, batch: &Batch) -> Result<Answer, Unreached> {
        let OtlpSettings { host, port, .. } = &self.settings;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        match &self.tls {
            Some(tls) => self.ask(tls.connect(ServerName::try_from(host.clone())?, stream).await?, batch).await,
            None => self.ask(stream, batch).await,
        }
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        batch: &Batch,
    ) -> Result<Answer, Unreached> {
        let request = self.request(batch)?;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // It ends with the runtime.
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MOST_ANSWER).collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(Answer { status: head.status, head: head.headers, body: body.to_bytes(), trailers })
    }

    fn request(&self, batch: &Batch) -> Result<Request<Full<Bytes>>, Unreached> {
        let OtlpSettings { host, port, is_tls, headers, .. } = &self.settings;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let scheme = if *is_tls { "https" } else { "http" };
        let address = format!("{scheme}://{host}:{port}{}", batch.signal.method);
        let mut message = Vec::with_capacity(PREFIX_BYTES + batch.body.len());
        message.push(PACKED);
        message.extend(u32::try_from(batch.body.len())?.to_be_bytes());
        message.extend(&batch.body);
        let mut request = Request::post(address).body(Full::new(message.into()))?;
        let own = request.headers_mut();
        own.insert(USER_AGENT, HeaderValue::from_static(concat!("gpuwhy/", env!("CARGO_PKG_VERSION"))));
        own.extend(headers.clone());
        own.insert(TE, HeaderValue::from_static("trailers"));
        own.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        own.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        own.insert("grpc-timeout", HeaderValue::try_from(format!("{}m", PATIENCE.as_millis()))?);
        Ok(request)
    }
}

impl Transport for Grpc {
    /// With a connection of its own, as one that is kept would be closed by the next time, and a runtime of its own, with
    /// which all ends that belongs to it.
    fn send(&self, batch: &Batch) -> Result<u64, Failure> {
        let later = |error: &dyn Error| Failure::Later(in_words(error), None);
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(|error| later(&error))?;
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, self.call(batch)).await });
        // A name that is still looked up is not waited for.
        runtime.shutdown_background();
        answer.map_err(|late| later(&late))?.map_err(|error| later(&*error))?.outcome()
    }
}

/// An error and what it came from.
fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        words = format!("{words}: {deeper}");
        cause = deeper.source();
    }
    words
}

impl Answer {
    fn outcome(&self) -> Result<u64, Failure> {
        if self.status != StatusCode::OK {
            let what = format!("{}, which is no answer of gRPC", self.status);
            return Err(if is_later(self.status) { Failure::Later(what, None) } else { Failure::Never(what) });
        }
        let code = self.said("grpc-status").and_then(|code| code.parse::<usize>().ok());
        if code == Some(OK) {
            return Ok(rejected(self.body.get(PREFIX_BYTES..).unwrap_or_default()));
        }
        let known = code.and_then(|code| STATUSES.get(code));
        let &(name, again) = known.unwrap_or(&("no status that gRPC has", Again::Never));
        let what = match self.said("grpc-message").map(decoded) {
            Some(message) if !message.is_empty() => format!("{name}: {message}"),
            _ => name.to_owned(),
        };
        let wish = self.wish();
        Err(match again {
            Again::Later => Failure::Later(what, wish),
            Again::IfItSays if wish.is_some() => Failure::Later(what, wish),
            Again::IfItSays | Again::Never => Failure::Never(what),
        })
    }

    /// Of an answer without a body, what is said behind it comes before it.
    fn said(&self, name: &str) -> Option<&str> {
        self.trailers.get(name).or_else(|| self.head.get(name))?.to_str().ok()
    }

    /// How long it wants to be left alone, if it says so.
    fn wish(&self) -> Option<Duration> {
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let bytes =
            GeneralPurpose::new(&base64::alphabet::STANDARD, config).decode(self.said("grpc-status-details-bin")?);
        let details = Status::decode(&bytes.ok()?[..]).ok()?.details;
        let info = details.into_iter().find(|detail| detail.type_url == RetryInfo::TYPE)?;
        let delay = RetryInfo::decode(&info.value[..]).ok()?.retry_delay.unwrap_or_default();
        let (seconds, nanos) = (u64::try_from(delay.seconds).unwrap_or(0), u32::try_from(delay.nanos).unwrap_or(0));
        Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into())))
    }
}

#[cfg(test)]
mod tests;
