//! `gpuwhy mcp` and `gpuwhy dashboard`, as a client and as a user meet them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use support::{LIMIT, gpuwhy, output, small_trace};

/// A trace, in a folder of its own.
fn place() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let file = file.to_str().unwrap().to_owned();
    (folder, file)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    fn terminate(&mut self) -> i32 {
        let pid = i32::try_from(self.0.id()).unwrap();
        // SAFETY: sends a signal to a child of ours that has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        self.code()
    }

    fn code(&mut self) -> i32 {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn started(mut command: Command) -> Killed {
    Killed(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn an_assistant_asks_over_standard_input_and_output() {
    let (_folder, file) = place();
    let mut server = started(gpuwhy(&["mcp", "--db", &file]));
    let mut input = server.0.stdin.take().unwrap();
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let client = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let mut say = |message: Value| writeln!(input, "{message}").unwrap();
    let mut hear = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    say(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}));
    assert_eq!(hear()["result"]["serverInfo"]["name"], "gpuwhy");
    say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let sql = json!({"sql": "SELECT count(*) FROM cuda_events"});
    say(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "run_sql", "arguments": sql}}));
    assert_eq!(hear()["result"]["structuredContent"]["rows"], json!([[6]]));
    drop(input);
    assert_eq!(server.code(), 0);
    assert!(lines.next().is_none(), "nothing but the protocol is on standard output");
}

#[test]
fn an_assistant_that_keeps_quiet_can_be_stopped() {
    let (_folder, file) = place();
    let mut server = started(gpuwhy(&["mcp", "--db", &file]));
    let mut input = server.0.stdin.take().unwrap();
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})).unwrap();
    assert!(lines.next().unwrap().unwrap().contains("gpuwhy"));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_dashboard_says_where_it_is_answers_there_and_ends_when_told_to() {
    let (_folder, file) = place();
    let mut server = started(gpuwhy(&["dashboard", "--db", &file, "--addr", "127.0.0.1:0"]));
    let mut errors = BufReader::new(server.0.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /api/v1/health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("gpuwhy-test.db"), "{reply}");
    assert_eq!(server.terminate(), 0);
    let mut record = String::new();
    errors.read_to_string(&mut record).unwrap();
    let line: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    assert_eq!((&line["path"], &line["status"]), (&json!("/api/v1/health"), &json!(200)));
}

#[test]
fn nothing_is_opened_to_others_by_mistake() {
    let (folder, file) = place();
    let short = folder.path().join("token");
    std::fs::write(&short, "short\n").unwrap();
    let short = short.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["mcp", "--http", "127.0.0.1:0"], 1, "--insecure-no-tls"),
        (&["mcp", "--http", "0.0.0.0:0", "--insecure-no-tls"], 1, "--token-file"),
        (&["dashboard", "--addr", "0.0.0.0:0"], 1, "--insecure-no-tls"),
        (&["dashboard", "--addr", "0.0.0.0:0", "--insecure-no-tls"], 1, "GPUWHY_TOKEN"),
        (&["dashboard", "--addr", ":8080"], 2, "127.0.0.1:8080"),
        (&["dashboard", "--addr", "127.0.0.1:0", "--token-file", short], 1, "at least 16 characters"),
        (&["dashboard", "--addr", "127.0.0.1:0", "--tls-cert", short], 2, "--tls-key"),
        (&["dashboard", "--addr", "127.0.0.1:0", "--tls-cert", short, "--tls-key", short], 1, "certificate"),
    ];
    for (arguments, expected, said) in cases {
        let mut command = gpuwhy(&[arguments, &["--db", &file]].concat());
        command.env_remove("GPUWHY_TOKEN");
        let (code, stdout, stderr) = output(command);
        assert_eq!(code, expected, "{arguments:?}: {stderr}");
        assert!(stderr.contains(said) && stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_trace_that_is_not_there_is_told_at_once() {
    let (folder, _) = place();
    let missing = folder.path().join("missing.db");
    for command in [&["mcp"][..], &["dashboard", "--addr", "127.0.0.1:0"]] {
        let (code, _, stderr) = output(gpuwhy(&[command, &["--db", missing.to_str().unwrap()]].concat()));
        assert_eq!(code, 1);
        assert!(stderr.contains("there is no file"), "{stderr}");
    }
}
