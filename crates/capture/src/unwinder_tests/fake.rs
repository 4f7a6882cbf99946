//! Memory of no process: ranges of bytes, and nothing between them.

use std::fmt;
use std::ops::Range;

use gpuwhy_stacks::memory::Memory;

/// No read of the walker is larger.
const LARGEST_READ: usize = 256;

#[derive(Clone, Default)]
pub struct Fake {
    ranges: Vec<(u64, Vec<u8>)>,
    holes: Vec<Range<u64>>,
}

impl Fake {
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        self.ranges.push((at, bytes.to_vec()));
    }

    pub fn put_words(&mut self, at: u64, words: &[u64]) {
        self.put(at, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }

    /// Makes bytes unreadable.
    pub fn punch(&mut self, hole: Range<u64>) {
        self.holes.push(hole);
    }

    /// Changes a word that is there.
    pub fn set(&mut self, at: u64, word: u64) {
        let holds = |(start, bytes): &mut (u64, Vec<u8>)| {
            let place = place(*start, bytes, at, size_of::<u64>())?;
            bytes[place].copy_from_slice(&word.to_le_bytes());
            Some(())
        };
        self.ranges.iter_mut().find_map(holds).expect("there is memory");
    }
}

/// The words that are not 0.
impl fmt::Debug for Fake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (start, bytes) in &self.ranges {
            for (address, word) in (*start..).step_by(8).zip(bytes.as_chunks().0) {
                let word = u64::from_le_bytes(*word);
                if word != 0 {
                    writeln!(formatter, "{address:#x}: {word:#x}")?;
                }
            }
        }
        write!(formatter, "holes: {:x?}", self.holes)
    }
}

impl Memory for Fake {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        assert!((1..=LARGEST_READ).contains(&into.len()), "a read of {} bytes", into.len());
        let end = address.saturating_add(into.len() as u64);
        if self.holes.iter().any(|hole| address < hole.end && hole.start < end) {
            return false;
        }
        let found = self.ranges.iter().find_map(|(start, bytes)| bytes.get(place(*start, bytes, address, into.len())?));
        found.map(|found| into.copy_from_slice(found)).is_some()
    }
}

/// Where in a range some bytes lie that are all in it.
fn place(start: u64, bytes: &[u8], at: u64, length: usize) -> Option<Range<usize>> {
    let from = usize::try_from(at.checked_sub(start)?).ok()?;
    let end = from.checked_add(length).filter(|end| *end <= bytes.len())?;
    Some(from..end)
}
