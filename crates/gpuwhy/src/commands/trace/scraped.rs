//! `trace --prometheus`: what is seen, for those who scrape.

use std::net::SocketAddr;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_metrics::{Registry, Shared, families};
use gpuwhy_model::Explanation;
use gpuwhy_outputs::MetricsServer;
use tokio_util::sync::CancellationToken;

use crate::print;
use crate::top::{Asking, Pace};

/// The last minute of the trace is explained.
const PACE: Pace = Pace { span: Duration::from_secs(60), every: Duration::from_secs(15) };

/// A port that is served until this is dropped.
pub struct Scraped {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    _asking: Asking,
}

impl Scraped {
    /// Opens the port. What is found in `file` is told beside what `registry` has.
    pub fn start(address: SocketAddr, file: &Path, registry: Shared) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(MetricsServer::bind(address))?;
        print::note(&format!("metrics at {}", server.url()));
        let stop = CancellationToken::new();
        let (stopped, told) = (stop.clone(), registry.clone());
        let serve = move || {
            ignore_closed_connections();
            runtime.block_on(server.serve(registry, stopped));
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(serve).context("start the metrics")?;
        let asking = Asking::findings(file.to_owned(), PACE, move |found| tell(found, &mut told.lock()));
        Ok(Self { stop, thread: Some(thread), _asking: asking })
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

fn tell(explanation: &Explanation, registry: &mut Registry) {
    for family in [&families::GPU_IDLE, &families::GPU_IDLE_LEAST, &families::GPU_IDLE_MOST, &families::FINDING] {
        registry.forget(family, |_| true);
    }
    for gpu in &explanation.gpus {
        let (device, [least, most]) = (gpu.device.to_string(), gpu.interval);
        registry.set(&families::GPU_IDLE, &[&device], gpu.idle_share);
        registry.set(&families::GPU_IDLE_LEAST, &[&device], least);
        registry.set(&families::GPU_IDLE_MOST, &[&device], most);
    }
    for finding in explanation.findings.iter().filter(|finding| finding.is_problem) {
        let pid = finding.victim.pid.to_string();
        let labels = [finding.cause.as_str(), finding.severity.as_str(), &pid, &finding.victim.comm];
        registry.set(&families::FINDING, &labels, finding.impact.share);
    }
}
