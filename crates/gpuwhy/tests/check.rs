//! `gpuwhy check` names every process that uses CUDA, and says why one cannot be seen.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::Path;
use std::process::Command;

use gpuwhy_capture::FEATURES;
use gpuwhy_testbed::Workload;
use gpuwhy_testbed::stacks::Python;
use serde_json::Value;
use support::script::Script;
use support::{Place, gpuwhy, needs_root, output};

/// What `check --json` says, and about one process.
fn report(pid: u32) -> (Value, Value) {
    let (code, stdout, stderr) = output(gpuwhy(&["check", "--json"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let process = report["processes"].as_array().unwrap().iter().find(|process| process["pid"] == pid);
    let process = process.cloned().unwrap_or(Value::Null);
    (report, process)
}

#[test]
fn root_a_process_that_can_be_traced_is_listed_with_its_libraries() {
    needs_root();
    let place = Place::new();
    let mut running = Workload::new(&place.testbed).nested().start().unwrap();
    running.wait_ready().unwrap();
    let (report, process) = report(running.pid());
    assert_eq!(report["can_trace"], true, "{report:#}");
    for name in ["kernel", "privilege", "BTF", "features", "tracefs", "probes", "stacks", "cost"] {
        let line = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap();
        assert_eq!(line["ok"], true, "{line}");
    }
    assert_eq!(process["comm"], "workload");
    assert_eq!(process["not_attached"], Value::Null);
    assert_eq!(process["python"], Value::Null, "it is written in C");
    let libraries = process["attachable"].as_array().unwrap();
    for (name, path) in [("cuda-driver", place.testbed.libcuda()), ("cuda-runtime", place.testbed.libcudart())] {
        let library = libraries.iter().find(|library| library["library"] == name).unwrap();
        assert_eq!(library["path"], path.to_str().unwrap());
        assert!(library["functions"].as_u64().unwrap() > 50, "{library}");
    }
}

#[test]
fn root_every_feature_of_the_kernel_is_listed_with_what_a_trace_lacks_without_it() {
    needs_root();
    let (report, _) = report(0);
    let listed = report["features"].as_array().unwrap();
    for feature in FEATURES {
        let line = listed.iter().find(|line| line["name"] == feature.name).unwrap();
        assert!(line["ok"].is_boolean(), "it could be tried: {line}");
        assert_eq!(line["without"], feature.without.as_str());
        assert!(line["ok"] == true || line["required"] == false, "{line}");
    }
    let families = listed.iter().filter(|line| line["name"].as_str().unwrap().ends_with(" family"));
    assert_eq!(families.count(), 5, "{listed:#?}");
    let (_, stdout, _) = output(gpuwhy(&["check"]));
    for line in listed {
        let state = if line["ok"] == true { "on" } else { "off" };
        let told = stdout.lines().find(|told| told.starts_with(state) && told.contains(line["name"].as_str().unwrap()));
        assert!(told.is_some(), "{line}: {stdout}");
    }
}

#[test]
fn root_a_file_that_only_has_the_name_of_the_driver_is_told_with_the_reason() {
    needs_root();
    let place = Place::new();
    let broken = place.dir.path().join("broken").join("libcuda.so.1");
    std::fs::create_dir(broken.parent().unwrap()).unwrap();
    std::fs::write(&broken, "not a library".repeat(1000)).unwrap();
    let map = "file = open(sys.argv[1])
code = mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
say('ready'); wait()";
    let mut script = Script::python(map, &[broken.to_str().unwrap()]);
    script.wait_for("ready");
    let (_, process) = report(script.pid());
    let why = process["not_attached"].as_str().unwrap();
    assert!(why.contains("broken/libcuda.so.1") && why.contains("not a 64-bit ELF file"), "{why}");

    let (code, stdout, _) = output(gpuwhy(&["check", "--exit-code"]));
    assert_eq!(code, 3);
    let line = stdout.lines().find(|line| line.contains("broken/libcuda.so.1")).unwrap();
    assert!(line.contains("uses CUDA but is not attached:"), "{line}");
    // A trace says the same.
    let tracing = place.trace(&["--duration", "100ms"]);
    let (status, finished) = tracing.wait_finished();
    assert!(status.success());
    let told = finished.log.iter().any(|line| line.contains("broken/libcuda.so.1") && line.contains("64-bit ELF"));
    assert!(told, "{:#?}", finished.log);
    let kept = finished.number("SELECT count(*) FROM warnings WHERE text LIKE '%broken/libcuda.so.1%'");
    assert_eq!(kept, 1);
}

#[test]
fn root_a_process_that_has_the_runtime_and_not_the_driver_is_told_apart() {
    needs_root();
    let place = Place::new();
    let runtime = place.testbed.libcudart();
    let mut script = Script::python("ctypes.CDLL(sys.argv[1]); say('ready'); wait()", &[runtime.to_str().unwrap()]);
    script.wait_for("ready");
    let (_, process) = report(script.pid());
    assert_eq!(process["attachable"][0]["library"], "cuda-runtime");
    let why = process["not_attached"].as_str().unwrap();
    assert!(why.contains("has not loaded the CUDA driver"), "{why}");
}

/// Python with the driver loaded, which waits to be looked at.
fn python_with_the_driver(python: &Path, place: &Place) -> Script {
    let mut command = Command::new(python);
    let text = "import ctypes, sys\nctypes.CDLL(sys.argv[1])\nprint('ready', flush=True)\nsys.stdin.readline()";
    command.args(["-c", text]).arg(place.testbed.libcuda());
    let mut script = Script::start(command);
    script.wait_for("ready");
    script
}

#[test]
fn root_python_that_uses_cuda_is_listed_with_its_version() {
    needs_root();
    let place = Place::new();
    for python in Python::supported().unwrap() {
        let script = python_with_the_driver(&python.path, &place);
        let (_, process) = report(script.pid());
        assert_eq!(process["not_attached"], Value::Null);
        assert_eq!(process["python"]["is_walked"], true, "{process:#}");
        let version = process["python"]["version"].as_str().unwrap();
        assert_eq!(version.split('.').nth(1), Some(python.minor.to_string().as_str()), "{version}");
        let (_, stdout, _) = output(gpuwhy(&["check"]));
        assert!(stdout.contains(&format!("Python {version}: frames can be walked")), "{stdout}");
    }
}

#[test]
fn root_python_whose_frames_are_not_known_is_told_with_the_reason() {
    needs_root();
    let place = Place::new();
    // Older ones have no variable that they could be told by.
    for python in Python::too_old().into_iter().filter(|python| python.minor >= 7) {
        let script = python_with_the_driver(&python.path, &place);
        let (report, process) = report(script.pid());
        assert_eq!(process["python"]["is_walked"], false, "{process:#}");
        let why = process["python"]["why_not"].as_str().unwrap();
        assert!(why.contains("not supported (3.9 to 3.14 are)"), "{why}");
        assert_eq!(report["can_trace"], true, "its calls are traced all the same");
        let (_, stdout, _) = output(gpuwhy(&["check"]));
        assert!(stdout.contains("Python's frames cannot be walked:"), "{stdout}");
    }
}

#[test]
fn root_the_checker_does_not_report_itself() {
    needs_root();
    let place = Place::new();
    let mut command = gpuwhy(&["check", "--json"]);
    command.env("LD_PRELOAD", place.testbed.libcuda());
    let (_, stdout, _) = output(command);
    assert!(!stdout.contains(place.dir.path().to_str().unwrap()), "{stdout}");
}

#[test]
fn root_a_bundle_says_what_is_needed_to_help_and_no_secrets() {
    needs_root();
    let place = Place::new();
    let (file, bundle) = (place.file(), place.dir.path().join("bundle.json"));
    let mut command =
        gpuwhy(&["trace", "--out", file.to_str().unwrap(), "--", "sh", "-c", "exit 0", "--token", "hunter2"]);
    command.env("MY_SECRET", "hunter3");
    assert_eq!(output(command).0, 0);
    let words = ["check", "--bundle", bundle.to_str().unwrap(), "--db", file.to_str().unwrap()];
    let (code, said, stderr) = output(gpuwhy(&words));
    assert!(code == 0 && said.contains("BTF") && stderr.contains("can be read before"), "{said}{stderr}");
    let text = std::fs::read_to_string(&bundle).unwrap();
    assert!(!text.contains("hunter"), "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(told["check"]["can_trace"].is_boolean() && told["facts"]["/proc/sys/kernel/osrelease"].is_string());
    assert_eq!(told["coverage"]["sessions"].as_array().unwrap().len(), 1, "{text}");
    let (code, _, stderr) = output(gpuwhy(&words));
    assert!(code == 1 && stderr.contains("File exists"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&bundle).unwrap(), text);
}
