//! How long it takes to attach 400 probes to a library that a process maps, and to remove them.

use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use gpuwhy_capture::{Image, Layers, Options, Probe, Tracer};
use serde_json::{Value, json};

use super::Place;
use super::statistics::median;

const PROBES: usize = 400;

pub fn run(place: &Place) -> Result<Value> {
    let turns = if place.quick { 2 } else { 9 };
    let library = place.dir.path().join("lib400.so");
    build(&library)?;
    let mut user = Command::new("python3")
        .args(["-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"])
        .arg(&library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a process that maps the library")?;
    let mut ready = [0; 5];
    std::io::Read::read_exact(&mut user.stdout.take().context("no output")?, &mut ready)?;
    let probes = probes(&library)?;
    let (mut attach_ms, mut detach_ms) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let mut tracer = Tracer::load(&Options { layers: Layers::Both, ..Options::default() })?;
        let image = Image { library: Some("bench"), probes: probes.clone(), has_runtime: false };
        let start = Instant::now();
        let attached = tracer.attach(0, &library, &image)?.context("nothing attached")?.probes;
        attach_ms.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(attached == PROBES, "{attached} probes attached");
        let start = Instant::now();
        tracer.detach()?;
        detach_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    drop(user.stdin.take());
    user.wait()?;
    Ok(json!({"probes": PROBES, "attach_ms": median(attach_ms), "detach_ms": median(detach_ms)}))
}

fn build(library: &std::path::Path) -> Result<()> {
    let mut source = String::new();
    for index in 0..PROBES {
        writeln!(source, "int f{index}(int x) {{ return x + {index}; }}")?;
    }
    let file = library.with_extension("c");
    std::fs::write(&file, source)?;
    let flags = ["-O0", "-fno-omit-frame-pointer", "-fcf-protection=none", "-shared", "-fPIC", "-o"];
    let built = Command::new("cc").args(flags).arg(library).arg(&file).status().context("run cc")?;
    ensure!(built.success(), "cc failed");
    Ok(())
}

/// The functions' places; in such a library, addresses of code equal offsets in the file.
fn probes(library: &std::path::Path) -> Result<Vec<Probe>> {
    let names = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().context("run nm")?;
    let text = String::from_utf8_lossy(&names.stdout).into_owned();
    let code = std::fs::read(library)?;
    let probes: Vec<Probe> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let file_offset = u64::from_str_radix(words.next()?, 16).ok()?;
            let symbol = words.nth(1)?.to_owned();
            symbol.starts_with('f').then_some(Probe { row: 0, symbol, file_offset, emulated: true })
        })
        .collect();
    ensure!(probes.len() == PROBES, "{} functions", probes.len());
    ensure!(
        probes.iter().all(|probe| code[probe.file_offset as usize] == 0x55),
        "a function does not start with a push"
    );
    Ok(probes)
}
