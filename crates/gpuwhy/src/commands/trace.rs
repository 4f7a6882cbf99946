//! `gpuwhy trace`: capture.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use gpuwhy_agent::{CostOptions, Ended, Outcome, Signals, StackChoice, Target, TraceOptions, Watch, user_id};
use gpuwhy_capture::{AttachPath, Layers};
use gpuwhy_fleet::Outbox;
use gpuwhy_metrics::Shared;
use gpuwhy_model::{Label, Rung};
use gpuwhy_outputs::{FleetAddress, OtlpSettings, Plain, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};

use super::serving::{Security, parse_address};
use crate::top::{self, About, Viewing};
use crate::{findings, print};
use gpuwhy_questions::units::{count, parse_duration, parse_share, parse_size, share};

mod alerted;
mod chains;
mod fleet;
mod found;
mod lines;
mod notified;
mod served;
mod told;

use alerted::Alerted;
use fleet::Fleet;
use notified::Notified;
use served::Served;
use told::Told;

/// Capture CUDA calls until Ctrl-C, the end of the command, or the given time.
#[derive(Args)]
pub struct Trace {
    /// Trace this process and its descendants; may be given several times. Everybody when no target is named.
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,
    /// Trace the processes of this user (name or number).
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// Stop after this time: 500ms, 90s, 5m, 2h.
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// The trace file; a session is added to one that exists [default: gpuwhy-DATE-TIME.db].
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Keep the file under this size by deleting the oldest calls: 500MB, 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// The most that tracing may take from any thread: 1%, 0.5%; 0 for no limit. What is called too often for it is
    /// seen in short windows, and its counts are estimates that say so.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "1%")]
    budget: f64,
    /// How many stacks to take: as many as a small part of the budget pays for, none, or all that can be taken.
    #[arg(long, value_enum, default_value = "auto")]
    stacks: Stacks,
    /// Put every function that is called often on this rung of the governor's ladder.
    #[arg(long, value_enum, hide = true)]
    rung: Option<PinnedRung>,
    /// Give all processes of the trace a label; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// Take annotations (`gpuwhy annotate`) through a socket in this folder; `off` for none.
    #[arg(long, value_name = "FOLDER", default_value = gpuwhy_agent::annotations::FOLDER)]
    annotations: PathBuf,
    /// Serve metrics for Prometheus on this address while the trace is taken: 127.0.0.1:9464, or 0.0.0.0:9464 for
    /// everybody who can reach this machine.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    prometheus: Option<SocketAddr>,
    /// Answer questions on this address while the trace is taken, from other hosts (`query --nodes`) and from a browser:
    /// 127.0.0.1:9465, or 0.0.0.0:9465 with a token and TLS.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    security: Security,
    /// Send metrics, and what is found as log records and spans, to an OpenTelemetry receiver while the trace is taken:
    /// http://127.0.0.1:4318, or grpc://127.0.0.1:4317. OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_HEADERS,
    /// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME are heeded.
    #[arg(long, value_name = "URL", value_parser = parse_otlp)]
    otlp: Option<OtlpSettings>,
    /// Tell a fleet (`gpuwhy fleet serve`) each second what the workers of this host do, and what holds them up when others
    /// wait for them: https://fleet:9470. Its token is in the environment variable GPUWHY_FLEET_TOKEN.
    #[arg(long, value_name = "URL", value_parser = parse_fleet)]
    fleet: Option<String>,
    /// Which cluster this host is a part of.
    #[arg(long, value_name = "NAME", requires = "fleet", default_value = gpuwhy_fleet::UNNAMED)]
    cluster: String,
    /// What this host is called there [default: its host name].
    #[arg(long, value_name = "NAME", requires = "fleet")]
    node: Option<String>,
    /// Watch the limits in this file, and do what it says when one is broken: memory of a process, time off the CPU,
    /// how long calls take, causes that are found and more (docs/alerts.md).
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Print every kept call as a line of JSON.
    #[arg(long)]
    json: bool,
    /// When to show the live view.
    #[arg(long, value_enum, default_value = "auto")]
    live: Show,
    /// Which layer of the CUDA libraries to probe.
    #[arg(long, value_enum, default_value = "driver-first")]
    layer: Layer,
    /// Also trace what programs are told of InfiniBand and RoCE devices: ports that fail, for example (`rdma_events`).
    #[arg(long)]
    rdma_verbs: bool,
    /// Calls shorter than this are counted but get no row.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    keep_min: Duration,
    /// Memory for records on their way out of the kernel.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    ring_size: Option<u64>,
    /// Attach in this way instead of the best one the kernel has.
    #[arg(long, value_enum)]
    attach: Option<Attach>,
    /// Run this command and trace it; its exit code is passed on.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Show {
    /// On a terminal.
    Auto,
    /// Where there is no terminal, as text once a second.
    Always,
    Never,
}

#[derive(Clone, Copy, ValueEnum)]
enum Layer {
    /// The driver, and of the runtime what the driver does not show.
    DriverFirst,
    Driver,
    Runtime,
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stacks {
    Auto,
    None,
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum PinnedRung {
    Everything,
    SlowOnly,
    Bursts,
    Counters,
}

#[derive(Clone, Copy, ValueEnum)]
enum Attach {
    Session,
    Multi,
    Single,
}

impl Trace {
    pub fn run(self) -> Result<ExitCode> {
        if self.serve.is_none() && self.security.is_given() {
            bail!("options about TLS, tokens and requests are for --serve");
        }
        let alerted = self.rules.as_deref().map(Alerted::read).transpose()?;
        let mut options = self.options()?;
        options.alerts = alerted.as_ref().map(|alerted| alerted.shared.clone());
        let asking = alerted.as_ref().and_then(|alerted| alerted.ask(&options.out));
        let outcome = self.take(&options);
        drop(asking);
        alerted.into_iter().for_each(Alerted::finish);
        let outcome = outcome?;
        if self.json {
            lines::summary(&outcome)?;
        }
        print_summary(&outcome);
        // Who presses Ctrl-C wants to be out at once. `explain` finds the same later.
        if outcome.ended != Ended::Interrupted {
            findings::find_and_keep(&outcome.file, self.max_size);
        }
        Ok(match outcome.ended {
            Ended::CommandEnded(code) => ExitCode::from(code.clamp(0, 255) as u8),
            _ => ExitCode::SUCCESS,
        })
    }

    fn take(&self, options: &TraceOptions) -> Result<Outcome> {
        let tell = |registry| Told::start(self.prometheus, self.otlp.as_ref(), &options.out, registry);
        let _told = options.metrics.clone().map(tell).transpose()?;
        let settings = |address| self.security.settings(address, Plain::OnLoopback, true);
        let settings = self.serve.map(settings).transpose()?;
        let _served = settings.map(|settings| Served::doors(settings, &options.out)).transpose()?;
        let address = self.fleet.as_deref().map(|url| self.fleet_address(url)).transpose()?;
        let tell = |(address, outbox)| Fleet::start(address, outbox, &options.out);
        let _fleet = address.zip(options.digests.clone()).map(tell).transpose()?;
        let signals = Signals::default();
        let title = format!("gpuwhy trace to {}", display(&options.out));
        let about = About { title, file: options.out.clone(), budget: options.cost.budget, is_kept: true };
        if self.takes_screen() {
            let viewing = Viewing::start(&about, &signals)?;
            return gpuwhy_agent::trace(options, viewing.watch(), &signals);
        }
        top::stop_on_signals(&signals, &[SIGINT, SIGTERM, SIGHUP])?;
        top::register(SIGTSTP, &signals.suspend)?;
        gpuwhy_agent::trace(options, Notified::wrap(self.watch(&about)), &signals)
    }

    fn options(&self) -> Result<TraceOptions> {
        Ok(TraceOptions {
            out: self.out.clone().unwrap_or_else(default_file),
            target: Target {
                pids: self.pid.clone(),
                uid: self.user.as_deref().map(user_id).transpose()?,
                command: (!self.command.is_empty()).then(|| self.command.clone()),
                command_to_stderr: self.json,
            },
            duration: self.duration,
            max_size: self.max_size,
            layers: match self.layer {
                Layer::DriverFirst => Layers::DriverFirst,
                Layer::Driver => Layers::Driver,
                Layer::Runtime => Layers::Runtime,
                Layer::Both => Layers::Both,
            },
            fabric: self.rdma_verbs,
            attach_path: self.attach.map(|attach| match attach {
                Attach::Session => AttachPath::Session,
                Attach::Multi => AttachPath::Multi,
                Attach::Single => AttachPath::Single,
            }),
            ring_bytes: self.ring_size.map(|size| size as usize),
            keep_min: self.keep_min,
            labels: self.label.clone(),
            annotations: Some(self.annotations.clone()).filter(|folder| folder.as_os_str() != "off"),
            metrics: (self.prometheus.is_some() || self.otlp.is_some()).then(Shared::default),
            digests: self.fleet.is_some().then(Outbox::default),
            alerts: None,
            cost: CostOptions {
                budget: (self.budget > 0.0).then_some(self.budget),
                pinned: self.rung.map(|rung| match rung {
                    PinnedRung::Everything => Rung::Everything,
                    PinnedRung::SlowOnly => Rung::SlowOnly,
                    PinnedRung::Bursts => Rung::Bursts,
                    PinnedRung::Counters => Rung::Counters,
                }),
                stacks: match self.stacks {
                    Stacks::Auto => StackChoice::WithinBudget,
                    Stacks::None => StackChoice::None,
                    Stacks::All => StackChoice::All,
                },
            },
        })
    }

    fn fleet_address(&self, url: &str) -> Result<FleetAddress> {
        let token = std::env::var("GPUWHY_FLEET_TOKEN").ok().map(|text| Token::new(&text)).transpose();
        let host = || {
            std::fs::read_to_string("/proc/sys/kernel/hostname").map_or(String::new(), |name| name.trim().to_owned())
        };
        Ok(FleetAddress {
            url: url.to_owned(),
            cluster: self.cluster.clone(),
            node: self.node.clone().unwrap_or_else(host),
            token: token.context("GPUWHY_FLEET_TOKEN")?,
        })
    }

    fn shows(&self) -> bool {
        match self.live {
            Show::Auto => std::io::stdout().is_terminal() && self.command.is_empty(),
            Show::Always => true,
            Show::Never => false,
        }
    }

    /// A command writes to the terminal itself, so the view cannot have it.
    fn takes_screen(&self) -> bool {
        self.shows() && !self.json && self.command.is_empty() && top::has_terminal()
    }

    fn watch(&self, about: &About) -> Box<dyn Watch> {
        match (self.json, self.shows()) {
            (true, _) => Box::new(lines::Lines::default()),
            (false, true) => Box::new(top::Plain::new(about)),
            (false, false) => Box::new(Quiet),
        }
    }
}

/// Tells only what a person should know.
struct Quiet;

impl Watch for Quiet {
    fn note(&mut self, text: &str) {
        print::note(text);
    }
}

fn parse_otlp(endpoint: &str) -> Result<OtlpSettings, String> {
    OtlpSettings::new(endpoint, |name| std::env::var(name).unwrap_or_default())
}

fn parse_fleet(text: &str) -> Result<String, String> {
    let url = text.trim_end_matches('/');
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    match !host.is_empty() && !host.contains(['/', ' ']) {
        true => Ok(url.to_owned()),
        false => Err("it is no address of a fleet, such as https://fleet:9470".to_owned()),
    }
}

fn parse_label(text: &str) -> Result<Label, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok(Label { key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err("a label is a key and a value: team=vision".to_owned()),
    }
}

fn default_file() -> PathBuf {
    PathBuf::from(format!("gpuwhy-{}.db", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S")))
}

fn print_summary(outcome: &Outcome) {
    let totals = &outcome.totals;
    let mut text = format!(
        "{} calls in {:.1} s, {} kept in {}",
        count(totals.seen),
        totals.elapsed.as_secs_f64(),
        count(totals.stored),
        display(&outcome.file)
    );
    if totals.cost.most > 0.0 {
        text += &format!(
            "\ntracing took at most {} of a thread's time in any second, and {} of one CPU for itself",
            share(totals.cost.most),
            share(totals.cost.agent_mean())
        );
    }
    for sink in &totals.sinks {
        if let Some(why) = &sink.ended {
            text += &format!("\n{} ended early: {why}", sink.name);
        }
        if sink.lost_rows > 0 {
            text += &format!("\n{} missed {} rows", sink.name, count(sink.lost_rows));
        }
    }
    for (reason, lost) in totals.losses.iter() {
        text += &format!("\nlost {}: {} ({})", count(lost), reason.as_str(), reason.meaning());
    }
    if totals.seen == 0 {
        text += "\nno CUDA call was seen; `gpuwhy check` says which processes use CUDA and whether they can be seen";
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn display(path: &Path) -> String {
    print::safe(&path.to_string_lossy()).into_owned()
}
