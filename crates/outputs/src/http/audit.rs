//! The record of requests: one line of JSON each, whoever sent it and however it ended. A thread of its own writes, so
//! that a slow disk holds up nobody; lines that could not be written are counted.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::Method;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use jiff::Timestamp;
use serde::Serialize;

use super::SettingsError;
use super::limit::Room;
use crate::mcp::harmless;

/// Lines that wait to be written.
const MOST_LINES: usize = 4096;
const LONGEST_PATH: usize = 256;
const LONGEST_CLOSE: Duration = Duration::from_secs(2);

pub struct Audit {
    log: Arc<Log>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Log {
    lines: Mutex<Option<SyncSender<String>>>,
    lost: AtomicU64,
}

impl Audit {
    pub fn open(path: Option<&Path>) -> Result<Self, SettingsError> {
        let Some(path) = path else { return Ok(Self::to(io::stderr())) };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        Ok(Self::to(file.map_err(|source| SettingsError::Audit { path: path.into(), source })?))
    }

    fn to(place: impl Write + Send + 'static) -> Self {
        let (sender, lines) = sync_channel(MOST_LINES);
        let log = Arc::new(Log { lines: Mutex::new(Some(sender)), lost: AtomicU64::new(0) });
        let same = Arc::clone(&log);
        let writer = std::thread::spawn(move || write(place, &lines, &same.lost));
        Self { log, writer: Mutex::new(Some(writer)) }
    }

    /// Opens the entry of a request. It is written when the entry is dropped.
    pub fn entry(&self, peer: IpAddr, method: &Method, path: &str, token: Option<&str>) -> Entry {
        Entry {
            log: Arc::clone(&self.log),
            start: Instant::now(),
            is_routine: false,
            line: Line {
                time: Timestamp::now().to_string(),
                peer,
                method: method.to_string(),
                path: path.chars().take(LONGEST_PATH).collect(),
                tool: None,
                status: CLIENT_LEFT,
                bytes: 0,
                ms: 0.0,
                authenticated: token.is_some(),
                token: token.map(str::to_owned),
                refused: None,
            },
        }
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.log.lost.load(Ordering::Relaxed)
    }

    /// Waits until all is written, but not for ever: standard error may be a pipe that nobody reads.
    pub fn close(&self) {
        drop(self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let deadline = Instant::now() + LONGEST_CLOSE;
        while writer.as_ref().is_some_and(|writer| !writer.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.lost() > 0 {
            tracing::error!(lines = self.lost(), "the audit log is not complete");
        }
    }
}

fn write(mut place: impl Write, lines: &Receiver<String>, lost: &AtomicU64) {
    for line in lines {
        if let Err(error) = place.write_all(line.as_bytes()).and_then(|()| place.flush())
            && lost.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

/// What there is instead of a status when the client went away before it had one.
const CLIENT_LEFT: u16 = 499;

#[derive(Serialize)]
struct Line {
    time: String,
    peer: IpAddr,
    method: String,
    path: String,
    tool: Option<String>,
    status: u16,
    bytes: u64,
    ms: f64,
    authenticated: bool,
    /// What the token is called.
    token: Option<String>,
    refused: Option<&'static str>,
}

pub struct Entry {
    log: Arc<Log>,
    start: Instant,
    is_routine: bool,
    line: Line,
}

/// Which question a request asked and why it was refused: left with the response by whoever knows.
#[derive(Clone, Debug, Default)]
pub struct Remark {
    pub tool: Option<String>,
    pub refused: Option<&'static str>,
    /// It is one of thousands each second, and went well: nobody would read of it.
    pub is_routine: bool,
}

impl Entry {
    /// The response, which carries the entry along until it is sent or given up.
    pub fn answered(mut self, mut response: Response) -> Response {
        self.line.status = response.status().as_u16();
        if let Some(remark) = response.extensions().get::<Remark>() {
            (self.line.tool, self.line.refused) = (remark.tool.clone(), remark.refused);
            self.is_routine = remark.is_routine;
        }
        let room = response.extensions_mut().remove::<Room>();
        response.map(|body| Body::new(Counted { body, entry: self, _room: room }))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_routine {
            return;
        }
        self.line.ms = (self.start.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        let line = harmless(&serde_json::to_string(&self.line).unwrap_or_default()) + "\n";
        let lines = self.log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.as_ref().is_none_or(|lines| lines.try_send(line).is_err()) {
            self.log.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A body that counts what is sent of it, and takes up room until it is.
struct Counted {
    body: Body,
    entry: Entry,
    _room: Option<Room>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.entry.line.bytes += frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn entry(audit: &Audit, path: &str) -> Entry {
        audit.entry("127.0.0.1".parse().unwrap(), &Method::GET, path, None)
    }

    #[test]
    fn a_request_that_was_given_up_is_on_record_and_no_line_is_forged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::open(Some(&path)).unwrap();
        drop(entry(&audit, "/api/\u{202e}x\n{\"status\":200}"));
        audit.close();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains('\u{202e}'));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["status"], CLIENT_LEFT);
        assert_eq!(line["authenticated"], false);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let audit = Audit::to(Full);
        for _ in 0..3 {
            drop(entry(&audit, "/"));
        }
        audit.close();
        assert_eq!(audit.lost(), 3);
    }
}
