//! Pressure stall information: the share of the last ten seconds in which somebody, or everybody, waited for a resource.

use std::path::{Path, PathBuf};

use super::{Measured, Sampler};

const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];

struct Pressure {
    folder: PathBuf,
}

pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    let folder = root.join("proc/pressure");
    let is_there = RESOURCES.iter().any(|resource| std::fs::read(folder.join(resource)).is_ok());
    is_there.then(|| Box::new(Pressure { folder }) as Box<dyn Sampler>)
}

impl Sampler for Pressure {
    fn measure(&mut self) -> Vec<Measured> {
        let mut measured = Vec::new();
        for resource in RESOURCES {
            let text = std::fs::read_to_string(self.folder.join(resource)).unwrap_or_default();
            for (name, word) in [("host.pressure.some", "some"), ("host.pressure.full", "full")] {
                if let Some(percent) = ten_seconds(&text, word) {
                    let device = Some(resource.to_owned());
                    measured.push(Measured { name, unit: "share", device, value: percent / 100.0, at_ns: None });
                }
            }
        }
        measured
    }
}

fn ten_seconds(text: &str, word: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}
