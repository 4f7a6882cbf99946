//! Slow, rude, dying and too many clients: they harm nobody but themselves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuwhy_outputs::{Bounds, Fleet, Patience, TlsFiles};
use gpuwhy_questions::Granted;
use serde_json::json;
use support::stdio::Assistant;
use support::{ENDLESS, JSON, LIMIT, Reply, Served, Start, request, wait_until};

fn endless(served: &Served) -> Vec<u8> {
    request(served.address, "POST", "/api/v1/sql", JSON, &json!({"sql": ENDLESS}).to_string())
}

#[test]
fn too_many_requests_are_refused_with_when_to_come_back_and_on_record() {
    let served = Start { rate: 5, ..Start::default() }.serve();
    let replies: Vec<Reply> = (0..40).map(|_| served.get("/api/v1/health")).collect();
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 429).collect();
    let passed = replies.iter().filter(|reply| reply.status == 200).count();
    assert!(passed >= 20 && !refused.is_empty() && passed + refused.len() == 40, "{passed}");
    for reply in &refused {
        assert_eq!(reply.code(), "too_many_requests");
        assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    let record = served.audit(40);
    assert_eq!(record.iter().filter(|line| line["status"] == 429).count(), refused.len());
}

#[test]
fn guessing_tokens_is_slow_and_does_not_lock_out_who_knows_it() {
    let served = Start { token: Some(support::TOKEN), rate: 1, ..Start::default() }.serve();
    let guess = || served.send("GET", "/api/v1/health", &[("Authorization", "Bearer guess")], "").status;
    let guesses: Vec<u16> = (0..10).map(|_| guess()).collect();
    assert!(guesses.contains(&401) && guesses.contains(&429), "{guesses:?}");
    let known = format!("Bearer {}", support::TOKEN);
    assert_eq!(served.send("GET", "/api/v1/health", &[("Authorization", &known)], "").status, 200);
}

#[test]
fn a_question_ends_when_its_client_goes_away() {
    let served = Start::default().serve();
    let mut stream = served.connect();
    stream.write_all(&endless(&served)).unwrap();
    wait_until("the question is asked", || served.asker.running() == 1);
    drop(stream);
    wait_until("the question is withdrawn", || served.asker.running() == 0);
    assert_eq!(served.audit(1)[0]["status"], 499);
}

#[test]
fn a_call_over_mcp_ends_when_its_client_goes_away() {
    let served = Start::default().serve();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sql", "arguments": {"sql": ENDLESS}}});
    let headers = [JSON, &[("Accept", "application/json, text/event-stream")]].concat();
    let mut stream = served.connect();
    stream.write_all(&request(served.address, "POST", "/mcp", &headers, &call.to_string())).unwrap();
    wait_until("the question is asked", || served.asker.running() == 1);
    drop(stream);
    wait_until("the question is withdrawn", || served.asker.running() == 0);
}

#[test]
fn a_call_over_mcp_and_http_can_be_cancelled_by_its_session_only() {
    let served = Start::default().serve();
    let client = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let hello = served.mcp_raw(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}), &[]);
    let session = hello.header("mcp-session-id").unwrap().to_owned();
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "sql", "arguments": {"sql": ENDLESS}}});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| served.mcp_raw(call, &[("Mcp-Session-Id", &session)]));
        wait_until("the question is asked", || served.asker.running() == 1);
        assert_eq!(served.mcp_raw(cancel.clone(), &[("Mcp-Session-Id", "0123")]).status, 202);
        assert_eq!(served.asker.running(), 1);
        assert_eq!(served.mcp_raw(cancel, &[("Mcp-Session-Id", &session)]).status, 202);
        assert!(answer.join().unwrap().body.contains("cancelled"));
    });
    wait_until("the question is withdrawn", || served.asker.running() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_stdio_can_be_cancelled() {
    let served = Start::default().serve();
    let mut assistant = Assistant::start(served.asker.clone()).await;
    let id = assistant.start_request("tools/call", json!({"name": "sql", "arguments": {"sql": ENDLESS}})).await;
    tokio::task::block_in_place(|| wait_until("the question is asked", || served.asker.running() == 1));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assistant.say(cancel).await;
    tokio::task::block_in_place(|| wait_until("the question is withdrawn", || served.asker.running() == 0));
    assert!(assistant.request("ping", json!({})).await["result"].is_object());
}

#[test]
fn those_who_wait_with_the_same_question_share_its_answer() {
    let served = Start { bounds: Bounds { at_once: 1, ..Bounds::default() }, ..Start::default() }.serve();
    let question = gpuwhy_questions::find("findings").unwrap();
    let ask = || served.asker.ask(question, json!({}), Granted::All, Arc::new(|_, _| {}));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (first, second, third) = runtime.block_on(async { tokio::join!(ask(), ask(), ask()) });
    let first = first.unwrap();
    assert!(Arc::ptr_eq(&first, &second.unwrap()) && Arc::ptr_eq(&first, &third.unwrap()));
}

#[test]
fn more_questions_than_there_is_room_for_are_refused() {
    let bounds = Bounds { at_once: 1, waiting: 1, ..Bounds::default() };
    let served = Start { bounds, ..Start::default() }.serve();
    let mut asking = served.connect();
    asking.write_all(&endless(&served)).unwrap();
    wait_until("one is asked", || served.asker.running() == 1);
    let mut waiting = served.connect();
    waiting.write_all(&endless(&served)).unwrap();
    wait_until("one stands in line", || served.asker.waiting() == 1);
    let reply = served.ask("sql", &json!({"sql": "SELECT 1"}));
    assert_eq!((reply.status, reply.code().as_str()), (429, "busy"));
    assert!(reply.header("retry-after").is_some());
    drop((asking, waiting));
    wait_until("there is room again", || served.ask("sql", &json!({"sql": "SELECT 3"})).status == 200);
}

#[test]
fn slow_loris_costs_a_place_for_a_while_only() {
    let short = Duration::from_secs(3);
    let patience = Patience { head: short, body: short, ..Patience::default() };
    let served = Start { patience, ..Start::default() }.serve();
    let mut heads: Vec<_> = (0..50).map(|_| served.connect()).collect();
    for stream in &mut heads {
        stream.write_all(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").unwrap();
    }
    let mut body = served.connect();
    let head =
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    body.write_all(head.as_bytes()).unwrap();
    assert_eq!(served.get("/api/v1/health").status, 200);
    let reply = Reply::read(body);
    assert_eq!((reply.status, reply.code().as_str()), (408, "slow_body"));
    for stream in heads {
        assert_ne!(Reply::read(stream).status, 200);
    }
}

#[test]
fn http2_that_never_begins_costs_a_place_for_a_while_only() {
    let patience = Patience { head: Duration::from_secs(2), ..Patience::default() };
    let served = Start { patience, fleet: Some(Fleet::default()), ..Start::default() }.serve();
    // Nothing, the beginning of a beginning, and a beginning after which nothing comes.
    let beginnings: [&[u8]; 3] = [b"", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"];
    let streams = beginnings.map(|beginning| {
        let mut stream = served.connect();
        stream.write_all(beginning).unwrap();
        stream
    });
    assert_eq!(served.get("/api/v1/health").status, 200);
    for mut stream in streams {
        // Until the other end closes.
        let _ = stream.read_to_end(&mut Vec::new()).map_err(|error| assert_ne!(error.kind(), ErrorKind::WouldBlock));
    }
}

#[test]
fn a_client_that_takes_nothing_loses_its_connection() {
    let patience = Patience { taking: Duration::from_millis(500), ..Patience::default() };
    let served = Start { patience, ..Start::default() }.serve();
    let mut stream = served.connect();
    let sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900) SELECT printf('%.1000c', 'a') FROM n";
    let body = json!({"sql": sql, "limit": 1000}).to_string();
    let one = String::from_utf8(request(served.address, "POST", "/api/v1/sql", JSON, &body)).unwrap();
    let many = one.replace("Connection: close\r\n", "").repeat(200);
    let _ = stream.write_all(many.as_bytes());
    wait_until("the connection is given up", || served.audit(1).last().is_some_and(|_| stream_is_closed(&mut stream)));
    assert_eq!(served.get("/api/v1/health").status, 200);
}

/// Whether the server has closed it: writing fails some time after.
fn stream_is_closed(stream: &mut std::net::TcpStream) -> bool {
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    match stream.write_all(b"x") {
        Ok(()) => false,
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

#[test]
fn clients_that_die_anywhere_leave_a_server_that_works() {
    let served = Start::default().serve();
    let whole = request(served.address, "POST", "/api/v1/tools/findings", JSON, "{}");
    for at in 0..whole.len() {
        let mut stream = served.connect();
        stream.write_all(&whole[..at]).unwrap();
    }
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
    ] {
        let mut stream = served.connect();
        stream.write_all(garbage).unwrap();
    }
    assert_eq!(served.send_raw(&whole).status, 200);
    wait_until("nothing is left running", || served.asker.running() == 0);
}

#[test]
fn a_server_that_ends_withdraws_its_questions() {
    let mut served = Start::default().serve();
    let mut stream = served.connect();
    stream.write_all(&endless(&served)).unwrap();
    wait_until("the question is asked", || served.asker.running() == 1);
    let start = Instant::now();
    served.end();
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    let reply = Reply::read(stream);
    assert_eq!((reply.status, reply.code().as_str()), (503, "shutting_down"));
    wait_until("nothing runs any more", || served.asker.running() == 0);
}

#[test]
fn a_question_that_panics_is_an_error_and_no_more() {
    struct Breaks;
    impl gpuwhy_questions::Host for Breaks {
        fn check(&self) -> Result<serde_json::Value, gpuwhy_questions::AskError> {
            panic!("as a test does");
        }

        fn demo(
            &self,
            _: &gpuwhy_questions::questions::demo::Demo,
            _: Duration,
            _: &gpuwhy_questions::Control,
        ) -> Result<gpuwhy_model::Explanation, gpuwhy_questions::AskError> {
            panic!("as a test does");
        }
    }
    let served = Start { host: Arc::new(Breaks), ..Start::default() }.serve();
    let reply = served.ask("check", &json!({}));
    assert_eq!((reply.status, reply.code().as_str()), (500, "failed"));
    assert_eq!(served.ask("findings", &json!({})).status, 200);
    assert_eq!(served.asker.running(), 0);
}

mod tls {
    use std::net::TcpStream;

    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};

    use super::*;

    fn served(patience: Patience) -> (Served, CertificateDer<'static>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        let served = Start { tls: Some(files), patience, ..Start::default() }.serve();
        (served, made.cert.der().clone(), folder)
    }

    fn connect(served: &Served, trusted: CertificateDer<'static>) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), served.connect())
    }

    #[test]
    fn it_answers_over_tls_and_not_without() {
        let (served, certificate, _folder) = served(Patience::default());
        let mut stream = connect(&served, certificate);
        let asked = request(served.address, "POST", "/api/v1/tools/findings", JSON, "{}");
        stream.write_all(&asked).unwrap();
        let reply = Reply::read(stream);
        assert_eq!(reply.status, 200);
        assert!(reply.json()["findings"].is_array());
        let plain = served.send_raw(&asked);
        assert_ne!(plain.status, 200);
        assert!(!plain.body.contains("findings"));
    }

    #[test]
    fn a_handshake_that_does_not_come_holds_up_nobody() {
        let short = Patience { handshake: Duration::from_secs(3), ..Patience::default() };
        let (served, certificate, _folder) = served(short);
        let mut silent: Vec<_> = (0..300).map(|_| served.connect()).collect();
        let mut stream = connect(&served, certificate);
        stream.write_all(&request(served.address, "GET", "/api/v1/health", &[], "")).unwrap();
        assert_eq!(Reply::read(stream).status, 200);
        let mut left = Vec::new();
        let first = silent.first_mut().unwrap();
        first.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = first.read_to_end(&mut left);
        assert!(left.is_empty());
    }
}
