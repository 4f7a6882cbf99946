//! The functions that a file's symbols name, compact and by address.
//!
//! `.symtab` is used where it is, else what the file exports. Only symbols of code count. One without a size, as assembly
//! has them, reaches to the next one, but never beyond its section: no name is guessed.

use anyhow::{Context, Result, bail, ensure};
use object::elf::{STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};

use super::elf::{self, Section};
use super::image::Source;

const TABLES: [&str; 2] = [".symtab", ".dynsym"];

const SYMBOL_SIZE: usize = 24;

/// How many functions that begin before an address are asked whether they contain it.
const MOST_NESTED: usize = 16;

pub struct SymbolTable {
    functions: Vec<Function>,
    /// All names, one after the other.
    names: Vec<u8>,
}

struct Function {
    address: u64,
    size: u32,
    name_start: u32,
    name_length: u16,
}

impl SymbolTable {
    /// Reads the best table that one of the sources has, if it takes no more than `limit` bytes.
    pub fn read(sources: &[Source<'_>], limit: u64) -> Result<Self> {
        let tables = TABLES.iter().flat_map(|table| sources.iter().map(move |source| (*source, *table)));
        for (source, name) in tables {
            let Some(section) = source.section(name) else { continue };
            let table = Self::of(source, section, limit)?;
            if !table.functions.is_empty() {
                return Ok(table);
            }
        }
        bail!("there are none")
    }

    pub fn memory(&self) -> u64 {
        (self.functions.capacity() * size_of::<Function>() + self.names.capacity()) as u64
    }

    /// The mangled name of the function at an address.
    pub fn find(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let before = self.functions[..after].iter().rev().take(MOST_NESTED);
        let function = before.into_iter().find(|function| address - function.address < u64::from(function.size))?;
        let name = self.names.get(function.name_start as usize..)?.get(..usize::from(function.name_length))?;
        str::from_utf8(name).ok()
    }

    fn of(source: Source<'_>, section: &Section, limit: u64) -> Result<Self> {
        let names = source.sections.get(section.link as usize).context("a table of symbols without names")?;
        let symbols = elf::contents(source.file, section, limit)?;
        let names = elf::contents(source.file, names, limit.saturating_sub(symbols.len() as u64))?;
        ensure!(u32::try_from(names.len()).is_ok(), "its names are too long");
        let code: Vec<_> = source.sections.iter().filter(|section| section.is_code()).collect();
        let mut symbols: Vec<_> = symbols
            .as_chunks::<SYMBOL_SIZE>()
            .0
            .iter()
            .filter_map(|bytes| Symbol::read(bytes, &names, &code))
            .collect();
        symbols.sort_unstable();
        symbols.dedup_by_key(|symbol| symbol.address);
        Ok(Self::compact(&symbols))
    }

    fn compact(symbols: &[Symbol<'_>]) -> Self {
        let mut table = Self { functions: Vec::with_capacity(symbols.len()), names: Vec::new() };
        let mut covered = 0;
        for (index, symbol) in symbols.iter().enumerate() {
            let mut end = symbol.end;
            if end == symbol.address {
                // A label in a function is no function.
                if symbol.address < covered {
                    continue;
                }
                let next = symbols.get(index + 1).map_or(u64::MAX, |next| next.address);
                end = next.min(symbol.section_end);
            } else {
                covered = covered.max(end);
            }
            table.functions.push(Function {
                address: symbol.address,
                size: u32::try_from(end - symbol.address).unwrap_or(u32::MAX),
                name_start: table.names.len() as u32,
                name_length: symbol.name.len() as u16,
            });
            table.names.extend_from_slice(symbol.name);
        }
        table.functions.shrink_to_fit();
        table.names.shrink_to_fit();
        table
    }
}

/// A symbol of code. Of those at one address the best comes first: the longest, and then the plainest name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Symbol<'a> {
    address: u64,
    shortness: std::cmp::Reverse<u64>,
    underscores: usize,
    name_length: usize,
    name: &'a [u8],
    /// Where it ends, which is where it begins if its size is not known.
    end: u64,
    section_end: u64,
}

impl<'a> Symbol<'a> {
    fn read(bytes: &[u8; SYMBOL_SIZE], names: &'a [u8], code: &[&Section]) -> Option<Self> {
        let kind = bytes[4] & 0xf;
        [STT_FUNC.0, STT_GNU_IFUNC.0, STT_NOTYPE.0].contains(&kind).then_some(())?;
        (elf::u16_at(bytes, 6) != 0).then_some(())?;
        let (address, size) = (elf::u64_at(bytes, 8), elf::u64_at(bytes, 16));
        let section_end = code.iter().find_map(|section| {
            let end = section.address.checked_add(section.size)?;
            (section.address..end).contains(&address).then_some(end)
        })?;
        let name = names.get(elf::u32_at(bytes, 0) as usize..)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        // A name that begins with a dollar sign says on some machines whether code or data follows.
        (!name.is_empty() && !name.starts_with(b"$") && name.len() <= usize::from(u16::MAX)).then_some(())?;
        Some(Self {
            address,
            shortness: std::cmp::Reverse(size),
            underscores: name.iter().take_while(|byte| **byte == b'_').count(),
            name_length: name.len(),
            name,
            end: address.saturating_add(size).min(section_end),
            section_end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, address: u64, size: u64) -> Symbol<'_> {
        Symbol {
            address,
            shortness: std::cmp::Reverse(size),
            underscores: name.bytes().take_while(|byte| *byte == b'_').count(),
            name_length: name.len(),
            name: name.as_bytes(),
            end: address + size,
            section_end: 0x2000,
        }
    }

    fn found(mut symbols: Vec<Symbol<'_>>, addresses: &[u64]) -> Vec<Option<String>> {
        symbols.sort_unstable();
        symbols.dedup_by_key(|symbol| symbol.address);
        let table = SymbolTable::compact(&symbols);
        addresses.iter().map(|address| table.find(*address).map(str::to_owned)).collect()
    }

    #[test]
    fn a_symbol_without_a_size_reaches_to_the_next_or_to_the_end_of_its_section() {
        let symbols = vec![symbol("first", 0x1000, 0), symbol("second", 0x1010, 0)];
        let found = found(symbols, &[0xfff, 0x1000, 0x100f, 0x1010, 0x1fff, 0x2000]);
        let (first, second) = (Some("first".into()), Some("second".into()));
        assert_eq!(found, [None, first.clone(), first, second.clone(), second, None]);
    }

    #[test]
    fn a_label_or_a_function_inside_of_a_function_does_not_hide_the_rest_of_it() {
        let symbols = vec![symbol("outer", 0x1000, 0x40), symbol("label", 0x1010, 0), symbol("inner", 0x1020, 8)];
        let found = found(symbols, &[0x1011, 0x1020, 0x1028, 0x1040]);
        assert_eq!(found, [Some("outer".into()), Some("inner".into()), Some("outer".into()), None]);
    }

    #[test]
    fn the_plainest_of_several_names_is_told() {
        let symbols = vec![symbol("__write", 0x1000, 8), symbol("write", 0x1000, 8), symbol("__libc_write", 0x1000, 8)];
        assert_eq!(found(symbols, &[0x1004]), [Some("write".into())]);
    }
}
