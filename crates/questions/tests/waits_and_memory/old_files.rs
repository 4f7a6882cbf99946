//! Every one of these questions has an answer on an empty trace and on files of earlier versions.

use std::path::Path;

use serde_json::json;

use crate::support::*;

const NAMES: &[&str] = &["waits", "off_cpu", "stacks", "memory", "coverage", "annotations", "tenants"];

#[test]
fn an_empty_trace_has_empty_answers() {
    let scene = Scene::new().finished();
    for name in NAMES {
        let answer = ask(&scene.path, name, json!({})).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(answer["trace"], json!("trace.db"), "{name}");
    }
    for of in ["calls", "waits", "wakers", "running"] {
        let answer = ask(&scene.path, "stacks", json!({"of": of, "folded": true})).unwrap();
        assert_eq!(answer["stacks"], json!([]));
        assert_eq!(answer["folded"]["lines"], json!([]));
    }
}

#[test]
fn files_of_earlier_versions_are_answered_with_what_they_have() {
    let directory = tempfile::tempdir().unwrap();
    for version in 1..=3 {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../store/tests/data/version-{version}.trace"));
        let path = directory.path().join(format!("version-{version}.trace"));
        std::fs::copy(kept, &path).unwrap();
        for name in NAMES {
            let answer = ask(&path, name, json!({})).unwrap_or_else(|error| panic!("{name}, {version}: {error}"));
            assert!(number(&answer["coverage"]["events"]) > 0, "{name}, {version}");
        }
        let waits = ask(&path, "off_cpu", json!({})).unwrap();
        assert_eq!(waits["waits"].as_array().unwrap().is_empty(), version < 3, "{version}");
        let memory = ask(&path, "memory", json!({})).unwrap();
        let unknown = memory["processes"][0]["unknown"].to_string();
        assert_eq!(unknown.contains("earlier version"), version < 3, "{version}: {unknown}");
        let stacks = ask(&path, "stacks", json!({})).unwrap();
        assert_eq!(stacks["stacks"], json!([]));
    }
}
