//! Whatever a library is called and wherever it lies, its calls are seen.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_capture::Image;
use gpuwhy_store::Value;
use gpuwhy_testbed::{Behaviour, CudaRuntime, Running, Truth, Workload, left_out};
use support::mounts::Mount;
use support::script::Script;
use support::{Finished, Place, Tracing, counts_agree, needs_root, traced};

/// A copy of a library in a folder of its own.
fn copied(place: &Place, library: &Path, folder: &str, name: &str) -> PathBuf {
    let folder = place.dir.path().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(library, folder.join(name)).unwrap();
    folder
}

fn launches(place: &Place) -> Workload {
    Workload::new(&place.testbed).mix("launch").threads(2).calls(500)
}

/// Everybody's calls, of workloads that have their libraries mapped when the tracer starts.
fn traced_system_wide(place: &Place, workloads: Vec<Workload>) -> (Vec<Truth>, Finished) {
    let mut running: Vec<Running> = workloads.into_iter().map(|workload| workload.start().unwrap()).collect();
    running.iter_mut().for_each(|running| running.wait_ready().unwrap());
    let mut tracing = place.trace(&[]);
    tracing.wait_ready();
    let truths = running.into_iter().map(|running| running.finish().unwrap()).collect();
    (truths, tracing.stop())
}

/// Exactly the calls that the workload made, and in the statistics as in the rows.
fn seen_exactly(truth: &Truth, finished: &Finished) {
    finished.check();
    counts_agree(truth, finished, "driver");
    let pid = truth.ends[0].pid;
    let made: u64 = truth.calls.iter().map(|calls| calls.calls).sum();
    let counted = finished.number(&format!("SELECT coalesce(sum(count), 0) FROM call_stats WHERE pid = {pid}"));
    assert_eq!(counted as u64, made);
}

#[test]
fn root_a_library_that_only_another_mount_namespace_can_see_is_attached() {
    needs_root();
    let place = Place::new();
    let inside = copied(&place, &place.testbed.libcuda(), "source", "libcuda.so.1");
    let hidden = place.dir.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let namespace =
        format!("mount -t tmpfs none {0} && cp {1}/* {0} && exec \"$0\" \"$@\"", hidden.display(), inside.display());
    let workload =
        || launches(&place).env("LD_LIBRARY_PATH", &hidden).through(&["unshare", "-m", "sh", "-c", namespace.as_str()]);
    let (truths, finished) = traced_system_wide(&place, vec![workload()]);
    assert!(!hidden.join("libcuda.so.1").exists());
    seen_exactly(&truths[0], &finished);

    let place = Place::new();
    let (truth, finished) = traced(&place, workload(), &[]);
    seen_exactly(&truth, &finished);
}

#[test]
fn root_a_library_is_known_by_what_it_exports_and_not_by_its_name() {
    needs_root();
    for name in ["libcuda-1a2b3c4d.so.1", "driver.bin"] {
        let place = Place::new();
        let library = copied(&place, &place.testbed.libcuda(), "wheel", name).join(name);
        let workload = launches(&place).dlopen(&library).env("LD_PRELOAD", &library);
        let (truth, finished) = traced(&place, workload, &[]);
        seen_exactly(&truth, &finished);
        assert!(finished.log.iter().any(|line| line.contains(name)), "{:#?}", finished.log);
    }
}

#[test]
fn root_a_runtime_linked_into_the_program_is_seen_through_the_driver() {
    needs_root();
    let place = Place::new();
    let workload = Workload::statically_linked(&place.testbed).mix("launch").threads(2).calls(300);
    let (_, finished) = traced(&place, workload, &[]);
    finished.check();
    let named = "SELECT count(*) FROM cuda_events WHERE op = 'cuLaunchKernel' AND runtime_op = 'cudaLaunchKernel'";
    assert_eq!(finished.number(named), 600);
    assert!(finished.text("SELECT caller FROM cuda_events WHERE op = 'cuLaunchKernel'").contains("workload_static"));
}

/// Calls a thousand times a second for three seconds from the moment the library is loaded.
fn attached_within_a_second(place: &Place, library: &Path, start: impl FnOnce(&Running) -> Tracing) {
    let workload = Workload::new(&place.testbed)
        .op("cuLaunchKernel", Behaviour::Return, Duration::ZERO)
        .dlopen(library)
        .threads(1)
        .rate(1000.0)
        .duration(Duration::from_secs(3));
    let mut running = workload.start().unwrap();
    running.wait_ready().unwrap();
    let mut tracing = start(&running);
    tracing.wait_ready();
    let truth = running.finish().unwrap();
    let finished = tracing.stop();
    finished.check();
    let row = truth.rows_of("cuLaunchKernel").next().unwrap();
    let sql =
        format!("SELECT coalesce(sum(count), 0) FROM call_stats WHERE op = 'cuLaunchKernel' AND pid = {}", row.pid);
    let counted = finished.number(&sql) as u64;
    assert!(counted >= row.calls * 2 / 3, "{counted} of {} calls; {:#?}", row.calls, finished.log);
    // What could not be seen is told.
    let told = "SELECT count(*) FROM warnings WHERE kind = 'not-attached' AND text LIKE '%earlier calls are missing'";
    assert!(finished.number(told) >= 1, "{:#?}", finished.log);
    eprintln!("{counted} of {} calls were seen", row.calls);
}

/// Calls from its first moment on, and ends at once.
const AT_ONCE: &str = "
int cuInit(unsigned);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void *, void *);
int main(void)
{
    if (cuInit(0))
        return 1;
    for (int call = 0; call < 1000; call++)
        if (cuLaunchKernel((void *)1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
            return 2;
    return 0;
}";

#[test]
fn root_no_call_is_missed_of_a_command_that_is_linked_against_the_driver() {
    needs_root();
    let place = Place::new();
    let folder = copied(&place, &place.testbed.libcuda(), "linked", "libcuda.so.1");
    let source = folder.join("at_once.c");
    let program = folder.join("at_once");
    std::fs::write(&source, AT_ONCE).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler.arg(&source).arg("-o").arg(&program).arg(folder.join("libcuda.so.1"));
    compiler.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(compiler.status().unwrap().success());
    let mut tracing = place.trace(&["--", program.to_str().unwrap()]);
    assert!(tracing.wait_exit().success());
    let finished = Finished::open(&place.file(), Vec::new());
    finished.check();
    assert_eq!(finished.number("SELECT sum(count) FROM call_stats WHERE op = 'cuLaunchKernel'"), 1000);
    assert_eq!(finished.number("SELECT count(*) FROM warnings WHERE kind = 'not-attached'"), 0);
}

#[test]
fn root_a_library_loaded_during_the_trace_is_attached_within_a_second() {
    needs_root();
    let place = Place::new();
    let library = copied(&place, &place.testbed.libcuda(), "late", "libcuda.so.1").join("libcuda.so.1");
    attached_within_a_second(&place, &library, |_| place.trace(&[]));
}

#[test]
fn root_a_library_loaded_later_by_a_named_process_is_attached_within_a_second() {
    needs_root();
    let place = Place::new();
    let library = copied(&place, &place.testbed.libcuda(), "late", "libcuda.so.1").join("libcuda.so.1");
    attached_within_a_second(&place, &library, |running| {
        place.trace(&["-p", &running.pid().to_string(), "--duration", "30s"])
    });
}

#[test]
fn root_a_process_that_maps_a_library_and_is_gone_does_not_hide_it_from_the_next() {
    needs_root();
    let place = Place::new();
    let library = copied(&place, &place.testbed.libcuda(), "brief", "libcuda.so.1").join("libcuda.so.1");
    attached_within_a_second(&place, &library, |_| {
        let mut tracing = place.trace(&[]);
        tracing.wait_ready();
        for _ in 0..20 {
            let mut brief = std::process::Command::new("/bin/true");
            assert!(brief.env("LD_PRELOAD", &library).status().unwrap().success());
        }
        tracing
    });
}

#[test]
fn root_a_library_deleted_while_it_is_used_is_attached() {
    needs_root();
    let place = Place::new();
    let folder = copied(&place, &place.testbed.libcuda(), "gone", "libcuda.so.1");
    let mut running = launches(&place).env("LD_LIBRARY_PATH", &folder).start().unwrap();
    running.wait_ready().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let mut tracing = place.trace(&["-p", &running.pid().to_string()]);
    tracing.wait_ready();
    let truth = running.finish().unwrap();
    seen_exactly(&truth, &tracing.wait_finished().1);
}

#[test]
fn root_one_file_in_two_containers_is_probed_once() {
    needs_root();
    let place = Place::new();
    let lower = copied(&place, &place.testbed.libcuda(), "lower", "libcuda.so.1");
    let mount = |name: &str| {
        let dir = |part: &str| place.dir.path().join(format!("{name}-{part}"));
        let (upper, work) = (dir("upper"), dir("work"));
        std::fs::create_dir(&upper).unwrap();
        std::fs::create_dir(&work).unwrap();
        let layers = [("lowerdir", &lower), ("upperdir", &upper), ("workdir", &work)];
        let options = layers.map(|(layer, path)| format!("{layer}={}", path.display())).join(",");
        Mount::new("overlay", &options, &dir("merged"))
    };
    let (Some(one), Some(other)) = (mount("one"), mount("other")) else {
        return left_out("one file in two containers: overlays cannot be mounted");
    };
    let workloads = [&one, &other].map(|mount| launches(&place).env("LD_LIBRARY_PATH", mount.path()));
    let (truths, finished) = traced_system_wide(&place, workloads.into());
    truths.iter().for_each(|truth| seen_exactly(truth, &finished));
    assert_eq!(finished.log.iter().filter(|line| line.contains("-merged/libcuda.so.1 (")).count(), 1);
}

#[test]
fn root_functions_that_start_with_endbr64_are_probed_behind_it() {
    needs_root();
    let place = Place::new();
    let image = Image::read(&place.testbed.libcuda_endbr()).unwrap();
    assert_eq!(image.library, Some("cuda-driver"));
    assert!(image.probes.len() > 50);
    let slow: Vec<_> = image.probes.iter().filter(|probe| !probe.emulated).collect();
    assert!(slow.is_empty(), "{slow:?}");

    let folder = copied(&place, &place.testbed.libcuda_endbr(), "endbr", "libcuda.so.1");
    let workload = Workload::new(&place.testbed).mix("all").threads(2).calls(500).env("LD_LIBRARY_PATH", &folder);
    let (truth, finished) = traced(&place, workload, &[]);
    seen_exactly(&truth, &finished);
}

#[test]
fn root_calls_of_the_vendors_own_runtime_are_seen_with_their_errors() {
    needs_root();
    const CALLS: &str = "runtime = ctypes.CDLL(sys.argv[1])\n\
         say('ready'); wait()\n\
         number, memory = ctypes.c_int(), ctypes.c_uint64()\n\
         for _ in range(10):\n    runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_uint64(4096))\n\
         say(runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_uint64(4096)))";
    for release in [CudaRuntime::V12, CudaRuntime::V13] {
        let place = Place::new();
        let library = release.library().unwrap();
        let mut script = Script::python(CALLS, &[library.to_str().unwrap()]);
        script.wait_for("ready");
        let mut tracing = place.trace(&["-p", &script.pid().to_string(), "--layer", "runtime"]);
        tracing.wait_ready();
        script.say("go");
        let error: i64 = script.line().parse().unwrap();
        assert!(script.finish().success());
        let finished = tracing.wait_finished().1;
        finished.check();
        let rows =
            finished.rows("SELECT count(*), min(ret_code), max(ret_code) FROM cuda_events WHERE op = 'cudaMalloc'");
        assert_eq!(rows[0], [11, error, error].map(Value::Integer));
        let attached = finished.log.iter().find(|line| line.contains("libcudart.so")).unwrap();
        let functions = attached.rsplit_once("cuda-runtime, ").unwrap().1.split(' ').next().unwrap();
        assert!(functions.parse::<u32>().unwrap() > 50, "{attached}");
        assert!(!finished.log.iter().any(|line| line.contains("not attached")), "{:#?}", finished.log);
        if !Path::new("/dev/nvidiactl").exists() {
            assert_ne!(error, 0);
        }
    }
}
