//! Functions of the kernel and its modules, from `/proc/kallsyms`.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::names;

/// Symbols have no size here: one ends where the next begins. No function of the kernel is longer than this.
const LONGEST_FUNCTION: u64 = 256 << 10;

/// How many symbols there are at most; a kernel with all its modules has some 300,000.
const MOST_SYMBOLS: usize = 2_000_000;

const READ_AT_ONCE: usize = 64 << 10;

pub struct KernelSymbols {
    symbols_path: PathBuf,
    modules_path: PathBuf,
    /// By address.
    symbols: Vec<Symbol>,
    /// All names one after the other: there are hundreds of thousands.
    names: String,
    /// Names of modules; the first, which is empty, stands for the kernel itself.
    modules: Vec<String>,
    /// What the list of modules was when the symbols were read.
    read_with: Option<u64>,
}

/// What is no code has no name: it only ends the function before it.
struct Symbol {
    address: u64,
    name_start: u32,
    name_length: u16,
    module: u16,
}

/// A function of the kernel, and the module that it is of unless it is the kernel's own.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelFunction {
    pub name: String,
    pub module: Option<String>,
}

impl Default for KernelSymbols {
    fn default() -> Self {
        Self::new("/proc/kallsyms".into(), "/proc/modules".into())
    }
}

impl KernelSymbols {
    pub fn new(symbols_path: PathBuf, modules_path: PathBuf) -> Self {
        Self {
            symbols_path,
            modules_path,
            symbols: Vec::new(),
            names: String::new(),
            modules: Vec::new(),
            read_with: None,
        }
    }

    /// Reads the symbols again if modules have come or gone since. Says whether it did.
    pub fn refresh(&mut self) -> Result<bool> {
        let mut hasher = DefaultHasher::new();
        // A kernel that knows no modules has no such file.
        fs::read(&self.modules_path).unwrap_or_default().hash(&mut hasher);
        let modules = Some(hasher.finish());
        if self.read_with == modules {
            return Ok(false);
        }
        self.read_with = modules;
        self.read()?;
        Ok(true)
    }

    pub fn find(&self, address: u64) -> Option<KernelFunction> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let nearest = self.symbols.get(after.checked_sub(1)?)?.address;
        let aliases = self.symbols[..after].iter().rev().take_while(|symbol| symbol.address == nearest);
        // The list has the usual name of an address first, and aliases after it.
        let symbol = aliases.filter(|symbol| symbol.name_length > 0).last()?;
        let name = self.names.get(symbol.name_start as usize..)?.get(..usize::from(symbol.name_length))?;
        let module = self.modules.get(usize::from(symbol.module)).filter(|module| !module.is_empty());
        (address - nearest < LONGEST_FUNCTION)
            .then(|| KernelFunction { name: name.to_owned(), module: module.cloned() })
    }

    fn read(&mut self) -> Result<()> {
        let path = self.symbols_path.display().to_string();
        let file = File::open(&self.symbols_path).with_context(|| format!("open {path}"))?;
        self.symbols.clear();
        self.names.clear();
        self.modules = vec![String::new()];
        // Line by line: the whole list has many megabytes.
        let (mut lines, mut line) = (BufReader::with_capacity(READ_AT_ONCE, file), String::new());
        for _ in 0..MOST_SYMBOLS {
            line.clear();
            if lines.read_line(&mut line).with_context(|| format!("read {path}"))? == 0 {
                break;
            }
            self.add(&line);
        }
        ensure!(!self.symbols.is_empty(), "{path} hides the kernel's addresses (kernel.kptr_restrict)");
        self.symbols.sort_by_key(|symbol| symbol.address);
        self.symbols.shrink_to_fit();
        self.names.shrink_to_fit();
        Ok(())
    }

    /// Adds what a line says: `ffffffff821d0da0 T schedule` or `ffffffffc0a01000 t nv_open\t[nvidia]`.
    fn add(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).filter(|at| *at > 0)
        else {
            return;
        };
        let (Some(kind), Some(name)) = (words.next(), words.next()) else { return };
        let module = words.next().unwrap_or_default().trim_matches(['[', ']']);
        let name = if matches!(kind, "t" | "T" | "w" | "W") { cut(name) } else { "" };
        let (name_start, name_length) = (self.names.len() as u32, name.len() as u16);
        self.names.push_str(name);
        let module = self.module(cut(module));
        self.symbols.push(Symbol { address, name_start, name_length, module });
    }

    /// The number of a module. Its symbols stand together, the kernel's own come first.
    fn module(&mut self, name: &str) -> u16 {
        let is_new = !name.is_empty() && self.modules.last().is_none_or(|last| last != name);
        if is_new && self.modules.len() <= usize::from(u16::MAX) {
            self.modules.push(name.to_owned());
        }
        if name.is_empty() { 0 } else { (self.modules.len() - 1) as u16 }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(names::NAME_LIMIT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "ffffffff81000000 T _stext\n\
        ffffffff81000000 T _text\n\
        ffffffff81001000 T schedule\n\
        ffffffff81001000 t __pi_schedule\n\
        ffffffff81002000 D some_data\n\
        ffffffffc0a01000 t nv_open\t[nvidia]\n\
        ffffffffc0a01100 t nv_ioctl\t[nvidia]\n\
        nonsense\n";

    fn symbols(text: &str) -> (tempfile::TempDir, KernelSymbols) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("kallsyms"), text).unwrap();
        let symbols = KernelSymbols::new(directory.path().join("kallsyms"), directory.path().join("modules"));
        (directory, symbols)
    }

    #[test]
    fn an_address_belongs_to_the_function_that_begins_at_or_before_it() {
        let (_directory, mut symbols) = symbols(SYMBOLS);
        assert!(symbols.refresh().unwrap());
        for (address, expected) in [
            (0xffff_ffff_8100_1000, Some(("schedule", None))),
            (0xffff_ffff_8100_1fff, Some(("schedule", None))),
            (0xffff_ffff_8100_2000, None),
            (0xffff_ffff_80ff_ffff, None),
            (0xffff_ffff_c0a0_1001, Some(("nv_open", Some("nvidia")))),
            (0xffff_ffff_c0a0_1100, Some(("nv_ioctl", Some("nvidia")))),
            (0xffff_ffff_c0f0_0000, None),
        ] {
            let found = symbols.find(address);
            let found = found.as_ref().map(|found| (found.name.as_str(), found.module.as_deref()));
            assert_eq!(found, expected, "{address:x}");
        }
    }

    #[test]
    fn a_module_that_is_loaded_later_is_seen() {
        let (directory, mut symbols) = symbols("ffffffff81001000 T schedule\n");
        assert!(symbols.refresh().unwrap());
        assert!(!symbols.refresh().unwrap());
        fs::write(directory.path().join("kallsyms"), SYMBOLS).unwrap();
        fs::write(directory.path().join("modules"), "nvidia 100 0 - Live 0xffffffffc0a01000\n").unwrap();
        assert!(symbols.refresh().unwrap());
        assert_eq!(symbols.find(0xffff_ffff_c0a0_1001).unwrap().module.as_deref(), Some("nvidia"));
    }

    #[test]
    fn hidden_addresses_are_an_error_that_says_so() {
        let (_directory, mut symbols) = symbols("0000000000000000 T schedule\n");
        let error = symbols.refresh().unwrap_err();
        assert!(error.to_string().contains("kptr_restrict"), "{error:#}");
        assert_eq!(symbols.find(0xffff_ffff_8100_1000), None);
    }
}
