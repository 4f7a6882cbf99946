//! Asks others over HTTP, seldom and with little patience.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Who takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// One that trusts these. A connection that is kept would be closed by the next time.
pub fn trusting(trusted: &[CertificateDer<'_>]) -> ureq::Agent {
    keeping(trusted, 0)
}

/// The same for somebody who is asked every second, over so many connections that are kept.
pub fn keeping(trusted: &[CertificateDer<'_>], connections: usize) -> ureq::Agent {
    let trusted = trusted.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(trusted.collect())))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    let config = ureq::Agent::config_builder().max_idle_connections(connections).timeout_global(Some(PATIENCE));
    config.tls_config(tls).build().new_agent()
}

/// TLS for a connection of our own that trusts these and speaks this protocol.
pub fn tls(trusted: &[CertificateDer<'_>], protocol: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned().map(CertificateDer::into_owned));
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}
