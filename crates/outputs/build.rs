//! Embeds the dashboard, `web/dist`, compressed. Without it the binary says how to build one that has it.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    if dist.is_dir() {
        println!("cargo::rerun-if-changed={}", dist.display());
    }
    let mut list = String::from("&[\n");
    for path in files(&dist) {
        embed(&dist, &path, &out, &mut list)?;
    }
    list.push_str("]\n");
    fs::write(out.join("dashboard.rs"), list)?;
    Ok(())
}

/// What is to be served, in a fixed order: hidden files are not, nor are maps of the source.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !name.starts_with('.') && !name.ends_with(".map") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn embed(dist: &Path, path: &Path, out: &Path, list: &mut String) -> Result<(), Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let tag = format!("{:016x}", hasher.finish());
    let compressed = out.join(format!("{tag}.gz"));
    let mut encoder = GzEncoder::new(fs::File::create(&compressed)?, Compression::best());
    encoder.write_all(&bytes)?;
    encoder.finish()?;
    let served = format!("/{}", path.strip_prefix(dist)?.display());
    writeln!(list, "    File {{ path: {served:?}, tag: {tag:?}, gzip: include_bytes!({compressed:?}) }},")?;
    Ok(())
}
