//! A trace for somebody who takes all of it: a copy of how it is at one moment, which is gone when it has been taken.

use std::fs::File;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use gpuwhy_questions::AskError;
use gpuwhy_store::{StoreError, Trace};
use tokio::io::{AsyncRead, ReadBuf};

use crate::ask::Turn;
use crate::{Asker, Refusal};

/// Of a trace that is sent as a whole.
const MOST_BYTES: u64 = 1 << 30;
/// The trace goes on being written to the same disk: a copy takes one part of so many of what is free.
const OF_FREE: u64 = 3;

/// A copy, and the turn of whoever takes it: there is one at a time.
pub struct Copied {
    file: tokio::fs::File,
    pub bytes: u64,
    _turn: Turn,
}

impl Asker {
    /// Copies the first trace.
    pub(crate) async fn copy(&self) -> Result<Copied, Refusal> {
        let path = self.traces().path(None)?.to_owned();
        let turn = self.turn_to_act().await?;
        let (copied, turn) = self.on_a_thread(turn, "a copy", move |cancelled| copy(&path, &cancelled)).await?;
        let (file, bytes) = copied.map_err(|refusal| match refusal {
            Refusal::Ask(error) => self.without_folders(error),
            other => other,
        })?;
        Ok(Copied { file: tokio::fs::File::from_std(file), bytes, _turn: turn })
    }
}

/// The copy has no name any more: whatever becomes of this process, it does not stay.
fn copy(path: &Path, cancelled: &AtomicBool) -> Result<(File, u64), Refusal> {
    let trace = Trace::open(path).map_err(AskError::Trace)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |source| AskError::Trace(StoreError::Io { path: path.to_owned(), source });
    let free = rustix::fs::statvfs(folder).map_err(|error| failed(error.into()))?;
    let most = MOST_BYTES.min(free.f_bavail.saturating_mul(free.f_frsize) / OF_FREE);
    let bytes = trace.size();
    if bytes > most {
        return Err(Refusal::TraceTooLarge { bytes, most });
    }
    let copy = tempfile::Builder::new().prefix(".gpuwhy-copy-").tempfile_in(folder).map_err(failed)?;
    trace.copy(copy.path(), cancelled).map_err(AskError::Trace)?;
    let file = File::open(copy.path()).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    Ok((file, bytes))
}

impl AsyncRead for Copied {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_read(context, buffer)
    }
}
