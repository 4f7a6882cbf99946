//! Debug information that was moved out of a file into one of its own: where distributions put it, by build id or by name.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::elf::{self, Section};
use super::open;

/// Where debug files lie, in the root of the process and in ours.
const DIRECTORIES: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// A debug file is looked for by its checksum only if it is not longer than this, since all of it has to be read.
const CHECKSUM_LIMIT: u64 = 512 << 20;

/// Opens the debug file that belongs to a file.
pub fn find(file: &File, sections: &[Section], seen_as: &Path, root: &Path) -> Option<File> {
    let id = elf::build_id(file, sections);
    let link = elf::debug_link(file, sections);
    let roots = [root, Path::new("/")];
    let roots = &roots[..if root == Path::new("/") { 1 } else { 2 }];

    let by_id = id.as_deref().and_then(|id| {
        let paths = id_paths(id);
        let candidates = roots.iter().flat_map(|root| paths.iter().filter_map(|path| open::below(root, path)));
        candidates.into_iter().find(|candidate| has_id(candidate, id))
    });
    by_id.or_else(|| {
        let (name, checksum) = link?;
        let paths = link_paths(seen_as, &name);
        let candidates = roots.iter().flat_map(|root| paths.iter().filter_map(|path| open::below(root, path)));
        candidates.into_iter().find(|candidate| match &id {
            Some(id) => has_id(candidate, id),
            None => checksum_of(candidate) == Some(checksum),
        })
    })
}

fn id_paths(id: &[u8]) -> Vec<PathBuf> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let Some((directory, name)) = hex.split_at_checked(2).filter(|(_, name)| !name.is_empty() && name.len() < 200)
    else {
        return Vec::new();
    };
    DIRECTORIES.iter().map(|debug| format!("{debug}/.build-id/{directory}/{name}.debug").into()).collect()
}

fn link_paths(seen_as: &Path, name: &str) -> Vec<PathBuf> {
    let directory = seen_as.parent().unwrap_or(Path::new("/"));
    let below = directory.strip_prefix("/").unwrap_or(directory);
    let beside = [directory.join(".debug").join(name), directory.join(name)];
    beside.into_iter().chain(DIRECTORIES.iter().map(|debug| Path::new(debug).join(below).join(name))).collect()
}

fn has_id(candidate: &File, id: &[u8]) -> bool {
    elf::sections(candidate).ok().and_then(|sections| elf::build_id(candidate, &sections)).as_deref() == Some(id)
}

/// The CRC-32 that `.gnu_debuglink` names.
fn checksum_of(file: &File) -> Option<u32> {
    let length = file.metadata().ok()?.len();
    let mut left = usize::try_from(length).ok().filter(|_| length <= CHECKSUM_LIMIT)?;
    let (table, mut buffer) = (checksum_table(), vec![0; 1 << 16]);
    let (mut checksum, mut offset) = (u32::MAX, 0);
    while left > 0 {
        let part = &mut buffer[..left.min(1 << 16)];
        file.read_exact_at(part, offset).ok()?;
        for byte in &*part {
            checksum = checksum >> 8 ^ table[usize::from(checksum as u8 ^ byte)];
        }
        left -= part.len();
        offset += part.len() as u64;
    }
    Some(!checksum)
}

fn checksum_table() -> [u32; 256] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    std::array::from_fn(|index| {
        (0..8).fold(index as u32, |value, _| if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"123456789").unwrap();
        assert_eq!(checksum_of(&file), Some(0xcbf4_3926));
    }

    #[test]
    fn paths_are_those_where_distributions_put_debug_files() {
        assert_eq!(id_paths(&[0xab, 0x01, 0x02])[0], Path::new("/usr/lib/debug/.build-id/ab/0102.debug"));
        assert!(id_paths(&[0xab]).is_empty());
        let paths = link_paths(Path::new("/opt/lib/x.so"), "x.debug");
        for path in ["/opt/lib/x.debug", "/opt/lib/.debug/x.debug", "/usr/lib/debug/opt/lib/x.debug"] {
            assert!(paths.iter().any(|found| found == Path::new(path)), "{path}");
        }
    }
}
