//! A server on a port of its own, with a real trace behind it, and a client that sends exactly what it is told to.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpuwhy_model::Session;
use gpuwhy_outputs::{Asker, Bounds, Fleet, Patience, Plain, Server, Settings, TlsFiles, Token, Tokens};
use gpuwhy_questions::{Host, NoHost};
use gpuwhy_store::{Options, Writer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub mod schema;
pub mod stdio;

pub const TOKEN: &str = "a-token-for-tests-only-0123456789";
/// Half of what a question may take: one that is over by then was withdrawn.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A statement that never ends by itself.
pub const ENDLESS: &str = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";

/// A recording of a real stall, brought to the newest version as whoever writes to it does.
pub fn demo_trace(folder: &Path) -> PathBuf {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpuwhy/data/demo.trace");
    let file = folder.join("demo.db");
    std::fs::copy(recorded, &file).unwrap();
    drop(Writer::open(&file, &Session::default(), &Options::default()).unwrap());
    let trace = rusqlite::Connection::open(&file).unwrap();
    trace.execute("DELETE FROM sessions WHERE started_ns = 0", []).unwrap();
    file
}

/// How a server is started; what is not said is as by default.
pub struct Start {
    pub token: Option<&'static str>,
    /// The text of a file of tokens.
    pub tokens: Option<&'static str>,
    pub rate: u32,
    pub bounds: Bounds,
    pub patience: Patience,
    pub tls: Option<TlsFiles>,
    pub host: Arc<dyn Host>,
    /// Clusters, which are served instead of the trace.
    pub fleet: Option<Fleet>,
    /// Where it listens, if not anywhere.
    pub address: Option<SocketAddr>,
    /// Does something to the trace before it is served.
    pub prepare: fn(&Path),
}

impl Default for Start {
    fn default() -> Self {
        Self {
            token: None,
            tokens: None,
            rate: 100_000,
            bounds: Bounds::default(),
            patience: Patience::default(),
            tls: None,
            host: Arc::new(NoHost),
            fleet: None,
            address: None,
            prepare: |_| {},
        }
    }
}

pub struct Served {
    pub folder: TempDir,
    pub address: SocketAddr,
    pub asker: Arc<Asker>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Start {
    pub fn serve(self) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let file = demo_trace(folder.path());
        (self.prepare)(&file);
        let asker = Arc::new(match self.fleet {
            Some(fleet) => Asker::of_fleet(fleet, self.bounds),
            None => Asker::new(vec![file], self.host, self.bounds),
        });
        let tokens = self.tokens.map(|text| {
            let path = folder.path().join("tokens.toml");
            std::fs::write(&path, text).unwrap();
            Tokens::read(&path).unwrap()
        });
        let settings = Settings {
            address: self.address.unwrap_or_else(|| "127.0.0.1:0".parse().unwrap()),
            tls: self.tls,
            plain: Plain::OnLoopback,
            token: self.token.map(|token| Token::new(token).unwrap()),
            tokens,
            allowed_hosts: Vec::new(),
            audit_log: Some(folder.path().join("audit.log")),
            rate: self.rate,
            has_dashboard: true,
            patience: self.patience,
        };
        let (stop, same) = (CancellationToken::new(), Arc::clone(&asker));
        let (told, said) = std::sync::mpsc::channel();
        let end = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(settings, same).await.unwrap();
                told.send(server.address()).unwrap();
                server.serve(end).await;
            });
            runtime.shutdown_background();
        });
        let address = said.recv_timeout(LIMIT).unwrap();
        Served { folder, address, asker, stop, thread: Some(thread) }
    }
}

impl Served {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Sends these bytes and reads until the other end closes.
    pub fn send_raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        Reply::read(stream)
    }

    /// Sends bytes that are no text.
    pub fn send_bytes(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let length = body.len().to_string();
        let headers = [headers, &[("Content-Length", length.as_str())]].concat();
        let mut bytes = request(self.address, "PUSH", path, &headers, "");
        bytes.splice(..4, *b"POST");
        bytes.extend_from_slice(body);
        self.send_raw(&bytes)
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send_raw(&request(self.address, method, path, headers, body))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    pub fn ask(&self, name: &str, parameters: &Value) -> Reply {
        self.send("POST", &format!("/api/v1/tools/{name}"), JSON, &parameters.to_string())
    }

    /// One request of MCP, of the older protocols; the answer's `result` or `error`.
    pub fn mcp(&self, method: &str, params: Value) -> Value {
        let reply = self.mcp_raw(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}), &[]);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    pub fn mcp_raw(&self, message: Value, more: &[(&str, &str)]) -> Reply {
        let headers = [JSON, &[("Accept", "application/json, text/event-stream")], more].concat();
        self.send("POST", "/mcp", &headers, &message.to_string())
    }

    /// What is on record, once there are so many lines.
    pub fn audit(&self, lines: usize) -> Vec<Value> {
        let path = self.folder.path().join("audit.log");
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_until("the requests are on record", || read().lines().count() >= lines);
        read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Ends it, and returns what is on record.
    pub fn end(&mut self) -> String {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap_or_default()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

pub fn request(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    format!("{text}\r\n{body}").into_bytes()
}

#[derive(Debug)]
pub struct Reply {
    /// 0 when the connection ended without an answer.
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        Self { status, head: head.to_owned(), body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        self.head.lines().find(named)?.split_once(':').map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        text += rest.get(..size).unwrap_or(rest);
        body = rest.get(size + 2..).unwrap_or("");
    }
    text
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
