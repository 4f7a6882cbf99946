//! What programs are told of the fabric between hosts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::Path;

use gpuwhy_store::Value;
use support::{Finished, Place, compiled_library, gpuwhy, needs_root, output};

/// As the public header declares it. A context is where events come from.
const LIBRARY: &str = "
    #include <unistd.h>
    struct ibv_context { int events; };
    struct ibv_async_event { union { void *cq; int port_num; } element; int event_type; };
    int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
    {
        event->element.port_num = 1;
        return read(context->events, &event->event_type, sizeof(int)) == sizeof(int) ? 0 : -1;
    }
    void ibv_ack_async_event(struct ibv_async_event *event) { event->event_type = -1; }
";

/// A job whose first rank is told of its device, and the process of that.
fn traced(place: &Place, options: &[&str]) -> (Finished, i64) {
    let file = place.file();
    let library = compiled_library(place.dir.path(), "libibverbs.so.1", LIBRARY);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/fabric.py");
    let mut command = gpuwhy(&["trace", "--budget", "0", "--out", file.to_str().unwrap()]);
    command.args(options).args(["--", "python3", "-B"]).arg(program);
    command.arg(place.testbed.libcuda()).arg("60").arg(place.testbed.libnccl()).arg(library);
    let (code, said, log) = output(command);
    assert_eq!(code, 0, "{log}");
    let finished = Finished::open(&file, vec![log]);
    finished.check();
    (finished, said.trim().parse().unwrap())
}

#[test]
fn root_a_port_that_fails_is_told_with_the_process_that_was_told_of_it() {
    needs_root();
    let place = Place::new();
    let (finished, pid) = traced(&place, &["--rdma-verbs"]);
    let told = finished.rows("SELECT pid, event, is_fabric_error FROM rdma_events ORDER BY timestamp_ns");
    let event = |word: &str, is_error| vec![Value::Integer(pid), Value::Text(word.into()), Value::Integer(is_error)];
    assert_eq!(told, [event("PORT_ERR", 1), event("PORT_ACTIVE", 0), event("PORT_ERR", 1)]);
    // To wait for news is nothing that holds anybody up.
    assert_eq!(finished.number("SELECT count(*) FROM cuda_events WHERE op LIKE 'ibv%'"), 0);
    assert_eq!(finished.number("SELECT count(*) FROM unfinished WHERE op LIKE 'ibv%'"), 0);
    let (_, said, _) = output(gpuwhy(&["explain", place.file().to_str().unwrap(), "--phase", "all", "--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let findings = said["findings"].as_array().unwrap();
    let found =
        findings.iter().find(|finding| finding["cause"] == "fabric-error").unwrap_or_else(|| panic!("{said:#}"));
    assert_eq!(found["severity"], "medium", "{found:#}");
    let summary = format!("The fabric counted errors meanwhile: 2 PORT_ERR on a device of python3 ({pid}).");
    assert_eq!(found["summary"], summary.as_str());
}

#[test]
fn root_nobody_listens_to_the_fabric_unless_asked_to() {
    needs_root();
    let place = Place::new();
    let (finished, _) = traced(&place, &[]);
    assert_eq!(finished.number("SELECT count(*) FROM rdma_events"), 0);
    assert_eq!(finished.number("SELECT count(*) FROM warnings WHERE text LIKE '%libibverbs%'"), 0);
}
