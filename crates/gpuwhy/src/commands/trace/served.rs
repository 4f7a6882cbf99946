//! `trace --prometheus` and `trace --serve`: ports that are open while a trace is taken.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use gpuwhy_metrics::Shared;
use gpuwhy_outputs::{Asker, Bounds, MetricsServer, Server, Settings};
use gpuwhy_questions::NoHost;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::print;

/// Who asks takes CPU time from the programs that are traced.
const AT_ONCE: usize = 2;

/// A port that is served until this is dropped.
pub struct Served {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// What is seen, for those who scrape.
    pub fn metrics(address: SocketAddr, registry: Shared) -> Result<Self> {
        let runtime = runtime()?;
        let server = runtime.block_on(MetricsServer::bind(address))?;
        print::note(&format!("metrics at {}", server.url()));
        Self::start("metrics", runtime, async |stop| server.serve(registry, stop).await)
    }

    /// All questions, to the trace as far as it is written. Nobody makes this host do anything from afar.
    pub fn doors(settings: Settings, file: &Path) -> Result<Self> {
        let runtime = runtime()?;
        let bounds = Bounds { at_once: AT_ONCE, ..Bounds::default() };
        let asker = Arc::new(Asker::new(vec![file.to_owned()], Arc::new(NoHost), bounds));
        let server = runtime.block_on(Server::bind(settings, asker))?;
        print::note(&format!("serving {}", server.url()));
        Self::start("doors", runtime, async |stop| server.serve(stop).await)
    }

    fn start(
        name: &str,
        runtime: Runtime,
        serve: impl AsyncFnOnce(CancellationToken) + Send + 'static,
    ) -> Result<Self> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let run = move || {
            ignore_closed_connections();
            runtime.block_on(serve(stopped));
            // A question that does not notice at once that it is withdrawn holds up nothing.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).context("start to serve")?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

impl Drop for Served {
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
