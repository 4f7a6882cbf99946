//! What each crate may depend on: the code map of ARCHITECTURE.md as a test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::Command;

use serde_json::Value;

/// Every crate of ours, from the bottom up. A crate depends only on those before it, tests included: nothing points back.
const ORDER: &[&str] = &[
    "gpuwhy-model",
    "gpuwhy-apis",
    "gpuwhy-metrics",
    "gpuwhy-alerts",
    "gpuwhy-fleet",
    "gpuwhy-window",
    "gpuwhy-testbed",
    "gpuwhy-stacks",
    "gpuwhy-capture",
    "gpuwhy-store",
    "gpuwhy-history",
    "gpuwhy-agent",
    "gpuwhy-analysis",
    "gpuwhy-questions",
    "gpuwhy-exports",
    "gpuwhy-outputs",
    "gpuwhy",
    "xtask",
];

const SQL: &[&str] = &["rusqlite", "libsqlite3-sys"];
const BPF: &[&str] = &["libbpf-rs", "libbpf-sys"];
const ASYNC: &[&str] = &["tokio", "axum", "hyper", "rmcp"];
const TRACE_FILE: &[&str] = &["gpuwhy-store"];
const DOORS: &[&str] = &["gpuwhy-outputs"];
const ANSWERS: &[&str] = &["gpuwhy-analysis", "gpuwhy-questions"];
const FAKES: &[&str] = &["gpuwhy-testbed"];
const STACKS: &[&str] = &["gpuwhy-stacks"];

/// What a crate may not depend on, neither itself nor through others. Tests may.
const MAY_NOT: &[(&str, &[&[&str]])] = &[
    ("gpuwhy-testbed", &[SQL, BPF, ASYNC]),
    ("gpuwhy-stacks", &[SQL, BPF, ASYNC, TRACE_FILE, FAKES]),
    ("gpuwhy-capture", &[SQL, ASYNC, TRACE_FILE, STACKS, FAKES]),
    ("gpuwhy-store", &[BPF, ASYNC, STACKS, FAKES]),
    ("gpuwhy-history", &[BPF, ASYNC, STACKS, FAKES, ANSWERS]),
    ("gpuwhy-agent", &[ASYNC, ANSWERS, FAKES]),
    ("gpuwhy-analysis", &[SQL, BPF, ASYNC, TRACE_FILE, STACKS, FAKES]),
    ("gpuwhy-questions", &[BPF, ASYNC, STACKS, FAKES, DOORS]),
    ("gpuwhy-exports", &[BPF, ASYNC, STACKS, FAKES, DOORS]),
    ("gpuwhy-outputs", &[BPF, STACKS, FAKES]),
];

/// Crates of plain data and pure functions: all that they depend on themselves.
const MAY_ONLY: &[(&str, &[&str])] = &[
    ("gpuwhy-model", &["schemars", "serde", "serde_json"]),
    ("gpuwhy-apis", &["gpuwhy-model"]),
    ("gpuwhy-metrics", &["gpuwhy-model"]),
    ("gpuwhy-alerts", &["gpuwhy-model", "serde", "toml"]),
    ("gpuwhy-fleet", &["gpuwhy-model", "hashbrown", "ring", "schemars", "serde"]),
    ("gpuwhy-window", &["gpuwhy-model"]),
    ("gpuwhy-analysis", &["gpuwhy-model", "gpuwhy-window"]),
];

#[test]
fn every_crate_has_a_place_and_depends_only_on_those_below_it() {
    let graph = Graph::of_workspace();
    let placed: BTreeSet<&str> = ORDER.iter().copied().collect();
    assert_eq!(graph.ours.iter().map(String::as_str).collect::<BTreeSet<_>>(), placed, "add the new crate to ORDER");
    let place = |name: &str| ORDER.iter().position(|one| *one == name);
    for (name, dependencies) in &graph.all {
        // The testbed's own tests depend on it with all of its features.
        let others = dependencies.iter().filter(|other| *other != name);
        for other in others.filter(|other| place(other).is_some() && place(name).is_some()) {
            assert!(place(other) < place(name), "{name} may not depend on {other}, which stands above it");
        }
    }
}

#[test]
fn no_crate_depends_on_what_it_may_not() {
    let graph = Graph::of_workspace();
    for (name, groups) in MAY_NOT {
        assert!(graph.ours.contains(*name), "{name} is no crate of ours");
        for forbidden in groups.iter().copied().flatten() {
            assert!(graph.normal.contains_key(*forbidden), "{forbidden} is in no crate: what has its place?");
            if let Some(path) = graph.path(name, forbidden) {
                panic!("{name} may not depend on {forbidden}, but does: {}", path.join(" -> "));
            }
        }
    }
}

#[test]
fn crates_of_plain_data_depend_on_nothing_else() {
    let graph = Graph::of_workspace();
    for (name, allowed) in MAY_ONLY {
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        let found: BTreeSet<&str> = graph.normal[*name].iter().map(String::as_str).collect();
        assert!(found.is_subset(&allowed), "{name} may only depend on {allowed:?}, but has {found:?}");
    }
}

#[test]
fn a_dependency_through_others_is_found_with_the_way_to_it() {
    let edges = [("explain", "file"), ("file", "sql"), ("explain", "words"), ("sql", "words")];
    let mut graph = Graph::default();
    for (from, to) in edges {
        graph.normal.entry(from.to_owned()).or_default().insert(to.to_owned());
    }
    assert_eq!(graph.path("explain", "sql").unwrap(), ["explain", "file", "sql"]);
    assert_eq!(graph.path("words", "sql"), None);
}

/// Who depends on whom, by name. Two versions of a crate are one.
#[derive(Default)]
struct Graph {
    ours: BTreeSet<String>,
    /// What a crate is built from.
    normal: BTreeMap<String, BTreeSet<String>>,
    /// With what its tests and its build script need.
    all: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn of_workspace() -> Self {
        // Without the platform, crates for others would have to be there.
        let arguments =
            ["--format-version", "1", "--offline", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
        let output = Command::new(env!("CARGO"))
            .arg("metadata")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        Self::read(&serde_json::from_slice(&output.stdout).unwrap())
    }

    fn read(metadata: &Value) -> Self {
        let list = |value: &Value| value.as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let packages = list(&metadata["packages"]);
        let names: BTreeMap<String, String> =
            packages.iter().map(|one| (text(&one["id"]), text(&one["name"]))).collect();
        let ours = list(&metadata["workspace_members"]).iter().map(|id| names[&text(id)].clone()).collect();
        let mut graph = Self { ours, ..Self::default() };
        for node in list(&metadata["resolve"]["nodes"]) {
            let name = &names[&text(&node["id"])];
            let normal = graph.normal.entry(name.clone()).or_default();
            let all = graph.all.entry(name.clone()).or_default();
            for dependency in list(&node["deps"]) {
                let other = &names[&text(&dependency["pkg"])];
                all.insert(other.clone());
                // The kind of a dependency that is neither for tests nor for the build script is null.
                if list(&dependency["dep_kinds"]).iter().any(|one| one["kind"].is_null()) {
                    normal.insert(other.clone());
                }
            }
        }
        graph
    }

    /// The shortest way from a crate to another one that it is built from.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut reached: BTreeSet<&str> = BTreeSet::from([from]);
        let mut paths: VecDeque<Vec<&str>> = VecDeque::from([vec![from]]);
        while let Some(path) = paths.pop_front() {
            for next in self.normal.get(*path.last()?).into_iter().flatten().map(String::as_str) {
                let longer: Vec<&str> = path.iter().copied().chain([next]).collect();
                if next == to {
                    return Some(longer.iter().map(|&name| name.to_owned()).collect());
                }
                if reached.insert(next) {
                    paths.push_back(longer);
                }
            }
        }
        None
    }
}
