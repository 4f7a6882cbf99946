//! `gpuwhy check`: what can be traced here.

mod bundle;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use gpuwhy_agent::{Check as Line, KernelFeature, PythonFrames, Report, UsesCuda};
use serde_json::json;

use crate::print;

/// Say what can be traced here: kernel and its features, privilege, probes, stacks, GPU, and every process that uses CUDA.
#[derive(Args)]
pub struct Check {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Exit with 3 when something needs mending.
    #[arg(long)]
    exit_code: bool,
    /// Also write all of it, facts about this machine and, with `--db`, how a trace went into a file of JSON, for somebody
    /// who is to help from afar. Neither environments nor command lines are in it, and secrets are struck out.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// The trace that the bundle tells of.
    #[arg(long, value_name = "FILE", requires = "bundle")]
    db: Option<PathBuf>,
}

impl Check {
    pub fn run(self) -> Result<ExitCode> {
        let report = gpuwhy_agent::check();
        if self.json {
            println!("{}", to_json(&report));
        } else {
            print_report(&report);
        }
        if let Some(file) = &self.bundle {
            bundle::write(file, &report, self.db.as_deref())?;
            print::note(&format!("{} can be read before it is sent", file.display()));
        }
        let code = if self.exit_code && report.found_problem() { 3 } else { 0 };
        Ok(ExitCode::from(code))
    }
}

fn print_report(report: &Report) {
    for line in &report.checks {
        anstream::println!("{} {:<10} {}", mark(line), line.name, print::safe(&line.detail));
        if let Some(hint) = &line.hint {
            anstream::println!("     {:<10} hint: {}", "", print::safe(hint));
        }
    }
    println!("\nfeatures of the kernel that tracing uses:");
    for feature in &report.features {
        print_feature(feature);
    }
    println!();
    if report.processes.is_empty() {
        println!("No process uses CUDA right now. One that starts during a trace is attached by itself.");
    }
    for process in &report.processes {
        print_process(process);
    }
}

fn mark(line: &Line) -> &'static str {
    match (line.ok, line.required) {
        (true, _) => "\x1b[32mok  \x1b[0m",
        (false, true) => "\x1b[31mFAIL\x1b[0m",
        (false, false) => "\x1b[33mnone\x1b[0m",
    }
}

fn print_feature(feature: &KernelFeature) {
    let KernelFeature { name, needs, without, .. } = feature;
    let why = feature.why.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
    let since = feature.since.map(|since| format!(", Linux {since}")).unwrap_or_default();
    match feature.ok {
        Some(true) => anstream::println!("\x1b[32mon  \x1b[0m {name:<18} {needs}"),
        Some(false) => {
            let color = if feature.required { "\x1b[31m" } else { "\x1b[33m" };
            anstream::println!("{color}off \x1b[0m {name:<18} {needs}{since}{}", print::safe(&why));
            println!("     {:<18} without: {without}", "");
        }
        None => anstream::println!("\x1b[33m?   \x1b[0m {name:<18} could not be tried{}", print::safe(&why)),
    }
}

fn print_process(process: &UsesCuda) {
    println!("process {} ({})", process.pid, print::safe(&process.comm));
    for (path, library, functions) in &process.attachable {
        println!("     {}: {library}, {functions} functions", print::safe(&path.to_string_lossy()));
    }
    match &process.python {
        Some(PythonFrames::Walked { version }) => println!("     Python {version}: frames can be walked"),
        Some(PythonFrames::NotWalked { why }) => {
            anstream::println!("     \x1b[33mPython's frames cannot be walked:\x1b[0m {}", print::safe(why));
        }
        None => {}
    }
    if let Some(why) = &process.not_attached {
        anstream::println!("     \x1b[33muses CUDA but is not attached:\x1b[0m {}", print::safe(why));
    }
}

pub fn to_json(report: &Report) -> serde_json::Value {
    let checks: Vec<_> = report
        .checks
        .iter()
        .map(|line| {
            json!({"name": line.name, "ok": line.ok, "required": line.required, "detail": line.detail, "hint": line.hint})
        })
        .collect();
    let processes: Vec<_> = report
        .processes
        .iter()
        .map(|process| {
            let attachable: Vec<_> = process
                .attachable
                .iter()
                .map(|(path, library, functions)| {
                    json!({"path": path.to_string_lossy(), "library": library, "functions": functions})
                })
                .collect();
            json!({
                "pid": process.pid, "comm": process.comm, "attachable": attachable,
                "not_attached": process.not_attached, "python": process.python.as_ref().map(python_to_json),
            })
        })
        .collect();
    json!({
        "can_trace": report.can_trace(), "checks": checks,
        "features": report.features.iter().map(feature_to_json).collect::<Vec<_>>(), "processes": processes,
    })
}

fn feature_to_json(feature: &KernelFeature) -> serde_json::Value {
    json!({
        "name": feature.name, "ok": feature.ok, "required": feature.required, "needs": feature.needs,
        "since": feature.since, "without": feature.without, "why": feature.why,
    })
}

fn python_to_json(python: &PythonFrames) -> serde_json::Value {
    match python {
        PythonFrames::Walked { version } => json!({"version": version, "is_walked": true, "why_not": null}),
        PythonFrames::NotWalked { why } => json!({"version": null, "is_walked": false, "why_not": why}),
    }
}
