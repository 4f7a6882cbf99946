//! Operations that are recorded in graphs: they are asked for whenever such a graph is launched.

use gpuwhy_model::{Call, CollectiveCapture, CollectiveReplay, GraphStep};
use hashbrown::HashMap;

/// So many graphs of a process are known; then all are forgotten.
const MOST_GRAPHS: usize = 4096;

/// The graphs of a process that have operations in them.
#[derive(Default)]
pub(super) struct Graphs {
    /// Those that are being captured.
    open: Vec<Capture>,
    /// What was captured, by the graph that it is in.
    captured: HashMap<u64, Operations>,
    /// The same by what is launched.
    ready: HashMap<u64, Operations>,
    /// Launches that asked for the same operations, by communicator and the last of them.
    launches: HashMap<(u64, u64), u64>,
    /// The launch that was seen last. Another layer tells of it again.
    last_ns: u64,
}

/// The operations of a graph, those of each communicator together. As its next launch asks for them.
type Operations = Vec<CollectiveReplay>;

struct Capture {
    began_ns: u64,
    stream: u64,
    device: Option<u16>,
    operations: Operations,
}

impl Graphs {
    pub fn step(&mut self, call: &Call, step: GraphStep) {
        let (stream, handle) = (call.stream.unwrap_or(0), call.handle.unwrap_or(0));
        match step {
            GraphStep::Capture => {
                // A layer above has told of it already.
                let is_known = |open: &Capture| Some(open.began_ns) == call.parent_start_ns;
                if self.open.iter().any(is_known) || self.open.len() >= MOST_GRAPHS {
                    return;
                }
                self.open.retain(|open| open.stream != stream || open.device != call.device);
                let (began_ns, device) = (call.start_ns, call.device);
                self.open.push(Capture { began_ns, stream, device, operations: Vec::new() });
            }
            GraphStep::Captured => {
                let is_own = |open: &Capture| open.stream == stream && open.device == call.device;
                let Some(at) = self.open.iter().position(is_own) else { return };
                keep(&mut self.captured, handle, self.open.swap_remove(at).operations);
            }
            GraphStep::Instantiate => {
                let operations = call.address.and_then(|graph| self.captured.get(&graph)).cloned();
                keep(&mut self.ready, handle, operations.unwrap_or_default());
            }
        }
    }

    /// Whether the call is recorded and not done. Threads other than the one that began the capture take part in it.
    pub fn record(&mut self, call: &Call) -> Option<CollectiveCapture> {
        let open = self.open.iter_mut().find(|open| open.device == call.device)?;
        if let Some(asks) = replay_of(call, open.began_ns) {
            let same = open.operations.iter_mut().find(|known| known.comm_id_hash == asks.comm_id_hash);
            match same {
                Some(known) => {
                    let (operations, bytes) = (known.operations + 1, known.bytes.saturating_add(asks.bytes));
                    *known = CollectiveReplay { operations, bytes, ..asks };
                }
                None => open.operations.push(asks),
            }
        }
        Some(CollectiveCapture { start_ns: call.start_ns, began_ns: open.began_ns })
    }

    /// What a launch asks for.
    pub fn launch(&mut self, call: &Call) -> Vec<CollectiveReplay> {
        let is_told = call.parent_start_ns.is_some_and(|parent_ns| parent_ns == self.last_ns);
        let operations = call.handle.filter(|_| !is_told).and_then(|handle| self.ready.get(&handle));
        let Some(operations) = operations else { return Vec::new() };
        self.last_ns = call.start_ns;
        let mut replays = operations.clone();
        for replay in &mut replays {
            let launches = self.launches.entry((replay.comm_id_hash, replay.seq)).or_default();
            (replay.start_ns, replay.replay) = (call.start_ns, *launches);
            *launches += 1;
        }
        replays
    }
}

/// A handle may be used again, also by a graph without operations.
fn keep(graphs: &mut HashMap<u64, Operations>, handle: u64, operations: Operations) {
    if graphs.len() >= MOST_GRAPHS {
        graphs.clear();
    }
    if operations.is_empty() {
        graphs.remove(&handle);
    } else {
        graphs.insert(handle, operations);
    }
}

/// What launches ask for because of a call that was captured, if it is known which operation that is.
fn replay_of(call: &Call, began_ns: u64) -> Option<CollectiveReplay> {
    let own = call.own.as_ref()?;
    let number = |name| own.value(name).and_then(|value| u32::try_from(value).ok());
    Some(CollectiveReplay {
        start_ns: 0,
        comm_id_hash: own.value("comm_id_hash")?,
        handle: call.handle?,
        rank: number("rank"),
        nranks: number("nranks"),
        seq: own.value("seq")?,
        replay: 0,
        operations: 1,
        bytes: call.bytes.unwrap_or(0),
        began_ns,
    })
}
