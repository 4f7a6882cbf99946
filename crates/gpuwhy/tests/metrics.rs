//! `trace --prometheus`: what is scraped is what the trace has. Prometheus itself is asked in `tests/peers`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use gpuwhy_testbed::Workload;
use support::script::Script;
use support::{Place, Tracing, gpuwhy, needs_root, output, wait_until};

/// The answer to a request for this path, head and body.
fn get(address: &str, path: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn address(tracing: &mut Tracing) -> String {
    tracing.wait_for("metrics at http://");
    let line = tracing.log.iter().find_map(|line| line.split_once("http://")).unwrap();
    line.1.split('/').next().unwrap().to_owned()
}

/// The sum of all lines that begin like this.
fn sum(text: &str, start: &str) -> f64 {
    let values = text.lines().filter(|line| line.starts_with(start)).map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<f64>().unwrap()).sum()
}

#[test]
fn root_what_is_scraped_is_what_was_called() {
    needs_root();
    let place = Place::new();
    let mut running = Workload::new(&place.testbed).mix("launch").threads(2).calls(5_000).start().unwrap();
    running.wait_ready().unwrap();
    // The trace goes on after the workload has ended.
    let company = Script::shell("echo here; read line", &[]);
    let (pid, other) = (running.pid().to_string(), company.pid().to_string());
    let mut tracing = place.trace(&["-p", &pid, "-p", &other, "--prometheus", "127.0.0.1:0"]);
    let address = address(&mut tracing);
    tracing.wait_ready();
    running.finish().unwrap();
    let calls = format!("gpuwhy_calls_total{{pid=\"{pid}\",");
    let text = wait_until("all calls are told of", || {
        let text = get(&address, "/metrics", "*/*").1;
        (sum(&text, &format!("{calls}comm=\"workload\",function=\"cuLaunchKernel\"}}")) == 10_000.0).then_some(text)
    });
    let launches = "gpuwhy_call_duration_seconds_count{function=\"cuLaunchKernel\"}";
    assert_eq!(sum(&text, launches), 10_000.0, "{text}");
    let threads = format!("gpuwhy_dispatch_thread_seconds_total{{pid=\"{pid}\",comm=\"workload\",state=\"running\"}}");
    assert!(sum(&text, &threads) > 0.0, "{text}");
    assert_eq!(sum(&text, "gpuwhy_tracer_lost_records_total"), 0.0, "{text}");
    company.finish();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{:#?}", finished.log);
    let told = finished.number(&format!("SELECT sum(count) FROM call_stats WHERE pid = {pid}"));
    assert_eq!(sum(&text, &calls), told as f64, "{text}");
}

#[test]
fn root_each_gets_the_format_it_asks_for_and_nothing_else_is_there() {
    needs_root();
    let place = Place::new();
    let company = Script::shell("echo here; read line", &[]);
    let mut tracing = place.trace(&["-p", &company.pid().to_string(), "--prometheus", "127.0.0.1:0"]);
    let address = address(&mut tracing);
    tracing.wait_ready();
    let (head, body) = get(&address, "/metrics", "text/plain");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\ngpuwhy_metrics_series_budget 10000\n") && !body.contains("# EOF"), "{body}");
    let (head, body) = get(&address, "/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    assert!(get(&address, "/", "*/*").0.starts_with("HTTP/1.1 404 "));
    // A client that is gone before the answer is there harms nobody.
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    assert!(get(&address, "/metrics", "*/*").0.starts_with("HTTP/1.1 200 "));
    company.finish();
    assert!(tracing.wait_finished().0.success());
}

#[test]
fn a_port_that_cannot_be_had_is_told_before_anything_is_traced() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.db");
    let all = ["trace", "--out", file.to_str().unwrap(), "--prometheus"];
    let (code, _, stderr) = output(gpuwhy(&[&all[..], &[&address]].concat()));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("listen on") && stderr.contains("choose another address"), "{stderr}");
    assert!(!file.exists());
    let (code, _, stderr) = output(gpuwhy(&[&all[..], &["9464"]].concat()));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("127.0.0.1:8080"), "{stderr}");
}
