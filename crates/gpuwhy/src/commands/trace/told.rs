//! `trace --prometheus` and `trace --otlp`: what is seen and found, for the tools of others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_metrics::{Family, Registry, Shared, families};
use gpuwhy_model::{Explanation, Finding, RankLateness};
use gpuwhy_outputs::{Otlp, OtlpSettings};
use gpuwhy_questions::units::count;
use gpuwhy_questions::{Asked, Cited, NoHost, Traces, cited_records};

use super::chains::MOST_RECORDS;
use super::found::{Found, News};
use super::served::Served;
use crate::print;
use crate::top::{Asking, Pace};

/// The last minute of the trace is explained.
const PACE: Pace = Pace { span: Duration::from_secs(60), every: Duration::from_secs(15) };

/// Until this is dropped, others are told.
pub struct Told {
    asking: Option<Asking>,
    otlp: Option<Arc<Otlp>>,
    _scraped: Option<Served>,
}

impl Told {
    /// What is found in `file` is told beside what `registry` has.
    pub fn start(
        prometheus: Option<SocketAddr>,
        otlp: Option<&OtlpSettings>,
        file: &Path,
        registry: Shared,
    ) -> Result<Self> {
        let scraped = prometheus.map(|address| Served::metrics(address, registry.clone())).transpose()?;
        let start = |settings: &OtlpSettings| Otlp::start(settings.clone(), registry.clone()).map(Arc::new);
        let otlp = otlp.map(start).transpose().context("start telling an OpenTelemetry receiver")?;
        let since_ns = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0);
        let sent = otlp.clone().map(|otlp| (otlp, Mutex::new(Found::new(since_ns))));
        let traces = Traces::new([file.to_owned()]);
        let tell = move |explanation: &Explanation| {
            measure(explanation, &mut registry.lock());
            if let Some((otlp, found)) = &sent {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                let News { entries, spans } = found.news(explanation, |finding| cited(&traces, finding));
                otlp.tell(entries, spans);
            }
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
            print::note(&format!("OpenTelemetry: {lost} items were not taken, {sent} were"));
        }
    }
}

/// A finding is told also where what it cites cannot be read.
fn cited(traces: &Traces, finding: &Finding) -> Cited {
    cited_records(&Asked::new(traces, &NoHost), finding, MOST_RECORDS).unwrap_or_else(|error| {
        tracing::warn!("what {} cites cannot be read: {error}", finding.cause);
        Cited::default()
    })
}

/// What is measured anew with each answer.
const ASKED: &[&Family] = &[
    &families::GPU_IDLE,
    &families::GPU_IDLE_LEAST,
    &families::GPU_IDLE_MOST,
    &families::FINDING,
    &families::COLLECTIVE_LAG,
    &families::COLLECTIVE_LAG_SHARE,
];

fn measure(explanation: &Explanation, registry: &mut Registry) {
    for family in ASKED {
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
    lateness(&explanation.ranks, registry);
}

/// A communicator whose operations are in graphs as well has several rows for a rank.
fn lateness(ranks: &[RankLateness], registry: &mut Registry) {
    let mut late: BTreeMap<[String; 4], (f64, u64)> = BTreeMap::new();
    for one in ranks {
        let RankLateness { pid, comm, communicator, rank, .. } = one;
        let labels = [pid.to_string(), comm.clone(), communicator.clone(), rank.to_string()];
        let (share, at_a_time_ns) = late.entry(labels).or_default();
        (*share, *at_a_time_ns) = (*share + one.share, one.at_a_time_ns.max(*at_a_time_ns));
    }
    for (labels, (share, at_a_time_ns)) in &late {
        let labels = labels.each_ref().map(String::as_str);
        registry.set(&families::COLLECTIVE_LAG, &labels, *at_a_time_ns as f64 / 1e9);
        registry.set(&families::COLLECTIVE_LAG_SHARE, &labels, *share);
    }
}
