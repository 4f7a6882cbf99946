//! TLS with rustls: certificate and key from PEM files, no client certificates.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{SettingsError, TlsFiles};

/// As TLS calls it.
pub const HTTP2: &[u8] = b"h2";

pub type Acceptor = TlsAcceptor;

/// Clients may choose HTTP/2 where it is spoken.
pub fn acceptor(files: &TlsFiles, has_http2: bool) -> Result<Acceptor, SettingsError> {
    let chain = CertificateDer::pem_file_iter(&files.certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| bad(&files.certificate, error))?;
    if chain.is_empty() {
        return Err(bad(&files.certificate, "there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, error))?;
    let mut settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| bad(&files.certificate, error))?;
    let http2 = has_http2.then(|| HTTP2.to_vec());
    settings.alpn_protocols = http2.into_iter().chain([b"http/1.1".to_vec()]).collect();
    Ok(TlsAcceptor::from(Arc::new(settings)))
}

fn bad(path: &Path, message: impl std::fmt::Display) -> SettingsError {
    SettingsError::Tls { path: path.into(), message: message.to_string() }
}
