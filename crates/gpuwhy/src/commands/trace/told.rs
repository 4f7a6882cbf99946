//! `trace --prometheus` and `trace --otlp`: what is seen and found, for the tools of others.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_metrics::{Registry, Shared, families};
use gpuwhy_model::Explanation;
use gpuwhy_outputs::{Otlp, OtlpSettings};
use gpuwhy_questions::units::count;

use super::found::Found;
use super::scraped::Scraped;
use crate::print;
use crate::top::{Asking, Pace};

/// The last minute of the trace is explained.
const PACE: Pace = Pace { span: Duration::from_secs(60), every: Duration::from_secs(15) };

/// Until this is dropped, others are told.
pub struct Told {
    asking: Option<Asking>,
    otlp: Option<Arc<Otlp>>,
    _scraped: Option<Scraped>,
}

impl Told {
    /// What is found in `file` is told beside what `registry` has.
    pub fn start(
        prometheus: Option<SocketAddr>,
        otlp: Option<&OtlpSettings>,
        file: &Path,
        registry: Shared,
    ) -> Result<Self> {
        let scraped = prometheus.map(|address| Scraped::start(address, registry.clone())).transpose()?;
        let start = |settings: &OtlpSettings| Otlp::start(settings.clone(), registry.clone()).map(Arc::new);
        let otlp = otlp.map(start).transpose().context("start telling an OpenTelemetry receiver")?;
        let sent = otlp.clone();
        let found = Mutex::new(Found::default());
        let tell = move |explanation: &Explanation| {
            measure(explanation, &mut registry.lock());
            let news = found.lock().unwrap_or_else(PoisonError::into_inner).news(explanation);
            sent.iter().for_each(|otlp| otlp.log(news.clone()));
        };
        Ok(Self { asking: Some(Asking::findings(file.to_owned(), PACE, tell)), otlp, _scraped: scraped })
    }
}

impl Drop for Told {
    /// Says what could not be told.
    fn drop(&mut self) {
        drop(self.asking.take());
        let sent = self.otlp.take().and_then(Arc::into_inner).map(Otlp::finish);
        if let Some(sent) = sent.filter(|sent| sent.lost > 0) {
            let (lost, sent) = (count(sent.lost), count(sent.sent));
            print::note(&format!("OpenTelemetry: {lost} points were not taken, {sent} were"));
        }
    }
}

fn measure(explanation: &Explanation, registry: &mut Registry) {
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
