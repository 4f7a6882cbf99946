//! Lines and inlined functions of one file: blazesym on top of an image of its debug information. To drop it is the only
//! way to give back what blazesym has collected.

use std::error::Error;
use std::fmt;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result};
use blazesym::helper::ElfResolver;
use blazesym::symbolize::{CodeInfo, FindSymOpts, ResolvedSym, Symbolize};
use gpuwhy_model::{Frame, FrameKind};

use super::image::{self, Source};
use super::{check, names};

pub struct DebugInformation {
    elf: ElfResolver,
    /// How long the image is.
    pub size: u64,
}

impl DebugInformation {
    pub fn open(source: Source<'_>, limit: u64) -> Result<Self> {
        let image = image::build(source, limit)?;
        guarded(|| {
            check::debug_information(&image.file)?;
            let path = format!("/proc/self/fd/{}", image.file.as_raw_fd());
            let elf = ElfResolver::open_with_debug_dirs(&path, [] as [&Path; 0]).context("open the image")?;
            Ok(Self { elf, size: image.size })
        })
    }

    /// The frames at an address, with mangled names or none and without the module.
    pub fn find(&self, address: u64) -> Result<Vec<Frame>> {
        guarded(|| match self.elf.find_sym(address, &FindSymOpts::CodeInfoAndInlined)? {
            Ok(symbol) => Ok(frames(&symbol)),
            Err(_reason) => Ok(Vec::new()),
        })
    }
}

/// The debug information is such that the reader cannot go on.
#[derive(Debug)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it makes the reader panic")
    }
}

impl Error for Panicked {}

/// blazesym and what it builds on take some properties of files for granted and panic where they do not hold.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Panicked.into()))
}

fn frames(symbol: &ResolvedSym<'_>) -> Vec<Frame> {
    // blazesym has the outermost inlined function first.
    let inlined = symbol.inlined.iter().rev().map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), true));
    inlined.chain([frame(symbol.name, symbol.code_info.as_deref(), false)]).collect()
}

fn frame(name: &str, code: Option<&CodeInfo<'_>>, is_inlined: bool) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: name.to_owned(),
        file: code.map(|code| names::cut(&code.to_path().to_string_lossy())).filter(|file| !file.is_empty()),
        // Line 0 is how compilers say that there is none.
        line: code.and_then(|code| code.line).filter(|line| *line > 0),
        module: None,
        address: 0,
        is_inlined,
    }
}
