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
    let call = |second: u64| {
        let is_last = second == 5;
        let (op, duration_ns) = if is_last { (alloc, 2_000_000) } else { (launch, 5_000) };
        Call {
            device: Some(0),
            caller: Some(if second % 2 == 1 { runtime } else { program }),
            bytes: is_last.then_some(4096),
            ret_code: if is_last { 2 } else { 0 },
            ..Call::new(thread, op, START_NS + second * SECOND, duration_ns)
        }
    };
    writer.calls(&mut (0..6).map(call).collect::<Vec<_>>()).unwrap();
    let end = SessionEnd { ended_ns: START_NS + 6 * SECOND, seen: 6, reason: "finished".into(), ..Default::default() };
    writer.finish(&end).unwrap();
}
