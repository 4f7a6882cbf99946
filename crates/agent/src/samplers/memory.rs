//! The host's memory: what programs can still have, and what waits to be written to disks.

use std::path::{Path, PathBuf};

use super::{Measured, Sampler};

/// What a line of `/proc/meminfo` is called here.
const LINES: [(&str, &str); 3] =
    [("MemAvailable:", "host.memory.available"), ("Dirty:", "host.memory.dirty"), ("SwapFree:", "host.swap.free")];

struct Memory {
    file: PathBuf,
}

pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    let file = root.join("proc/meminfo");
    file.exists().then(|| Box::new(Memory { file }) as Box<dyn Sampler>)
}

impl Sampler for Memory {
    fn measure(&mut self) -> Vec<Measured> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let measured = |(line, name)| {
            Some(Measured { name, unit: "bytes", device: None, value: bytes(&text, line)?, at_ns: None })
        };
        LINES.into_iter().filter_map(measured).collect()
    }
}

fn bytes(text: &str, line: &str) -> Option<f64> {
    let rest = text.lines().find_map(|one| one.strip_prefix(line))?;
    let kibibytes: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}
