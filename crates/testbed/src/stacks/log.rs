//! What `libwitness.so` writes: stacks, and at the end the process's mappings. The format is described in `witness.c`.

use super::Addresses;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Clone, Debug, Default)]
pub struct WitnessLog {
    /// By sequence number.
    pub stacks: HashMap<u64, WitnessStack>,
    /// The process's mappings when it ended.
    pub maps: Vec<Mapping>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessStack {
    pub tid: u32,
    /// From the caller of `witness` outwards: return addresses, and where a signal came, the address it interrupted.
    pub ips: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<u64>,
    pub is_executable: bool,
    pub file_offset: u64,
    /// `None` for memory without a file, or with a name that is no path, as `[vdso]`.
    pub path: Option<PathBuf>,
}

pub fn read_witness_log(path: &Path) -> Result<WitnessLog> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    text.parse().with_context(|| format!("read the witness's log {}", path.display()))
}

impl WitnessLog {
    /// Reads the mapped files, so that addresses can be found in them.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::new(&self.maps)
    }

    fn add_stack(&mut self, line: &str) -> Result<()> {
        let (sequence, stack) = parse_stack(line).with_context(|| format!("the line {line:?} is no stack"))?;
        ensure!(self.stacks.insert(sequence, stack).is_none(), "the sequence number {sequence} comes twice");
        Ok(())
    }
}

impl FromStr for WitnessLog {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut log = Self::default();
        let (stacks, maps) = text.split_once("maps\n").context("the process wrote no mappings: it did not exit")?;
        stacks.lines().try_for_each(|line| log.add_stack(line))?;
        log.maps = maps.lines().map(str::parse).collect::<Result<_>>()?;
        Ok(log)
    }
}

fn parse_stack(line: &str) -> Result<(u64, WitnessStack)> {
    let mut words = line.strip_prefix("stack ").context("it starts with another word")?.split(' ');
    let sequence = words.next().unwrap_or_default().parse().context("its sequence number is no number")?;
    let tid = words.next().unwrap_or_default().parse().context("its thread is no number")?;
    let ips = words.map(hexadecimal).collect::<Result<_>>()?;
    Ok((sequence, WitnessStack { tid, ips }))
}

impl FromStr for Mapping {
    type Err = anyhow::Error;

    /// A line of `/proc/PID/maps`.
    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.splitn(6, ' ');
        let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
            bail!("the line {line:?} is no mapping");
        };
        let (start, end) = range.split_once('-').with_context(|| format!("{range:?} is no range"))?;
        let name = words.nth(2).unwrap_or_default().trim_start();
        Ok(Self {
            range: hexadecimal(start)?..hexadecimal(end)?,
            is_executable: rights.contains('x'),
            file_offset: hexadecimal(offset)?,
            path: name.starts_with('/').then(|| name.into()),
        })
    }
}

fn hexadecimal(word: &str) -> Result<u64> {
    u64::from_str_radix(word, 16).with_context(|| format!("{word:?} is no hexadecimal number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "stack 7 42 55d0 7f00\nstack 8 43 1\nmaps\n\
        1000-3000 r-xp 00002000 08:01 77                         /usr/lib/lib with space.so\n\
        7fff0000-7fff1000 r-xp 00000000 00:00 0                  [vdso]\n\
        8000-9000 rw-p 00000000 00:00 0 \n";

    #[test]
    fn a_log_has_stacks_by_sequence_number_and_mappings() {
        let log: WitnessLog = LOG.parse().unwrap();
        assert_eq!(log.stacks[&7], WitnessStack { tid: 42, ips: vec![0x55d0, 0x7f00] });
        assert_eq!(log.stacks[&8].ips, [1]);
        let paths: Vec<_> = log.maps.iter().map(|mapping| mapping.path.as_deref().and_then(Path::to_str)).collect();
        assert_eq!(paths, [Some("/usr/lib/lib with space.so"), None, None]);
        assert_eq!((log.maps[0].range.clone(), log.maps[0].file_offset), (0x1000..0x3000, 0x2000));
        assert_eq!(log.maps.iter().map(|mapping| mapping.is_executable).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn a_log_that_is_none_says_why() {
        for (log, reason) in [
            ("stack 1 2 3\n", "did not exit"),
            ("stack 1 2 3\nstack 1 2 3\nmaps\n", "comes twice"),
            ("stack one 2 3\nmaps\n", "sequence number"),
            ("stack 1 2 xyz\nmaps\n", "hexadecimal"),
            ("something else\nmaps\n", "no stack"),
            ("maps\nnothing\n", "no mapping"),
        ] {
            let error = log.parse::<WitnessLog>().unwrap_err();
            assert!(format!("{error:#}").contains(reason), "{log:?}: {error:#}");
        }
    }
}
