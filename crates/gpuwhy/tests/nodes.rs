//! `--nodes`: questions to other hosts, with nothing in between; and `trace --serve`, which answers them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use gpuwhy_store::apart::on_another_host;
use gpuwhy_testbed::Workload;
use serde_json::{Value, json};
use support::mounts::Mount;
use support::{Finished, Listening, Place, counts_agree, gpuwhy, needs_root, output, small_trace, wait_until};
use tempfile::TempDir;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A host that serves a trace of its own.
struct Host {
    _server: Listening,
    address: String,
    file: PathBuf,
    _folder: Option<TempDir>,
}

impl Host {
    fn start(name: &str) -> Self {
        Self::start_with(name, &[])
    }

    fn start_with(name: &str, options: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gpuwhy-test.db");
        small_trace::write(&file);
        on_another_host(&file, name, 0).unwrap();
        let mut host = Self::serving(file, options);
        host._folder = Some(folder);
        host
    }

    fn serving(file: PathBuf, options: &[String]) -> Self {
        let mut command = gpuwhy(&["dashboard", "--addr", "127.0.0.1:0", "--db", file.to_str().unwrap()]);
        command.args(options).env_remove("GPUWHY_TOKEN");
        let server = Listening::start(command);
        Self { address: server.address.clone(), _server: server, file, _folder: None }
    }

    /// What lies beside its trace.
    fn files(&self) -> Vec<OsString> {
        std::fs::read_dir(self.file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }
}

/// A server that says this to everybody, whatever they ask.
fn one_that_says(answer: impl Into<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = answer.into();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            std::thread::spawn(move || {
                take_request(&mut stream);
                let _ = stream.write_all(&answer);
            });
        }
    });
    address
}

fn take_request(stream: &mut TcpStream) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let _ = reader.read_exact(&mut vec![0; length]);
}

fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len())
}

/// Nobody listens there.
fn dead() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn asked(arguments: &[&str], nodes: &str) -> (i32, String, String) {
    let mut command = gpuwhy(&[arguments, &["--nodes", nodes]].concat());
    command.env_remove("GPUWHY_TOKEN");
    output(command)
}

const COUNT: &str = "SELECT count(*) AS calls FROM cuda_events";

#[test]
fn rows_of_several_hosts_are_one_table_with_the_host_first() {
    let hosts = ["a", "b", "c"].map(Host::start);
    let nodes = hosts.each_ref().map(|host| host.address.as_str()).join(",");
    let (code, said, errors) = asked(&["query", "SELECT host, count(*) AS n FROM sessions", "--json"], &nodes);
    assert_eq!(code, 0, "{errors}");
    let rows: Value = serde_json::from_str(&said).unwrap();
    let row = |host: &Host, name: &str| json!({"node": host.address, "host": name, "n": 1});
    assert_eq!(rows, json!([row(&hosts[0], "a"), row(&hosts[1], "b"), row(&hosts[2], "c")]));
    let (_, csv, _) = asked(&["query", COUNT, "--csv"], &nodes);
    let expected: String = hosts.iter().map(|host| format!("{},6\n", host.address)).collect();
    assert_eq!(csv, format!("node,calls\n{expected}"));
    let (_, filtered, _) = asked(&["query", "--op", "cuMemAlloc", "--json"], &nodes);
    let filtered: Value = serde_json::from_str(&filtered).unwrap();
    assert_eq!(filtered.as_array().unwrap().len(), 3, "{filtered}");
    let (code, _, errors) = asked(&["query", "DELETE FROM calls"], &nodes);
    assert!(code == 1 && errors.contains("only read"), "{errors}");
}

#[test]
fn hosts_that_give_no_answer_are_a_warning_and_the_rest_is_told() {
    let host = Host::start("a");
    let refused = r#"{"error": {"code": "busy", "message": "too many questions", "hint": "wait a moment"}}"#;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let strangers = [
        (dead(), "unreached"),
        (silent, "timeout"),
        (one_that_says(http("429 Too Many", "Content-Type: application/json\r\n", refused)), "busy"),
        (one_that_says(http("200 OK", "", "<html>hello</html>")), "not_gpuwhy"),
        (one_that_says(http("404 Not Found", "", "nothing")), "not_gpuwhy"),
        (one_that_says(http("302 Found", &format!("Location: http://{}/\r\n", host.address), "")), "not_gpuwhy"),
        (one_that_says(http("200 OK", "", &format!("\"{}\"", "x".repeat(17 << 20)))), "too_large"),
        (one_that_says(http("200 OK", "", "{\"columns\": 5}")), "not_gpuwhy"),
        (one_that_says("no HTTP at all\r\n\r\n"), "unreached"),
    ];
    let all: Vec<&str> = strangers.iter().map(|(address, _)| address.as_str()).chain([host.address.as_str()]).collect();
    let all = all.join(",");
    let patient = |arguments: &[&str]| asked(&[arguments, &["--node-timeout", "2s"]].concat(), &all);
    let (code, said, errors) = patient(&["query", COUNT, "--csv"]);
    assert_eq!((code, said), (0, format!("node,calls\n{},6\n", host.address)), "{errors}");
    for (address, code) in &strangers {
        assert!(errors.contains(&format!("warning: {address}: ")), "{address}, {code}: {errors}");
    }
    let (code, said, _) = patient(&["explain", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let codes: Vec<&Value> = said["nodes"].as_array().unwrap().iter().map(|one| &one["error"]["code"]).collect();
    let expected: Vec<Value> = strangers.iter().map(|(_, code)| json!(code)).chain([Value::Null]).collect();
    assert_eq!((code, codes), (0, expected.iter().collect()), "{said:#}");
    let (code, said, errors) = asked(&["query", COUNT], &dead());
    assert!(code == 1 && said.is_empty() && errors.contains("none of 1 hosts answered"), "{errors}");
}

#[test]
fn every_question_is_asked_of_other_hosts() {
    let hosts = ["a", "b"].map(Host::start);
    let nodes = hosts.each_ref().map(|host| host.address.as_str()).join(",");
    let (code, page, errors) = asked(&["explain"], &nodes);
    assert_eq!(code, 0, "{errors}");
    for host in &hosts {
        assert!(page.lines().any(|line| line.starts_with(&host.address)), "{page}");
    }
    let (_, page, _) = asked(&["ask", "slow_calls"], &nodes);
    assert_eq!(page.matches("cuMemAlloc").count(), 2, "{page}");
    let (_, said, _) = asked(&["ask", "slow_calls", "--json"], &nodes);
    let said: Value = serde_json::from_str(&said).unwrap();
    for (one, host) in said["nodes"].as_array().unwrap().iter().zip(&hosts) {
        assert_eq!((&one["node"], &one["error"]), (&json!(host.address), &Value::Null));
        assert!(one["answer"]["calls"].is_array(), "{one}");
        let clock = &one["clock"];
        let (ahead, error) = (clock["ahead_ns"].as_i64().unwrap(), clock["error_ns"].as_u64().unwrap());
        assert!(ahead.unsigned_abs() <= error, "the same clock is off by {ahead} ns, known to within {error}");
    }
    let (code, _, errors) = asked(&["ask", "demo"], &nodes);
    assert!(code == 1 && errors.contains("not asked of others"), "{errors}");
}

#[test]
fn a_clock_that_is_off_is_told() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let ahead = now + 3_600_000_000_000;
    let headers = format!("gpuwhy-received-ns: {ahead}\r\ngpuwhy-answered-ns: {ahead}\r\n");
    let host = one_that_says(http("200 OK", &headers, r#"{"columns": ["x"], "rows": [[1]], "truncated": null}"#));
    let (code, said, errors) = asked(&["query", "SELECT 1 AS x", "--csv"], &host);
    assert_eq!((code, said), (0, format!("node,x\n{host},1\n")), "{errors}");
    assert!(
        errors.contains(&format!("warning: {host}: its clock is ")) && errors.contains(" ahead, known"),
        "{errors}"
    );
}

#[test]
fn hosts_are_asked_with_tls_and_with_their_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("cert"), made.cert.pem()).unwrap();
    std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("token"), TOKEN).unwrap();
    std::fs::write(path("other"), TOKEN.replace('0', "1")).unwrap();
    let options = ["--tls-cert", "cert", "--tls-key", "key", "--token-file", "token"];
    let option = |text: &str| if text.starts_with("--") { text.to_owned() } else { path(text) };
    let host = Host::start_with("a", &options.map(option));
    let port = host.address.rsplit(':').next().unwrap();
    let ask = |node: &str, token: Option<&str>, trusted: Option<&str>| {
        let mut arguments = vec!["query", COUNT, "--csv", "--nodes", node];
        let token = token.map(path);
        arguments.extend(token.iter().flat_map(|file| ["--token-file", file]));
        let mut command = gpuwhy(&arguments);
        command.env_remove("GPUWHY_TOKEN").env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command.envs(trusted.map(|file| ("SSL_CERT_FILE", path(file))));
        output(command)
    };
    let encrypted = format!("https://localhost:{port}");
    let (code, said, errors) = ask(&encrypted, Some("token"), Some("cert"));
    assert_eq!((code, said), (0, format!("node,calls\nlocalhost:{port},6\n")), "{errors}");
    let refused = [
        (encrypted.as_str(), None, Some("cert"), "a token is needed"),
        (encrypted.as_str(), Some("other"), Some("cert"), "the token is not the right one"),
        (encrypted.as_str(), Some("token"), None, "certificate"),
        (&format!("http://localhost:{port}"), Some("token"), Some("cert"), "localhost"),
    ];
    for (node, token, trusted, why) in refused {
        let (code, said, errors) = ask(node, token, trusted);
        assert!(code == 1 && said.is_empty() && errors.contains(why), "{node} {token:?} {trusted:?}: {errors}");
    }
}

#[test]
fn traces_of_other_hosts_are_merged_and_exported() {
    let hosts = ["a", "b"].map(Host::start);
    let nodes = hosts.each_ref().map(|host| host.address.as_str()).join(",");
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.db");
    small_trace::write(&own);
    let merged = folder.path().join("merged.db");
    let (own, out) = (own.to_str().unwrap(), merged.to_str().unwrap());
    let (code, _, errors) = asked(&["merge", "-o", out, own], &format!("{nodes},{}", dead()));
    assert!(code == 0 && errors.contains("warning: "), "{errors}");
    let count = |sql| Finished::open(&merged, Vec::new()).number(sql);
    assert_eq!(count("SELECT count(*) FROM cuda_events"), 18);
    assert_eq!(count("SELECT count(DISTINCT host) FROM sessions"), 3);
    let lines_file = folder.path().join("calls.ndjson");
    let (code, _, errors) = asked(&["export", "--format", "ndjson", "-o", lines_file.to_str().unwrap()], &nodes);
    assert_eq!(code, 0, "{errors}");
    let lines = std::fs::read_to_string(&lines_file).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("cuMemAlloc")).count(), 2, "{lines}");
    for name in hosts.iter().flat_map(Host::files) {
        assert!(!name.to_string_lossy().contains("copy"), "{name:?} is left");
    }
    let (code, _, errors) = asked(&["merge", "-o", folder.path().join("none.db").to_str().unwrap()], &dead());
    assert_eq!(code, 2, "one trace is no merge: {errors}");
}

#[test]
fn root_a_host_without_room_for_a_copy_refuses_and_goes_on() {
    needs_root();
    let folder = tempfile::tempdir().unwrap();
    let disk = Mount::tmpfs("size=2m", &folder.path().join("disk"));
    let file = disk.path().join("trace.db");
    small_trace::write(&file);
    // What is left is less than three times the trace.
    let size = file.metadata().unwrap().len();
    let filled = usize::try_from((2 << 20) - 2 * size).unwrap();
    std::fs::write(disk.path().join("other"), vec![0; filled - (64 << 10)]).unwrap();
    let host = Host::serving(file, &[]);
    let out = folder.path().join("calls.ndjson");
    let (code, _, errors) = asked(&["export", "--format", "ndjson", "-o", out.to_str().unwrap()], &host.address);
    assert!(code == 1 && errors.contains("sent as a whole") && errors.contains("ask questions"), "{errors}");
    assert!(!out.exists() && host.files().len() <= 4, "{:?}", host.files());
    let (code, said, errors) = asked(&["query", COUNT, "--csv"], &host.address);
    assert_eq!((code, said), (0, format!("node,calls\n{},6\n", host.address)), "{errors}");
}

#[test]
fn what_cannot_be_asked_of_others_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.db");
    small_trace::write(&own);
    let own = own.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["query", "--nodes", "http://a/b", COUNT], 2, "names no host"),
        (&["query", "--nodes", "user:secret@a", COUNT], 2, "names no host"),
        (&["query", "--nodes", "a", "--folded"], 2, "--folded"),
        (&["query", "--nodes", "a", own, COUNT], 1, "the statement only"),
        (&["query", "--token-file", own, own, COUNT], 1, "--nodes"),
        (&["explain", "--nodes", "a", own], 1, "their own traces"),
        (&["ask", "--nodes", "a", "--db", own, "summary"], 1, "their own traces"),
        (&["export", "--nodes", "a", "--format", "ndjson"], 1, "--out"),
        (&["trace", "--token-file", own], 1, "--serve"),
    ];
    for (arguments, expected, said) in cases {
        let mut command = gpuwhy(arguments);
        command.env_remove("GPUWHY_TOKEN");
        let (code, stdout, stderr) = output(command);
        assert!(code == expected && stderr.contains(said) && stdout.is_empty(), "{arguments:?}: {code} {stderr}");
    }
}

#[test]
fn root_a_trace_is_asked_and_taken_whole_while_it_is_written() {
    needs_root();
    let place = Place::new();
    let mut running = Workload::new(&place.testbed).rate(1_000.0).calls(2_000).wait_end().start().unwrap();
    running.wait_ready().unwrap();
    let pid = running.pid().to_string();
    let mut tracing = place.trace(&["-p", &pid, "--serve", "127.0.0.1:0"]);
    tracing.wait_ready();
    let served = tracing.log.iter().find_map(|line| line.split("serving http://").nth(1));
    let node = served.and_then(|rest| rest.split('/').next()).unwrap_or_else(|| panic!("{:?}", tracing.log)).to_owned();
    running.go().unwrap();
    // The program lives until it is told to end, and so does the trace.
    wait_until("a row of a trace that is written", || {
        let (code, said, errors) = asked(&["query", COUNT, "--csv"], &node);
        assert_eq!(code, 0, "{errors}");
        said.lines().last().and_then(|line| line.rsplit(',').next()?.parse::<u64>().ok()).filter(|calls| *calls > 0)
    });
    let (code, page, errors) = asked(&["explain"], &node);
    assert!(code == 0 && page.contains(&node), "{page}{errors}");
    let (code, _, errors) = asked(&["ask", "check"], &node);
    assert!(code == 1 && errors.contains(&node), "a tracer does nothing on its host for others: {errors}");
    let out = place.dir.path().join("calls.ndjson");
    let (code, _, errors) = asked(&["export", "--format", "ndjson", "-o", out.to_str().unwrap()], &node);
    assert!(code == 0 && out.metadata().unwrap().len() > 0, "{errors}");
    let truth = running.finish().unwrap();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{status}");
    counts_agree(&truth, finished.check(), "driver");
    assert!(TcpStream::connect(&node).is_err(), "the port is closed with the trace");
}
