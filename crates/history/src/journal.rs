//! What was told and is not in a file yet, message after message. A process that is killed leaves it behind, up to the last
//! byte that was written; one that was cut off in the middle of a message never acknowledged that one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;

use crate::error::HistoryError;

const PREFIX: &str = "journal-";
/// Length and sum of a message, before it.
const HEAD: usize = 8;
/// No message is longer.
const MOST_MESSAGE: usize = 32 << 20;

/// The newest part of a journal, which grows.
pub struct Journal {
    folder: PathBuf,
    number: u64,
    file: File,
    bytes: u64,
    /// Of all parts that have not been deleted.
    kept: u64,
    most: u64,
}

impl Journal {
    /// Begins a new part after those that are there: their numbers.
    pub fn open(folder: &Path, most: u64) -> Result<(Self, Vec<u64>), HistoryError> {
        let mut there = numbers(folder)?;
        there.sort_unstable();
        let sizes = there.iter().filter_map(|number| path(folder, *number).metadata().ok());
        let kept = sizes.map(|found| found.len()).sum();
        let number = there.last().map_or(1, |last| last + 1);
        let (file, folder) = (create(folder, number)?, folder.to_path_buf());
        Ok((Self { folder, number, file, bytes: 0, kept, most }, there))
    }

    /// Adds a message: all of it or nothing.
    pub fn add(&mut self, message: &[&[u8]]) -> Result<(), HistoryError> {
        let length: usize = message.iter().map(|part| part.len()).sum();
        let whole = (HEAD + length) as u64;
        let full = || HistoryError::DiskFull { path: path(&self.folder, self.number) };
        if length > MOST_MESSAGE || self.kept + self.bytes + whole > self.most {
            return Err(full());
        }
        let mut bytes = Vec::with_capacity(HEAD + length);
        bytes.extend((length as u32).to_le_bytes());
        bytes.extend([0; 4]);
        message.iter().for_each(|part| bytes.extend(*part));
        let mut crc = Crc::new();
        crc.update(&bytes[HEAD..]);
        bytes[4..HEAD].copy_from_slice(&crc.sum().to_le_bytes());
        if let Err(error) = self.file.write_all(&bytes) {
            // What follows must not stand behind half a message.
            let cut = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
            cut.map_err(|error| HistoryError::from_io(&path(&self.folder, self.number), error))?;
            return Err(HistoryError::from_io(&path(&self.folder, self.number), error));
        }
        self.bytes += whole;
        Ok(())
    }

    /// Begins a new part: the number of the one before.
    pub fn turn(&mut self) -> Result<u64, HistoryError> {
        let before = self.number;
        self.file = create(&self.folder, before + 1)?;
        (self.number, self.kept, self.bytes) = (before + 1, self.kept + self.bytes, 0);
        Ok(before)
    }

    /// Deletes this part and all before it: they are in the files.
    pub fn forget_until(&mut self, last: u64) -> Result<(), HistoryError> {
        for number in numbers(&self.folder)?.into_iter().filter(|number| *number <= last) {
            let path = path(&self.folder, number);
            let bytes = path.metadata().map_or(0, |found| found.len());
            fs::remove_file(&path).map_err(|error| HistoryError::from_io(&path, error))?;
            self.kept = self.kept.saturating_sub(bytes);
        }
        Ok(())
    }
}

/// Each message of a part, in order, up to one that is cut off.
pub fn read(folder: &Path, number: u64, mut take: impl FnMut(&[u8])) -> Result<(), HistoryError> {
    let path = path(folder, number);
    let failed = |error| HistoryError::from_io(&path, error);
    let mut file = io::BufReader::new(File::open(&path).map_err(failed)?);
    let (mut head, mut message) = ([0; HEAD], Vec::new());
    loop {
        match file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other.map_err(failed)?,
        }
        let [a, b, c, d, sum @ ..] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MOST_MESSAGE {
            tracing::warn!(path = %path.display(), "the journal ends with what is no message");
            return Ok(());
        }
        message.resize(length, 0);
        match file.read_exact(&mut message) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other.map_err(failed)?,
        }
        let mut crc = Crc::new();
        crc.update(&message);
        if crc.sum() != u32::from_le_bytes(sum) {
            tracing::warn!(path = %path.display(), "the journal ends with a message that is not whole");
            return Ok(());
        }
        take(&message);
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{number:010}"))
}

fn numbers(folder: &Path) -> Result<Vec<u64>, HistoryError> {
    let failed = |error| HistoryError::from_io(folder, error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u64>().ok()));
    }
    Ok(numbers)
}

fn create(folder: &Path, number: u64) -> Result<File, HistoryError> {
    let path = path(folder, number);
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    file.map_err(|error| HistoryError::from_io(&path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(folder: &Path, number: u64) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        read(folder, number, |message| found.push(message.to_vec())).unwrap();
        found
    }

    #[test]
    fn what_was_added_is_read_again_up_to_a_message_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, before) = Journal::open(folder.path(), 1 << 20).unwrap();
        assert!(before.is_empty());
        journal.add(&[b"one", b" and two"]).unwrap();
        journal.add(&[b""]).unwrap();
        journal.add(&[&[7; 100_000]]).unwrap();
        drop(journal);
        assert_eq!(all(folder.path(), 1), [b"one and two".to_vec(), vec![], vec![7; 100_000]]);
        let part = path(folder.path(), 1);
        for cut in [1, 50_000, 100_000 + 3] {
            let bytes = fs::read(&part).unwrap();
            fs::write(&part, &bytes[..bytes.len() - cut]).unwrap();
            assert_eq!(all(folder.path(), 1).len(), 2, "{cut}");
            fs::write(&part, bytes).unwrap();
        }
        let mut bytes = fs::read(&part).unwrap();
        bytes[HEAD] ^= 1;
        fs::write(&part, bytes).unwrap();
        assert_eq!(all(folder.path(), 1), Vec::<Vec<u8>>::new());
        fs::write(&part, [255; 64]).unwrap();
        assert_eq!(all(folder.path(), 1), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn parts_follow_each_other_and_go_when_they_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), 1 << 20).unwrap();
        journal.add(&[b"a"]).unwrap();
        let first = journal.turn().unwrap();
        journal.add(&[b"b"]).unwrap();
        drop(journal);
        let (mut journal, before) = Journal::open(folder.path(), 1 << 20).unwrap();
        assert_eq!((first, before), (1, vec![1, 2]));
        journal.forget_until(first).unwrap();
        assert_eq!(all(folder.path(), 2), [b"b".to_vec()]);
        assert!(read(folder.path(), 1, |_| ()).is_err());
    }

    #[test]
    fn it_has_an_end_to_its_size_and_takes_more_when_parts_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), 1000).unwrap();
        while journal.add(&[&[1; 100]]).is_ok() {}
        assert_eq!(all(folder.path(), 1).len(), 9);
        assert!(matches!(journal.add(&[&[1; 100]]), Err(HistoryError::DiskFull { .. })));
        let first = journal.turn().unwrap();
        assert!(journal.add(&[&[1; 100]]).is_err());
        journal.forget_until(first).unwrap();
        journal.add(&[&[1; 100]]).unwrap();
    }
}
