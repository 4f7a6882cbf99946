//! A trace of six calls, written without a kernel.

use std::path::Path;

use gpuwhy_model::{Call, CallClass, Layer, Process, Session, SessionEnd};
use gpuwhy_store::{Options, Writer};

pub const START_NS: u64 = 1_790_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// One call a second. The odd ones come from the CUDA runtime; the last one takes 2 ms and fails.
pub fn write(path: &Path) {
    let session = Session { started_ns: START_NS, host: "node7".into(), ..Session::default() };
    let mut writer = Writer::open(path, &session, &Options::default()).unwrap();
    let process = Process { pid: 100, comm: "python".into(), ..Process::default() };
    let process = writer.process(&process).unwrap();
    let thread = writer.thread(process, 101, "say \"hi\", \x1b[31mred").unwrap();
    let launch = writer.op("cuLaunchKernel", Layer::Driver, CallClass::Launch, Some("cudaLaunchKernel")).unwrap();
    let alloc = writer.op("cuMemAlloc", Layer::Driver, CallClass::Alloc, Some("cudaMalloc")).unwrap();
    let runtime = writer.module("/lib/libcudart.so.12", true).unwrap();
    let program = writer.module("/usr/bin/python", false).unwrap();
    let call = |second: u64| Call {
        start_ns: START_NS + second * SECOND,
        duration_ns: if second == 5 { 2_000_000 } else { 5_000 },
        runqueue_ns: 0,
        blocked_ns: 0,
        thread,
        op: if second == 5 { alloc } else { launch },
        device: Some(0),
        stream: None,
        direction: None,
        handle: None,
        caller: Some(if second % 2 == 1 { runtime } else { program }),
        bytes: (second == 5).then_some(4096),
        address: None,
        ret_code: if second == 5 { 2 } else { 0 },
        parent_start_ns: None,
        wait: None,
        stack_id: None,
    };
    writer.calls(&mut (0..6).map(call).collect::<Vec<_>>()).unwrap();
    let end = SessionEnd { ended_ns: START_NS + 6 * SECOND, seen: 6, reason: "finished".into(), ..Default::default() };
    writer.finish(&end).unwrap();
}
