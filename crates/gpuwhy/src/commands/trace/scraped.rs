//! `trace --prometheus`: what is seen, for those who scrape.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use gpuwhy_metrics::Shared;
use gpuwhy_outputs::MetricsServer;
use tokio_util::sync::CancellationToken;

use crate::print;

/// A port that is served until this is dropped.
pub struct Scraped {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Scraped {
    /// Opens the port.
    pub fn start(address: SocketAddr, registry: Shared) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(MetricsServer::bind(address))?;
        print::note(&format!("metrics at {}", server.url()));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serve = move || {
            ignore_closed_connections();
            runtime.block_on(server.serve(registry, stopped));
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(serve).context("start the metrics")?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Scraped {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client that goes away ends its connection, not the trace.
fn ignore_closed_connections() {
    // SAFETY: the set is initialized before it is used, and the mask is that of this thread alone.
    unsafe {
        let mut signals = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
    }
}
