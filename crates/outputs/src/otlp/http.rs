//! OpenTelemetry's protocol over HTTP: a POST, and a status that says whether to come again.

use std::time::Duration;

use rustls_native_certs::load_native_certs;
use ureq::http::StatusCode;
use ureq::http::header::RETRY_AFTER;

use super::queue::Batch;
use super::settings::OtlpSettings;
use super::{Failure, MOST_ANSWER, Transport, rejected};
use crate::client;

/// Statuses after which the same may be sent again.
const LATER: &[StatusCode] = &[
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

pub struct Http {
    client: ureq::Agent,
    settings: OtlpSettings,
}

impl Http {
    pub fn new(settings: OtlpSettings) -> Self {
        Self { client: client::trusting(&load_native_certs().certs), settings }
    }
}

impl Transport for Http {
    fn send(&self, batch: &Batch) -> Result<u64, Failure> {
        let address = format!("{}{}", self.settings.endpoint, batch.signal.path);
        let mut request = self.client.post(address).config().http_status_as_error(false).build();
        for (key, value) in &self.settings.headers {
            request = request.header(key, value);
        }
        let request = request.header("Content-Type", "application/x-protobuf").header("Content-Encoding", "gzip");
        let mut answer = request.send(&batch.body[..]).map_err(|error| Failure::Later(error.to_string(), None))?;
        match answer.status() {
            status if status.is_success() => {
                let body = answer.body_mut().with_config().limit(MOST_ANSWER as u64).read_to_vec();
                Ok(rejected(&body.unwrap_or_default()))
            }
            status if is_later(status) => {
                let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                Err(Failure::Later(status.to_string(), seconds.map(Duration::from_secs)))
            }
            status => Err(Failure::Never(status.to_string())),
        }
    }
}

pub fn is_later(status: StatusCode) -> bool {
    LATER.contains(&status)
}
