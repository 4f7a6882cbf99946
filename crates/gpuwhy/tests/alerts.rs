//! `trace --rules`: limits that are watched while a trace is taken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;
use support::script::Script;
use support::{Place, gpuwhy, needs_root, output, wait_until};

/// Allocates as many bytes as it is told to, or frees what it has last allocated.
const ALLOCATES: &str = "
driver = ctypes.CDLL(sys.argv[1])
context, kept = ctypes.c_void_p(), []
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
say('ready')
for line in sys.stdin:
    if line.strip() == 'free':
        driver.cuMemFree_v2(ctypes.c_uint64(kept.pop()))
    else:
        kept.append(0)
        address = ctypes.c_uint64()
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_uint64(int(line)))
        kept[-1] = address.value
    say('done')
";

fn events(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Takes what is posted, to its end: who closes a connection before may break it.
fn answer(hook: &TcpListener) {
    let mut reader = BufReader::new(hook.accept().unwrap().0);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("POST / HTTP/1.1\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    reader.read_exact(&mut vec![0; length.unwrap()]).unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).unwrap();
}

#[test]
fn root_a_process_that_takes_too_much_memory_is_told_until_it_gives_it_back() {
    needs_root();
    let place = Place::new();
    let beside = |name: &str| place.file().with_file_name(name);
    let (rules, lines) = (beside("rules.toml"), beside("alerts.jsonl"));
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let alert = |name: &str, above: &str| {
        format!(
            "[[alert]]\nname = \"{name}\"\nwhen = \"process-memory\"\nabove = \"{above}\"\nuntil_after = \"0s\"\n\
             actions = [\"log\", \"lines\", \"hook\"]\n"
        )
    };
    let text = format!(
        "[[action]]\nname = \"lines\"\njson = \"{}\"\n[[action]]\nname = \"hook\"\nwebhook = \"http://{}/\"\n{}{}",
        lines.display(),
        hook.local_addr().unwrap(),
        alert("much", "1MiB"),
        alert("more", "1GiB"),
    );
    std::fs::write(&rules, text).unwrap();
    let library = place.testbed.libcuda();
    let mut script = Script::python(ALLOCATES, &[library.to_str().unwrap()]);
    script.wait_for("ready");
    let pid = script.pid();
    let mut tracing = place.trace(&["-p", &pid.to_string(), "--rules", rules.to_str().unwrap()]);
    tracing.wait_ready();
    script.say("1000");
    script.wait_for("done");
    script.say(&(2 << 20).to_string());
    script.wait_for("done");
    let fired = wait_until("the alert fires", || events(&lines).first().cloned());
    assert_eq!((fired["alert"].as_str(), fired["state"].as_str()), (Some("much"), Some("firing")), "{fired}");
    assert_eq!(
        (fired["pid"].as_u64(), fired["value"].as_f64()),
        (Some(pid.into()), Some(f64::from((2 << 20) + 1000))),
        "{fired}"
    );
    answer(&hook);
    script.say("free");
    script.wait_for("done");
    let over = wait_until("the alert is over", || events(&lines).get(1).cloned());
    assert_eq!((over["alert"].as_str(), over["state"].as_str()), (Some("much"), Some("over")), "{over}");
    answer(&hook);
    script.finish();
    let (status, finished) = tracing.wait_finished();
    assert!(status.success(), "{:#?}", finished.log);
    assert_eq!(events(&lines).len(), 2, "{:#?}", events(&lines));
    assert!(!finished.log.iter().any(|line| line.contains("could not be told")), "{:#?}", finished.log);
    let said = format!("alert much: python3 ({pid}) has 2.00 MiB of GPU memory, more than 1.00 MiB");
    assert!(finished.log.iter().any(|line| line.contains(&said)), "{:#?}", finished.log);
}

#[test]
fn rules_with_a_mistake_are_refused_before_anything_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rules) = (folder.path().join("trace.db"), folder.path().join("rules.toml"));
    let trace =
        |rules: &Path| output(gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--rules", rules.to_str().unwrap()]));
    std::fs::write(&rules, "[[alert]]\nname = \"a\"\nwhen = \"weather\"\n").unwrap();
    let (code, _, stderr) = trace(&rules);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("rules.toml: line 3, column 8: \"weather\" is not measured"), "{stderr}");
    let (code, _, stderr) = trace(&folder.path().join("elsewhere.toml"));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("read the rules in") && stderr.contains("No such file"), "{stderr}");
    assert!(!file.exists());
}
