//! What the dynamic loader will load: libraries of the GPU that no process has mapped yet.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_capture::interpreter;

/// Names under which programs ask the loader for the GPU's libraries.
const NAMES: &[&str] = &["libcuda.so.1", "libcudart.so.12", "libcudart.so.13"];

const CACHE: &str = "/etc/ld.so.cache";

/// Where programs find the GPU's libraries: in folders that are searched, and where the loader's cache says.
pub fn installed() -> Vec<PathBuf> {
    let folders = library_folders(std::env::var("LD_LIBRARY_PATH").ok().as_deref());
    let mut paths: Vec<PathBuf> =
        folders.iter().flat_map(|folder| NAMES.iter().map(move |name| folder.join(name))).collect();
    paths.extend(cached(&std::fs::read(CACHE).unwrap_or_default()));
    paths
}

fn library_folders(ld_library_path: Option<&str>) -> Vec<PathBuf> {
    const STANDARD: &[&str] = &[
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/compat",
        "/usr/lib/wsl/lib",
    ];
    let named = ld_library_path.unwrap_or_default().split(':').filter(|folder| !folder.is_empty());
    named.chain(STANDARD.iter().copied()).map(PathBuf::from).collect()
}

/// The GPU's libraries in the loader's cache: a header, entries of which each has the places of a name and of a path, and
/// all texts.
fn cached(cache: &[u8]) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // An older cache may stand before it.
    let Some(start) = cache.windows(MAGIC.len()).position(|part| part == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let number = |at: usize| Some(u32::from_le_bytes(cache.get(at..at + 4)?.try_into().ok()?) as usize);
    let text = |at: usize| {
        let rest = cache.get(number(at)?..)?;
        std::str::from_utf8(rest.split(|&byte| byte == 0).next()?).ok()
    };
    let most = cache.len() / ENTRY;
    let entries = (0..number(MAGIC.len()).unwrap_or(0).min(most)).map(|entry| HEADER + entry * ENTRY);
    let ours = entries.filter(|entry| text(entry + 4).is_some_and(|name| NAMES.contains(&name)));
    ours.filter_map(|entry| text(entry + 8)).map(PathBuf::from).collect()
}

/// The libraries that a command is linked against. Only the loader runs, and not the command.
pub fn linked(command: &Path) -> Vec<PathBuf> {
    let Some(program) = found_in_path(command) else { return Vec::new() };
    let Some(loader) = interpreter(&program) else { return Vec::new() };
    let Ok(output) = Command::new(loader).arg("--list").arg(&program).output() else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(path_in).collect()
}

/// `libm.so.6 => /lib/libm.so.6 (0x00007f...)`.
fn path_in(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once("=> ")?;
    let (path, _) = path.rsplit_once(" (0x")?;
    path.starts_with('/').then(|| path.into())
}

fn found_in_path(command: &Path) -> Option<PathBuf> {
    if command.components().count() > 1 {
        return Some(command.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(command)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend((entries.len() as u32).to_le_bytes());
        bytes.resize(48, 0);
        let start = 48 + entries.len() * 24;
        for (name, path) in entries {
            let mut place = |text: &str| {
                let at = (start + texts.len()) as u32;
                texts.extend(text.bytes().chain([0]));
                at.to_le_bytes()
            };
            bytes.extend(3u32.to_le_bytes());
            bytes.extend(place(name));
            bytes.extend(place(path));
            bytes.extend([0; 12]);
        }
        bytes.extend(texts);
        bytes
    }

    #[test]
    fn the_loaders_cache_says_where_the_driver_is() {
        let found = cached(&cache(&[("libc.so.6", "/lib/libc.so.6"), ("libcuda.so.1", "/opt/driver/libcuda.so.1")]));
        assert_eq!(found, [Path::new("/opt/driver/libcuda.so.1")]);
        assert!(cached(&std::fs::read(CACHE).unwrap()).iter().all(|path| path.is_absolute()));
    }

    #[test]
    fn a_cache_that_is_cut_short_or_lies_is_no_harm() {
        let whole = cache(&[("libcuda.so.1", "/opt/libcuda.so.1")]);
        for length in 0..whole.len() {
            cached(&whole[..length]);
        }
        let mut lies = whole.clone();
        lies[20..24].fill(0xff);
        lies[52..60].fill(0xff);
        assert!(cached(&lies).is_empty());
        assert!(cached(b"ld.so-1.7.0").is_empty());
    }

    #[test]
    fn a_program_is_linked_against_its_c_library_and_a_script_or_nothing_against_none() {
        let libraries = linked(Path::new("cat"));
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
        assert!(linked(Path::new("/etc/passwd")).is_empty());
        assert!(linked(Path::new("no-such-program-anywhere")).is_empty());
    }

    #[test]
    fn folders_that_the_user_names_come_first() {
        let folders = library_folders(Some("/one::/two"));
        assert_eq!(folders[..2], ["/one", "/two"].map(PathBuf::from));
        assert!(folders.len() > 4);
    }
}
