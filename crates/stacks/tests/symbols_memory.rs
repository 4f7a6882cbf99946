//! How much memory the symbols of many large libraries take. `--nocapture` shows the numbers.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gpuwhy_stacks::symbols::{Limits, Symbolizer};
use object::LittleEndian;
use object::elf::{FileHeader64, SHF_EXECINSTR};
use object::read::elf::{FileHeader, SectionHeader};

const DIRECTORIES: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
const LIBRARIES: usize = 50;
const ADDRESSES: u64 = 200;

#[test]
fn fifty_libraries_stay_within_the_limit() {
    const LIMIT: u64 = 64 << 20;
    let libraries = largest_libraries();
    assert!(libraries.len() >= 10, "this test needs a system with libraries");
    let mut symbolizer = Symbolizer::new(Limits { bytes: LIMIT, ..Limits::default() });
    let (before, started) = (resident(), Instant::now());
    let (mut asked, mut named) = (0, 0);
    for library in &libraries {
        let file = symbolizer.file(library, library).unwrap();
        for address in addresses(library) {
            asked += 1;
            named += u64::from(!symbolizer.native(file, address, true)[0].function.is_empty());
            assert!(symbolizer.memory() <= LIMIT);
        }
    }
    let grown = resident().saturating_sub(before);
    println!(
        "{} libraries, {asked} addresses, {named} with names, {:?}; {} MiB resident more, {} MiB of them known; {:?}",
        libraries.len(),
        started.elapsed(),
        grown >> 20,
        symbolizer.memory() >> 20,
        symbolizer.failures(),
    );
    assert!(named > 0);
    assert!(grown < 2 * LIMIT, "{} MiB resident", grown >> 20);
}

fn largest_libraries() -> Vec<PathBuf> {
    let entries = DIRECTORIES.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(".so"));
    let mut files: Vec<_> = files.filter(|path| !path.is_symlink() && !addresses(path).is_empty()).collect();
    files.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
    files.truncate(LIBRARIES);
    files
}

/// Addresses all over the code of a library.
fn addresses(path: &Path) -> Vec<u64> {
    let contents = fs::read(path).unwrap_or_default();
    let Ok(header) = FileHeader64::<LittleEndian>::parse(&*contents) else { return Vec::new() };
    let sections = header.sections(LittleEndian, &*contents).unwrap();
    let code = sections.iter().filter(|section| section.sh_flags(LittleEndian).0 & SHF_EXECINSTR.0 != 0);
    let Some(largest) = code.max_by_key(|section| section.sh_size(LittleEndian)) else { return Vec::new() };
    let (start, size) = (largest.sh_addr(LittleEndian), largest.sh_size(LittleEndian));
    (0..ADDRESSES).map(|index| start + size / ADDRESSES * index).collect()
}

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
