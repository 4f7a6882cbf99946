//! The files that code comes from: each is open once, and of some the symbols are in memory at the moment.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, ensure};
use gpuwhy_model::Frame;

use super::debug::{DebugInformation, Panicked};
use super::image::{self, Source};
use super::names::{self, is_mangled};
use super::open::Identity;
use super::table::SymbolTable;
use super::{Failures, debug_file, elf};

/// One file, kept open so that it can be read when its process is gone.
pub struct KeptFile {
    pub identity: Identity,
    /// The path that the process sees.
    pub seen_as: String,
    /// When it was used last, in calls of the symbolizer and in trims.
    pub last_call: u64,
    pub last_trim: u64,
    file: File,
    /// Where the debug information is, if it is in a file of its own.
    debug_file: Option<File>,
    symbols: Slot<SymbolTable>,
    debug: Slot<Box<DebugInformation>>,
    /// What blazesym has collected for the file, as far as can be told.
    collected: u64,
}

/// Something that is read when it is first needed.
enum Slot<T> {
    Unread,
    Read(T),
    /// There is none, or it cannot be read.
    None,
}

impl KeptFile {
    pub fn new(file: File, identity: Identity, seen_as: &Path, root: &Path) -> Self {
        // A file that makes no sense has no debug file either; its addresses are told without names.
        let sections = elf::sections(&file).unwrap_or_default();
        Self {
            identity,
            debug_file: debug_file::find(&file, &sections, seen_as, root),
            seen_as: names::cut(&seen_as.to_string_lossy()),
            last_call: 0,
            last_trim: 0,
            file,
            symbols: Slot::Unread,
            debug: Slot::Unread,
            collected: 0,
        }
    }

    pub fn build_id(&self) -> Option<Vec<u8>> {
        elf::build_id(&self.file, &elf::sections(&self.file).ok()?)
    }

    /// How many bytes are in memory for the file.
    pub fn memory(&self) -> u64 {
        let symbols = self.symbols.get().map_or(0, SymbolTable::memory);
        symbols + self.debug.get().map_or(0, |debug| debug.size) + self.collected
    }

    /// Gives back the memory. What cannot be read is not tried again.
    pub fn close(&mut self) {
        self.symbols.close();
        self.debug.close();
        self.collected = 0;
    }

    /// The frames at an address, with readable names as far as they are known. There is always one.
    pub fn find(&mut self, address: u64, limit: u64, failures: &mut Failures) -> Vec<Frame> {
        let mut frames = self.find_lines(address, limit, failures);
        let mut outermost = frames.pop().unwrap_or_default();
        self.read_symbols(limit, failures);
        if let Some(symbol) = self.symbols.get().and_then(|symbols| symbols.find(address)) {
            // Compilers leave out the mangled names of functions that cannot be seen from elsewhere.
            if outermost.function.is_empty() || is_mangled(symbol) && !is_mangled(&outermost.function) {
                outermost.function = symbol.to_owned();
            }
        }
        frames.push(outermost);
        for frame in &mut frames {
            frame.function = names::readable(&frame.function);
            frame.module = Some(self.seen_as.clone());
        }
        frames
    }

    fn find_lines(&mut self, address: u64, limit: u64, failures: &mut Failures) -> Vec<Frame> {
        self.read_debug(limit, failures);
        let Slot::Read(debug) = &self.debug else { return Vec::new() };
        let before = private_memory();
        let found = debug.find(address);
        self.collected += private_memory().saturating_sub(before);
        let is_unusable = found.as_ref().is_err_and(|error| error.is::<Panicked>());
        if is_unusable || self.collected > limit {
            tracing::debug!(file = self.seen_as, is_unusable, self.collected, "no lines any more");
            failures.debug_information += 1;
            (self.debug, self.collected) = (Slot::None, 0);
        }
        found.inspect_err(|_| failures.addresses += 1).unwrap_or_default()
    }

    fn read_symbols(&mut self, limit: u64, failures: &mut Failures) {
        if matches!(self.symbols, Slot::Unread) {
            self.symbols = match self.with_sources(|sources| SymbolTable::read(sources, limit)) {
                Ok(symbols) => Slot::Read(symbols),
                Err(error) => {
                    tracing::debug!(file = self.seen_as, "no symbols: {error:#}");
                    failures.files += 1;
                    Slot::None
                }
            };
        }
    }

    fn read_debug(&mut self, limit: u64, failures: &mut Failures) {
        if matches!(self.debug, Slot::Unread) {
            let debug = self.with_sources(|sources| {
                image::debug_source(sources).map(|source| DebugInformation::open(source, limit)).transpose()
            });
            self.debug = match debug {
                Ok(Some(debug)) => Slot::Read(Box::new(debug)),
                Ok(None) => Slot::None,
                Err(error) => {
                    tracing::debug!(file = self.seen_as, "no lines: {error:#}");
                    failures.debug_information += 1;
                    Slot::None
                }
            };
        }
    }

    /// Does something with the file and its debug file as they are now, unless they have changed.
    fn with_sources<T>(&self, work: impl FnOnce(&[Source<'_>]) -> Result<T>) -> Result<T> {
        ensure!(Identity::of(&self.file)? == self.identity, "it has changed since it was opened");
        let sections = elf::sections(&self.file)?;
        let own = Source { file: &self.file, sections: &sections };
        let Some(file) = &self.debug_file else { return work(&[own]) };
        let sections = elf::sections(file)?;
        work(&[own, Source { file, sections: &sections }])
    }
}

impl<T> Slot<T> {
    fn get(&self) -> Option<&T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Unread | Self::None => None,
        }
    }

    fn close(&mut self) {
        if matches!(self, Self::Read(_)) {
            *self = Self::Unread;
        }
    }
}

/// How much memory of its own our process has, without files.
fn private_memory() -> u64 {
    const PAGE: u64 = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * PAGE
}
