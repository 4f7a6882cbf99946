//! From an address in a process to the address that tools print for the file.

use super::Mapping;
use anyhow::{Context, Result};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, elf};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the code of a process's files is in memory.
#[derive(Clone, Debug)]
pub struct Addresses {
    mappings: Vec<Mapping>,
    segments: HashMap<PathBuf, Vec<Segment>>,
}

/// An address in a file's own address space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeAddress {
    pub module: PathBuf,
    pub address: u64,
}

/// A part of a file that is loaded.
#[derive(Clone, Copy, Debug)]
struct Segment {
    file_offset: u64,
    bytes: u64,
    address: u64,
}

impl Addresses {
    pub(super) fn new(maps: &[Mapping]) -> Result<Self> {
        let mappings: Vec<_> = maps.iter().filter(|mapping| mapping.is_executable).cloned().collect();
        let mut segments = HashMap::new();
        for path in mappings.iter().filter_map(|mapping| mapping.path.as_ref()) {
            segments.insert(path.clone(), read_segments(path)?);
        }
        Ok(Self { mappings, segments })
    }

    /// `None` for an address that is in no file's code.
    pub fn of(&self, ip: u64) -> Option<CodeAddress> {
        let mapping = self.mappings.iter().find(|mapping| mapping.range.contains(&ip))?;
        let path = mapping.path.as_ref()?;
        let offset = ip - mapping.range.start + mapping.file_offset;
        let address = self.segments.get(path)?.iter().find_map(|segment| segment.address_of(offset))?;
        Some(CodeAddress { module: path.clone(), address })
    }
}

impl Segment {
    fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = offset.checked_sub(self.file_offset)?;
        (inside < self.bytes).then_some(self.address + inside)
    }
}

fn read_segments(path: &Path) -> Result<Vec<Segment>> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let headers = elf::FileHeader64::<LittleEndian>::parse(&*bytes)
        .and_then(|header| header.program_headers(LittleEndian, &*bytes))
        .with_context(|| format!("read the program headers of {}", path.display()))?;
    let loaded = headers.iter().filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD);
    let segments = loaded.map(|header| Segment {
        file_offset: header.p_offset(LittleEndian),
        bytes: header.p_filesz(LittleEndian),
        address: header.p_vaddr(LittleEndian),
    });
    Ok(segments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_program_is_that_of_its_symbol() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let maps: Vec<Mapping> = maps.lines().map(|line| line.parse().unwrap()).collect();
        let addresses = Addresses::new(&maps).unwrap();
        let found = addresses.of(read_segments as fn(&Path) -> Result<Vec<Segment>> as usize as u64).unwrap();
        assert_eq!(found.module, std::env::current_exe().unwrap());
        assert!(symbol_addresses(&found.module).contains(&found.address), "{found:x?}");
        assert_eq!(addresses.of(8), None);
    }

    fn symbol_addresses(path: &Path) -> Vec<u64> {
        use object::{Object, ObjectSymbol};
        let bytes = fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let named = |symbol: &object::Symbol<'_, '_>| symbol.name().is_ok_and(|name| name.contains("read_segments"));
        file.symbols().filter(named).map(|symbol| symbol.address()).collect()
    }

    #[test]
    fn a_file_that_is_no_program_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        fs::write(&path, "text").unwrap();
        let error = read_segments(&path).unwrap_err();
        assert!(format!("{error:#}").contains("program headers"), "{error:#}");
    }
}
