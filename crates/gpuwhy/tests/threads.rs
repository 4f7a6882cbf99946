//! Threads: what they are called, however strange, and however many come and go.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use gpuwhy_testbed::Workload;
use support::script::Script;
use support::{Place, gpuwhy, needs_root, number_so_far, output, traced, wait_until};

#[test]
fn root_names_with_quotes_newlines_escape_codes_and_bad_text_are_kept_and_shown_safely() {
    needs_root();
    let place = Place::new();
    let workload = Workload::new(&place.testbed).mix("launch").calls(3).name("a\"',\\x0a\\x1b[31m\\xffz");
    let (_, finished) = traced(&place, workload, &[]);
    finished.check();
    let name = "a\"',\n\u{1b}[31m\u{fffd}z";
    assert_eq!(finished.text("SELECT DISTINCT comm FROM cuda_events"), name);
    assert_eq!(finished.text("SELECT DISTINCT process_comm FROM cuda_events"), name);

    let file = place.file();
    let sql = "SELECT comm, process_comm FROM cuda_events LIMIT 1";
    let query = |format: &[&str]| output(gpuwhy(&[&["query", file.to_str().unwrap(), sql], format].concat())).1;
    let table = query(&[]);
    assert!(!table.contains('\u{1b}') && table.contains(r#"a"',\n\u{1b}[31m"#), "{table:?}");
    assert_eq!(table.lines().count(), 2, "{table:?}");
    let json: serde_json::Value = serde_json::from_str(&query(&["--json"])).unwrap();
    assert_eq!(json[0]["comm"], name);
    let quoted = "\"a\"\"',\n\u{1b}[31m\u{fffd}z\"";
    assert_eq!(query(&["--csv"]), format!("comm,process_comm\n{quoted},{quoted}\n"));
}

#[test]
fn root_the_lines_of_a_live_trace_are_json_whatever_a_thread_is_called() {
    needs_root();
    let place = Place::new();
    let file = place.file();
    let workload = place.testbed.workload();
    let command = [workload.to_str().unwrap(), "--mix", "launch", "--calls", "3", "--name", "\\x0a\\x1b[2J\""];
    let mut tracer = gpuwhy(&[&["trace", "--json", "--out", file.to_str().unwrap(), "--"], &command[..]].concat());
    tracer.env("LD_LIBRARY_PATH", place.testbed.dir());
    let (code, stdout, stderr) = output(tracer);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains('\u{1b}'), "{stdout:?}");
    let lines: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().filter(|line| line["comm"] == "\n\u{1b}[2J\"").count(), 5);
}

#[test]
fn root_a_thread_that_takes_another_name_is_known_by_it() {
    needs_root();
    const RENAMED: &str = "cuda = ctypes.CDLL(sys.argv[1]); libc = ctypes.CDLL(None)
say('ready'); wait()
libc.prctl(15, b'before'); cuda.cuLaunchKernel(); say('called'); wait()
libc.prctl(15, b'after'); cuda.cuLaunchKernel(); say('renamed'); wait()";
    let place = Place::new();
    let library = place.testbed.libcuda();
    let mut script = Script::python(RENAMED, &[library.to_str().unwrap()]);
    script.wait_for("ready");
    let mut tracing = place.trace(&["-p", &script.pid().to_string()]);
    tracing.wait_ready();
    script.say("go");
    script.wait_for("called");
    let name = || {
        let trace = support::Finished::open(&place.file(), Vec::new());
        trace.rows("SELECT comm FROM threads WHERE tid IN (SELECT tid FROM cuda_events)").pop()?.pop()
    };
    let is = |expected: &str| (name()? == gpuwhy_store::Value::Text(expected.into())).then_some(());
    wait_until("its first name is known", || is("before"));
    script.say("go");
    script.wait_for("renamed");
    wait_until("its second name is known", || is("after"));
    assert!(script.finish().success());
    let finished = tracing.wait_finished().1;
    finished.check();
    assert_eq!(finished.number("SELECT count(*) FROM cuda_events WHERE comm = 'after'"), 2);
}

/// The counters of so many threads are written before the next ones need them.
const THREADS_OF_ROUND: usize = 1000;

/// Threads of which each makes three calls to each of three functions, and ends. They come in rounds: the next one when
/// the file has all counts of the last one.
fn all_are_counted(threads: i64, at_once: i64) {
    const SHORT_LIVED: &str = "cuda = ctypes.CDLL(sys.argv[1])
def calls():
    for _ in range(3): cuda.cuLaunchKernel(), cuda.cuStreamSynchronize(), cuda.cuMemFree_v2()
say('ready'); wait()
total, at_once, of_round = (int(number) for number in sys.argv[2:])
for made in range(at_once, total + 1, at_once):
    threads = [threading.Thread(target=calls) for _ in range(at_once)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    if made % of_round == 0: say(made); wait()";
    let place = Place::new();
    let library = place.testbed.libcuda();
    let numbers = [threads, at_once, THREADS_OF_ROUND as i64].map(|number| number.to_string());
    let arguments = [library.to_str().unwrap(), &numbers[0], &numbers[1], &numbers[2]];
    let mut script = Script::python(SHORT_LIVED, &arguments);
    script.wait_for("ready");
    let mut tracing = place.trace(&["-p", &script.pid().to_string()]);
    tracing.wait_ready();
    script.say("go");
    let counted = || number_so_far(&place.file(), "SELECT sum(count) FROM call_stats");
    for made in (0..=threads).step_by(THREADS_OF_ROUND).skip(1) {
        script.wait_for(&made.to_string());
        wait_until("the calls of a round are counted", || counted().filter(|count| *count >= made * 9));
        script.say("go");
    }
    assert!(script.finish().success());
    let finished = tracing.wait_finished().1;
    for reason in ["uncounted", "no_thread_state", "life_ring_full", "ring_full"] {
        assert_eq!(finished.loss(reason), 0, "{reason}");
    }
    finished.check();
    for op in ["cuLaunchKernel", "cuStreamSynchronize", "cuMemFree"] {
        let counted = finished.number(&format!("SELECT sum(count) FROM call_stats WHERE op = '{op}'"));
        assert_eq!(counted, threads * 3, "{op}");
    }
}

#[test]
fn root_hundreds_of_threads_that_come_and_go_are_all_counted() {
    needs_root();
    all_are_counted(300, 100);
}

#[test]
fn root_counters_of_threads_that_ended_are_used_again() {
    // Three for each thread: more than three times as many as there are.
    needs_root();
    all_are_counted(9000, 50);
}
