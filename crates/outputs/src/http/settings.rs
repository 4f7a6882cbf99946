//! Where to listen and what is demanded of clients.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use super::{Patience, Token, Tokens};

pub struct Settings {
    pub address: SocketAddr,
    pub tls: Option<TlsFiles>,
    pub plain: Plain,
    /// The token that is good for everything.
    pub token: Option<Token>,
    pub tokens: Option<Tokens>,
    /// Names, beside those of the address, by which clients may call this server.
    pub allowed_hosts: Vec<String>,
    /// Where requests are put on record; standard error if nowhere else.
    pub audit_log: Option<PathBuf>,
    /// Requests a second and client.
    pub rate: u32,
    pub has_dashboard: bool,
    pub patience: Patience,
}

/// PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// When connections need no encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    Never,
    OnLoopback,
    Anywhere,
}

#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("{address} would be served without encryption")]
    NoTls { address: SocketAddr },
    #[error("{address} can be reached from other machines and there is no token")]
    NoToken { address: SocketAddr },
    #[error("a token has at least {} characters, all of them visible ASCII", Token::LEAST)]
    BadToken,
    #[error("read the token from {}: {source}", path.display())]
    TokenFile { path: PathBuf, source: io::Error },
    #[error("{}: line {line}, column {column}: {message}", path.display())]
    Tokens { path: PathBuf, line: usize, column: usize, message: String },
    #[error("{}: {message}", path.display())]
    Tls { path: PathBuf, message: String },
    #[error("open the audit log {}: {source}", path.display())]
    Audit { path: PathBuf, source: io::Error },
    #[error("listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
}

impl SettingsError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoTls { .. } => "give --tls-cert and --tls-key, or say --insecure-no-tls",
            Self::NoToken { .. } => {
                "give --token-file FILE or the environment variable GPUWHY_TOKEN, or listen on 127.0.0.1"
            }
            Self::BadToken => "make one: openssl rand -hex 32",
            Self::Bind { .. } => "choose another address",
            Self::TokenFile { .. } | Self::Tokens { .. } | Self::Tls { .. } | Self::Audit { .. } => return None,
        })
    }
}

impl Settings {
    /// Nothing is open to other machines by mistake.
    pub fn check(&self) -> Result<(), SettingsError> {
        let address = self.address;
        let is_local = address.ip().to_canonical().is_loopback();
        let may_be_plain = match self.plain {
            Plain::Never => false,
            Plain::OnLoopback => is_local,
            Plain::Anywhere => true,
        };
        if self.tls.is_none() && !may_be_plain {
            return Err(SettingsError::NoTls { address });
        }
        if self.token.is_none() && self.tokens.is_none() && !is_local {
            return Err(SettingsError::NoToken { address });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str, plain: Plain, token: Option<&str>) -> Settings {
        Settings {
            address: address.parse().unwrap(),
            tls: None,
            plain,
            token: token.map(|token| Token::new(token).unwrap()),
            tokens: None,
            allowed_hosts: Vec::new(),
            audit_log: None,
            rate: 50,
            has_dashboard: false,
            patience: Patience::default(),
        }
    }

    #[test]
    fn plain_connections_have_to_be_wanted() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let never = settings(address, Plain::Never, Some("0123456789abcdef")).check();
            assert!(matches!(never, Err(SettingsError::NoTls { .. })), "{address}");
        }
        assert!(settings("127.0.0.1:0", Plain::OnLoopback, None).check().is_ok());
        assert!(settings("[::1]:0", Plain::OnLoopback, None).check().is_ok());
    }

    #[test]
    fn every_address_that_is_not_loopback_needs_a_token() {
        for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "[::ffff:10.0.0.1]:0", "128.0.0.1:0"] {
            let open = settings(address, Plain::Anywhere, None).check();
            assert!(matches!(open, Err(SettingsError::NoToken { .. })), "{address}");
            assert!(settings(address, Plain::Anywhere, Some("0123456789abcdef")).check().is_ok(), "{address}");
        }
    }
}
