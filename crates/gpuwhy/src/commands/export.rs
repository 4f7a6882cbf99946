//! `gpuwhy export`: a trace for other tools.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use gpuwhy_exports::{ExportError, FORMATS, Format, Holds, Out, VIEWS, View};
use gpuwhy_questions::questions::stacks::Of;
use gpuwhy_questions::{Asked, Control, NoHost, Part, Traces};
use gpuwhy_store::StoreError;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::nodes::{OtherHosts, fetched};
use super::{When, merge, trace_or_newest};
use crate::print;
use crate::top::register;

/// Write a trace as another tool reads it.
#[derive(Args)]
pub struct Export {
    /// The trace [default: the newest gpuwhy-*.db here]. It may still be written.
    file: Option<PathBuf>,
    /// The trace.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    db: Option<PathBuf>,
    /// The format.
    #[arg(long, value_parser = formats())]
    format: String,
    /// The file to write, or - for stdout [default: the trace's name with the format's ending]. There must be none of that name.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Whose stacks, in a flame graph and in folded stacks [default: calls].
    #[arg(long, value_enum)]
    of: Option<Of>,
    /// Which view, in formats that hold one [default: cuda_events].
    #[arg(long, value_parser = views())]
    view: Option<String>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    hosts: OtherHosts,
}

fn formats() -> PossibleValuesParser {
    let value = |format: &Format| PossibleValue::new(format.name).help(format!("for {}", format.read_by));
    PossibleValuesParser::new(FORMATS.iter().map(value))
}

fn views() -> PossibleValuesParser {
    PossibleValuesParser::new(VIEWS.iter().map(|view| view.name))
}

impl Export {
    pub fn run(self) -> Result<ExitCode> {
        let Some(format) = Format::find(&self.format) else { bail!("there is no format {:?}", self.format) };
        if self.of.is_some() && format.holds != Holds::OneKindOfStacks {
            bail!("--of is for formats of one kind of stacks; {} has all that it can hold", format.name);
        }
        if self.view.is_some() && format.holds != Holds::OneView {
            bail!("--view is for formats of one view; {} has all that it can hold", format.name);
        }
        let Some(nodes) = self.hosts.named()? else {
            return self.export(format, &trace_or_newest(self.db.as_ref(), self.file.as_ref())?);
        };
        if self.db.is_some() || self.file.is_some() {
            bail!("other hosts have their own traces; `merge` puts this host's and theirs into one file");
        }
        if self.out.is_none() {
            bail!("name the file to write with --out");
        }
        let folder = tempfile::tempdir()?;
        let traces = fetched(&nodes, folder.path())?;
        let merged = folder.path().join("merged.db");
        merge::merge(&traces, &merged)?;
        self.export(format, &merged)
    }

    fn export(&self, format: &Format, file: &Path) -> Result<ExitCode> {
        match self.out.clone() {
            Some(out) if out == Path::new("-") => self.write(format, file, &mut BufWriter::new(io::stdout()))?,
            out => {
                let out = out.unwrap_or_else(|| file.with_extension(format.extension));
                self.write_file(format, file, &out)?;
                print::note(&format!("{} is for {}", out.display(), format.read_by));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The file is there as a whole or not at all.
    fn write_file(&self, format: &Format, file: &Path, out: &Path) -> Result<()> {
        let exists = || StoreError::Exists { path: out.to_owned() };
        if out.exists() {
            bail!(exists());
        }
        let place = out.parent().filter(|place| !place.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Others may read it, unless the user's mask says that they may not.
        let mode = Permissions::from_mode(0o666);
        let written = tempfile::Builder::new().permissions(mode).tempfile_in(place);
        let written = written.with_context(|| format!("write {}", out.display()))?;
        let mut buffered: BufWriter<&File> = BufWriter::with_capacity(1 << 18, written.as_file());
        self.write(format, file, &mut buffered)?;
        drop(buffered);
        match written.persist_noclobber(out) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => bail!(exists()),
            Err(error) => Err(error.error).with_context(|| format!("write {}", out.display())),
        }
    }

    fn write(&self, format: &Format, file: &Path, out: &mut Out<'_>) -> Result<()> {
        let is_shown = io::stderr().is_terminal();
        let control =
            if is_shown { Control { progress: Arc::new(show), ..Control::default() } } else { Control::default() };
        for signal in [SIGINT, SIGTERM] {
            register(signal, &control.cancelled)?;
        }
        let traces = Traces::new([file.to_owned()]);
        let asked = Asked { control, ..Asked::new(&traces, &NoHost) };
        let part: Part = self.when.part();
        let view = self.view.as_deref().and_then(View::find).unwrap_or(&VIEWS[0]);
        let stacks_of = self.of.unwrap_or_default();
        let export = gpuwhy_exports::Export { asked: &asked, part: &part, stacks_of, view };
        let written = format.write(&export, out);
        if is_shown {
            clear();
        }
        written.map_err(|error| match error {
            // It knows what can be done about it.
            ExportError::Ask(error) => error.into(),
            other => other.into(),
        })
    }
}

/// How far it is, on one line of the terminal.
fn show(done: f64, what: &str) {
    const WIDTH: usize = 30;
    let full = (done.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    let _ = write!(io::stderr(), "\r\x1b[K[{}{}] {what}", "#".repeat(full), " ".repeat(WIDTH - full));
}

fn clear() {
    let _ = write!(io::stderr(), "\r\x1b[K");
}
