//! What `mcp --http`, `dashboard` and `trace --serve` have in common: how a port is opened, and to whom.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use gpuwhy_outputs::{Asker, Bounds, Patience, Plain, Server, Settings, TlsFiles, Token};
use gpuwhy_store::Trace;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::newest_trace;
use crate::host::ThisHost;
use crate::print;

/// Who may connect, and how.
#[derive(Args)]
pub struct Security {
    /// The server's certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve without encryption.
    #[arg(long, conflicts_with = "tls_cert")]
    insecure_no_tls: bool,
    /// The token that clients have to send, in a file [default: the environment variable GPUWHY_TOKEN].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A name by which clients may call this server, beside its address.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Put requests on record in this file rather than on standard error.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Requests a second that one client may send; four times as many at once.
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
}

impl Security {
    /// Opens the port and serves until a signal comes.
    pub fn serve(&self, address: SocketAddr, plain: Plain, has_dashboard: bool, asker: Arc<Asker>) -> Result<()> {
        let settings = self.settings(address, plain, has_dashboard)?;
        until_signal(async |stop| {
            let server = Server::bind(settings, asker).await?;
            let what = if has_dashboard { "" } else { "mcp" };
            print::note(&format!("serving {}{what}; stop with Ctrl-C", server.url()));
            server.serve(stop).await;
            Ok(())
        })
    }

    /// Whether anything is said of it, but for how many requests are too many.
    pub fn is_given(&self) -> bool {
        let Self { tls_cert, tls_key, insecure_no_tls, token_file, allow_host, audit_log, rate: _ } = self;
        let files = [tls_cert, tls_key, token_file, audit_log];
        *insecure_no_tls || !allow_host.is_empty() || files.into_iter().any(Option::is_some)
    }

    pub fn settings(&self, address: SocketAddr, plain: Plain, has_dashboard: bool) -> Result<Settings> {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        Ok(Settings {
            address,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            plain: if self.insecure_no_tls { Plain::Anywhere } else { plain },
            token: token(self.token_file.as_deref())?,
            tokens: None,
            allowed_hosts: self.allow_host.clone(),
            audit_log: self.audit_log.clone(),
            rate: self.rate,
            has_dashboard,
            patience: Patience::default(),
        })
    }
}

/// What clients have to know, or a client has to show.
pub fn token(file: Option<&Path>) -> Result<Option<Token>> {
    match (file, std::env::var("GPUWHY_TOKEN")) {
        (Some(file), _) => Ok(Some(Token::read(file)?)),
        (None, Ok(text)) => Ok(Some(Token::new(&text).context("GPUWHY_TOKEN")?)),
        (None, Err(std::env::VarError::NotPresent)) => Ok(None),
        (None, Err(error)) => Err(error).context("GPUWHY_TOKEN"),
    }
}

/// What is asked: these traces, or the newest one here.
pub fn asker(named: Vec<PathBuf>) -> Result<Arc<Asker>> {
    let files = if named.is_empty() { vec![newest_trace()?] } else { named };
    for file in &files {
        // A file that cannot be read is told now, not to the first who asks.
        Trace::open(file)?;
    }
    Ok(Arc::new(Asker::new(files, Arc::new(ThisHost::default()), Bounds::default())))
}

/// An address to listen on: a number and a port, or localhost and a port. No host at all could mean any.
pub fn parse_address(text: &str) -> Result<SocketAddr> {
    let number = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    match number.as_deref().unwrap_or(text).parse() {
        Ok(address) => Ok(address),
        Err(_) => bail!("it is not an address and a port, such as 127.0.0.1:8080 or [::1]:8080"),
    }
}

/// Runs something that ends when it is told to, which SIGINT and SIGTERM do.
pub fn until_signal<T>(run: impl AsyncFnOnce(CancellationToken) -> Result<T>) -> Result<T> {
    // A client that goes away ends its connection, not the server.
    // SAFETY: changes what a signal does; no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::spawn(signalled(stop.clone())?);
        run(stop).await
    });
    // A question that does not notice at once that it is withdrawn holds up nothing.
    runtime.shutdown_background();
    result
}

fn signalled(stop: CancellationToken) -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_no_address() {
        assert_eq!(parse_address("localhost:80").unwrap(), parse_address("127.0.0.1:80").unwrap());
        assert!(parse_address("[::1]:80").unwrap().ip().is_loopback());
        for text in [":8080", "8080", "", "*:80", "localhost", "example.com:80", "localhost:99999"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
