//! Room on the disk for a trace's last words.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// More than the pages that the end of a session changes, in the log and in its index.
const BYTES: usize = 128 << 10;

/// Space that is given back when this is dropped. The file has no name, so that it ends with the process at the latest.
pub(super) struct LastRoom {
    _file: File,
}

impl LastRoom {
    /// `None` where there is no such space: then the last words take what they find.
    pub fn keep_beside(path: &Path) -> Option<Self> {
        let mut file = tempfile::tempfile_in(path.parent()?).ok()?;
        file.write_all(&[0; BYTES]).ok()?;
        Some(Self { _file: file })
    }
}
