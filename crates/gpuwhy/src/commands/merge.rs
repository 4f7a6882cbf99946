//! `gpuwhy merge`: what several hosts saw of one job, in one file and one time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::error::ErrorKind;
use gpuwhy_analysis::clocks::{self, Alignment, Meetings};
use gpuwhy_questions::units::duration;
use gpuwhy_store::{Part, Trace};
use gpuwhy_window::Scope;

use super::nodes::{OtherHosts, fetched};
use crate::print;

/// Put traces of several hosts into one file, with their clocks brought in line by the collective operations of their ranks.
#[derive(Args)]
pub struct Merge {
    /// The traces, those of --nodes after them. All times become those of the first one's host.
    #[arg(required_unless_present = "nodes")]
    files: Vec<PathBuf>,
    /// The file to write. There must be none of that name.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    hosts: OtherHosts,
}

impl Merge {
    pub fn run(self) -> Result<ExitCode> {
        if self.out.exists() {
            bail!(gpuwhy_store::StoreError::Exists { path: self.out });
        }
        if self.files.len() + self.hosts.count() < 2 {
            let few = "one trace is whole as it is; name at least two";
            crate::command_line().error(ErrorKind::TooFewValues, few).exit();
        }
        let mut traces: Vec<_> = self.files.iter().map(|file| (file.display().to_string(), file.clone())).collect();
        let folder = tempfile::tempdir()?;
        if let Some(nodes) = self.hosts.named()? {
            traces.extend(fetched(&nodes, folder.path())?);
        }
        merge(&traces, &self.out)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Merges traces, each with its name for people.
pub fn merge(traces: &[(String, PathBuf)], out: &Path) -> Result<()> {
    let mut hosts = Hosts::default();
    for (name, file) in traces {
        hosts.add(file).with_context(|| format!("read {name}"))?;
    }
    let aligned = clocks::align(&hosts.meetings);
    let parts = hosts.parts(traces.iter().map(|(_, file)| file), &aligned);
    let total = parts.len();
    gpuwhy_store::merge(&parts, out, |at| print::note(&format!("{} of {total}: {}", at + 1, traces[at].0)))?;
    hosts.tell(&aligned);
    Ok(())
}

/// The clocks that the files were written by.
#[derive(Default)]
struct Hosts {
    meetings: Vec<Meetings>,
    names: Vec<String>,
    /// Whose clock each file has.
    of_file: Vec<usize>,
    /// What was booted once has one clock.
    by_boot: BTreeMap<String, usize>,
}

impl Hosts {
    fn add(&mut self, file: &Path) -> Result<()> {
        let trace = Trace::open(file)?;
        let window = trace.window(&Scope::default())?;
        let boots: BTreeSet<&str> = window.sessions.iter().map(|session| session.boot_id.as_str()).collect();
        let meetings = clocks::meetings(&window);
        // A file that was merged has the time of its own first host.
        let boot = boots.first().filter(|boot| boots.len() == 1 && !boot.is_empty()).map(|boot| (*boot).to_owned());
        let known = boot.as_ref().and_then(|boot| self.by_boot.get(boot)).copied();
        let at = known.unwrap_or(self.meetings.len());
        if known.is_none() {
            self.meetings.push(Meetings::new());
            self.names.push(window.sessions.first().map_or_else(String::new, |session| session.host.clone()));
            self.by_boot.extend(boot.map(|boot| (boot, at)));
        }
        clocks::unite(&mut self.meetings[at], meetings);
        self.of_file.push(at);
        Ok(())
    }

    fn parts<'f>(&self, files: impl Iterator<Item = &'f PathBuf>, aligned: &[Option<Alignment>]) -> Vec<Part> {
        let part = |(file, &at): (&PathBuf, &usize)| Part {
            path: file.clone(),
            shift_ns: aligned[at].map_or(0, |Alignment { shift_ns, .. }| shift_ns),
            error_ns: aligned[at].map(|Alignment { error_ns, .. }| error_ns),
        };
        files.zip(&self.of_file).map(part).collect()
    }

    /// What was done to the clocks.
    fn tell(&self, aligned: &[Option<Alignment>]) {
        for (name, alignment) in self.names.iter().zip(aligned).skip(1) {
            print::note(&match *alignment {
                Some(Alignment { shift_ns, error_ns }) => format!(
                    "{name}: its clock was {} {}, known to within {}",
                    duration(shift_ns.unsigned_abs()),
                    if shift_ns > 0 { "behind" } else { "ahead" },
                    duration(error_ns)
                ),
                None => format!(
                    "{name}: no collective operation in common with the first host, so its times are left as they are and \
                     nothing is said about who came later"
                ),
            });
        }
    }
}
