//! Who shares a GPU: users, jobs and whatever else processes are labelled with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use gpuwhy_testbed::{Testbed, Truth, Workload};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, chown};
use support::{Place, gpuwhy, needs_root, output};

fn asked(place: &Place, words: &[&str]) -> Value {
    let file = place.file();
    let (code, said, stderr) =
        output(gpuwhy(&[&["ask", "tenants", "--db", file.to_str().unwrap(), "--json"], words].concat()));
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&said).unwrap()
}

/// Name, processes and calls of each.
fn told(answer: &Value) -> Vec<(String, u64, u64)> {
    let tenants = answer["tenants"].as_array().unwrap().iter();
    let mut told: Vec<_> = tenants
        .map(|one| {
            let name = one["tenant"].as_str().unwrap_or("nobody knows").to_owned();
            (name, one["processes"].as_u64().unwrap(), one["calls"].as_u64().unwrap())
        })
        .collect();
    told.sort();
    told
}

fn calls(truth: &Truth) -> u64 {
    truth.calls.iter().filter(|calls| calls.layer == "driver").map(|calls| calls.calls).sum()
}

#[test]
fn root_users_and_jobs_are_told_apart_with_what_each_of_them_did() {
    needs_root();
    let (place, folder) = (Place::new(), tempfile::tempdir().unwrap());
    let others = Testbed::unpack(folder.path()).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(65534), None).unwrap();
    let own = Workload::new(&place.testbed).mix("all").calls(300).env("SLURM_JOB_ID", "12");
    let other = Workload::new(&others).mix("all").calls(500).env("SLURM_JOB_ID", "7");
    let other = other.through(&["setpriv", "--reuid=65534", "--clear-groups"]);
    let mut running = [own.start().unwrap(), other.start().unwrap()];
    let mut pids = Vec::new();
    for one in &mut running {
        one.wait_ready().unwrap();
        pids.extend(["-p".to_owned(), one.pid().to_string()]);
    }
    let mut tracing = place.trace(&pids.iter().map(String::as_str).collect::<Vec<_>>());
    tracing.wait_ready();
    let [own, other] = running.map(|one| calls(&one.finish().unwrap()));
    assert!(tracing.wait_finished().0.success());

    let by_job = asked(&place, &[]);
    assert_eq!(by_job["by"], "job");
    assert_eq!(told(&by_job), [("12".to_owned(), 1, own), ("7".to_owned(), 1, other)]);
    let gpus = &by_job["tenants"][0]["gpus"];
    assert!(gpus[0]["device"] == 0 && gpus[0]["active_s"].as_u64() >= Some(1), "{by_job:#}");
    let by_user = asked(&place, &["--by", "user"]);
    assert_eq!(told(&by_user), [("nobody".to_owned(), 1, other), ("root".to_owned(), 1, own)]);
    assert_eq!(told(&asked(&place, &["--by", "team"])), [("nobody knows".to_owned(), 2, own + other)]);
}
