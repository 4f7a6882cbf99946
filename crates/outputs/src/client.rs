//! Asks others over HTTP, seldom and with little patience.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Who takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// One that trusts these.
pub fn trusting(trusted: &[CertificateDer<'_>]) -> ureq::Agent {
    let trusted = trusted.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(trusted.collect())))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    // A connection that is kept would be closed by the next time.
    let config = ureq::Agent::config_builder().max_idle_connections(0).timeout_global(Some(PATIENCE));
    config.tls_config(tls).build().new_agent()
}
