//! `trace --prometheus`: what is scraped is what the trace has. Prometheus itself is asked in `tests/peers`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use gpuwhy_store::Value;
use gpuwhy_testbed::{Ranks, Undisturbed, Workload};
use support::script::Script;
use support::{Finished, Place, Tracing, gpuwhy, needs_root, output, wait_until};

/// The answer to a request for this path, head and body.
fn get(address: &str, path: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let reply = String::from_utf8_lossy(&reply);
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

/// The labels and values of all exemplars.
fn exemplars(text: &str) -> Vec<([String; 3], f64)> {
    let told = text.lines().filter_map(|line| line.split_once(" # {")?.1.split_once("} "));
    let exemplar = |(labels, values): (&str, &str)| {
        let values_of =
            |name: &str| labels.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
        (["pid", "tid", "call"].map(values_of), values.split(' ').next().unwrap().parse().unwrap())
    };
    told.map(exemplar).collect()
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
    let exemplars = wait_until("slow calls are told of", || {
        let exemplars = exemplars(&get(&address, "/metrics", "application/openmetrics-text").1);
        (!exemplars.is_empty()).then_some(exemplars)
    });
    company.finish();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{:#?}", finished.log);
    for (labels, seconds) in exemplars {
        let [pid, tid, call] = labels;
        let at_ns = call.strip_prefix("cuda:").unwrap();
        let of_call = format!("SELECT duration_ns FROM cuda_events WHERE id = {at_ns} AND pid = {pid} AND tid = {tid}");
        assert_eq!(finished.number(&of_call), (seconds * 1e9).round() as i64, "{at_ns}");
    }
    let told = finished.number(&format!("SELECT sum(count) FROM call_stats WHERE pid = {pid}"));
    assert_eq!(sum(&text, &calls), told as f64, "{text}");
}

/// What metrics of these processes say, by name, without its beginning, and labels.
fn told(text: &str, pids: &BTreeSet<i64>) -> BTreeMap<String, f64> {
    let is_of_one = |labels: &str| pids.iter().any(|pid| labels.starts_with(&format!("pid=\"{pid}\",")));
    let told = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("gpuwhy_collective_")?.split_once('{')?;
        let (labels, value) = rest.rsplit_once("} ").filter(|(labels, _)| is_of_one(labels))?;
        Some((format!("{name} {labels}"), value.parse().unwrap()))
    });
    told.collect()
}

/// The same of the trace.
fn kept(file: &Path, pids: &BTreeSet<i64>) -> BTreeMap<String, f64> {
    const LABELS: &str = r#"'pid="' || pid || '",comm="' || process_comm
        || '",communicator="' || CASE WHEN comm_id_hash IS NULL THEN '' ELSE printf('%016x', comm_id_hash) END
        || '",rank="' || coalesce(rank, '')"#;
    const FROM: &str = "FROM nccl_events WHERE op NOT LIKE 'COMM%' AND pid IN";
    let pids = pids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let sql = format!(
        r#"SELECT 'operations_total ' || {LABELS} || '",op="' || op || '"' AS labels, count(*) {FROM} ({pids}) GROUP BY labels
        UNION ALL SELECT 'bytes_total ' || {LABELS} || '",op="' || op || '"' AS labels, sum(bytes) {FROM} ({pids}) GROUP BY labels
        UNION ALL SELECT 'wait_seconds_total ' || {LABELS} || '"' AS labels, sum(wait_ns) {FROM} ({pids}) AND wait_ns IS NOT NULL
        GROUP BY labels"#
    );
    let row = |row: Vec<Value>| match &row[..] {
        [Value::Text(labels), Value::Integer(number)] => {
            let unit = if labels.starts_with("wait_seconds") { 1e9 } else { 1.0 };
            (labels.clone(), *number as f64 / unit)
        }
        other => panic!("{other:?}"),
    };
    Finished::open(file, Vec::new()).rows(&sql).into_iter().map(row).collect()
}

fn is_same(told: &BTreeMap<String, f64>, kept: &BTreeMap<String, f64>) -> bool {
    let is_near = |(one, other): (&f64, &f64)| (one - other).abs() < 1e-6;
    told.keys().eq(kept.keys()) && told.values().zip(kept.values()).all(is_near)
}

/// One job has made its communicators before the trace, so that nobody knows its ranks. It also keeps the libraries in use, so
/// that nothing of the other job is missed.
#[test]
fn root_operations_of_several_gpus_are_told_by_communicator_and_rank_as_the_trace_has_them() {
    needs_root();
    let place = Place::new();
    let gate = place.dir.path().join("gate");
    let early = Ranks { ranks: 2, rounds: 3, gate: Some(gate.clone()), ..Ranks::default() };
    let early = early.command(&place.testbed, &place.testbed.ranks());
    let early = std::thread::spawn(move || output(early));
    let is_made = |rank: u32| place.dir.path().join(format!("gate.{rank}")).exists();
    wait_until("communicators are made", || (is_made(0) && is_made(1)).then_some(()));
    let mut tracing = place.trace(&["--prometheus", "127.0.0.1:0"]);
    let address = address(&mut tracing);
    tracing.wait_ready();
    let job = Ranks { ranks: 3, rounds: 20, ..Ranks::default() };
    let (code, mut said, log) = output(job.command(&place.testbed, &place.testbed.ranks()));
    assert_eq!(code, 0, "{log}");
    std::fs::write(&gate, "").unwrap();
    said += &early.join().unwrap().1;
    let said = Ranks::operations(&said).unwrap();
    let pids: BTreeSet<i64> = said.iter().map(|one| one.pid).collect();
    let file = place.file();
    let told = wait_until("metrics say what the trace has", || {
        let told = told(&get(&address, "/metrics", "text/plain").1, &pids);
        (sum_of(&told, "operations_total") == said.len() as f64 && is_same(&told, &kept(&file, &pids))).then_some(told)
    });
    let is_known = |labels: &&String| !labels.contains("communicator=\"\"") && !labels.contains("rank=\"\"");
    assert!(told.keys().filter(is_known).count() >= 6, "{told:#?}");
    // A split is told by the ranks that all said they take part in it; of the early job nobody heard.
    assert!(told.keys().any(|labels| labels.contains("communicator=\"\",rank=\"\",op=\"ALL_REDUCE\"")), "{told:#?}");
    tracing.stop();
}

fn sum_of(told: &BTreeMap<String, f64>, name: &str) -> f64 {
    told.iter().filter(|(labels, _)| labels.starts_with(name)).map(|(_, value)| value).sum()
}

/// One of three ranks sleeps 40 ms before each step.
#[test]
fn root_the_rank_that_comes_late_has_the_lag() {
    needs_root();
    let (place, machine) = (Place::new(), Undisturbed::since_now());
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ranks.py");
    let (driver, nccl) = (place.testbed.libcuda(), place.testbed.libnccl());
    let file = place.file();
    let mut command =
        gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--prometheus", "127.0.0.1:0", "--", "python3", "-B"]);
    command.arg(program).arg(driver).arg("25").arg(nccl).args(["sleeps", "3", "40"]);
    let mut tracing = Tracing::start(command, file);
    let address = address(&mut tracing);
    let text = wait_until("somebody is late", || {
        let text = get(&address, "/metrics", "text/plain").1;
        text.contains("gpuwhy_collective_lag_").then_some(text)
    });
    let told = |name: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
    };
    let (lags, waits) = (told("gpuwhy_collective_lag_"), told("gpuwhy_collective_wait_seconds_total"));
    let of = |name: &str, rank: u32| -> Vec<f64> {
        let rank = format!(",rank=\"{rank}\"}} ");
        let lags = lags.iter().filter(|line| line.starts_with(name)).filter_map(|line| line.split_once(&rank));
        lags.map(|(_, value)| value.parse().unwrap()).collect()
    };
    // In each of two communicators; in the second one nobody is late once more.
    assert_eq!([0, 1, 2].map(|rank| (of("ratio", rank).len(), of("seconds", rank).len())), [(2, 2); 3], "{lags:#?}");
    let most = |name: &str, rank: u32| of(name, rank).into_iter().fold(0.0, f64::max);
    let is_so = most("ratio", 1) > 0.3
        && (0.03..0.08).contains(&most("seconds", 1))
        && [0, 2].iter().all(|&rank| most("ratio", rank) < most("ratio", 1) / 3.0);
    let waited = |rank: u32| -> f64 {
        let rank = format!(",rank=\"{rank}\"}} ");
        waits.iter().filter_map(|line| line.split_once(&rank)).map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    };
    let is_so = is_so && [0, 2].iter().all(|&rank| waited(rank) > waited(1) && waited(rank) > 0.1);
    machine.expect("who is late", is_so.then_some(()).ok_or_else(|| format!("{lags:#?} {waits:#?}")));
    // The ranks end by themselves.
    tracing.wait_finished();
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
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let (head, body) = get(&address, "/metrics", &format!("{protobuf},text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
    assert!(head.contains("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily"), "{head}");
    assert!(body.contains("gpuwhy_metrics_series_budget") && !body.contains("# TYPE"), "{body}");
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
