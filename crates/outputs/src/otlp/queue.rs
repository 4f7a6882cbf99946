//! What waits to be sent: packed, in the order of time, and never more than there is room for.

use std::collections::VecDeque;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

/// So much waits for a receiver, packed: hours of a usual host.
pub const MOST_BYTES: usize = 8 << 20;

/// What kind of thing is sent.
#[derive(Debug)]
pub struct Signal {
    pub name: &'static str,
    /// Where it goes over HTTP.
    pub path: &'static str,
    /// Where it goes over gRPC.
    pub method: &'static str,
}

pub const METRICS: &Signal = &Signal {
    name: "metrics",
    path: "/v1/metrics",
    method: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
};
pub const LOGS: &Signal =
    &Signal { name: "logs", path: "/v1/logs", method: "/opentelemetry.proto.collector.logs.v1.LogsService/Export" };
pub const TRACES: &Signal = &Signal {
    name: "traces",
    path: "/v1/traces",
    method: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
};

/// What is sent in one piece.
pub struct Batch {
    pub signal: &'static Signal,
    /// Packed.
    pub body: Vec<u8>,
    /// How many numbers, records or spans these are.
    pub items: u64,
}

impl Batch {
    pub fn new(signal: &'static Signal, items: u64, request: &impl Message) -> Self {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory cannot fail.
        let _ = packed.write_all(&request.encode_to_vec());
        Self { signal, body: packed.finish().unwrap_or_default(), items }
    }
}

#[derive(Default)]
pub struct Queue {
    pub batches: VecDeque<Batch>,
    pub bytes: usize,
}

impl Queue {
    /// Returns what has to go for it.
    pub fn push(&mut self, batch: Batch) -> Vec<Batch> {
        self.bytes += batch.body.len();
        self.batches.push_back(batch);
        let mut gone = Vec::new();
        while self.bytes > MOST_BYTES {
            gone.extend(self.pop());
        }
        gone
    }

    pub fn pop(&mut self) -> Option<Batch> {
        let first = self.batches.pop_front()?;
        self.bytes -= first.body.len();
        Some(first)
    }

    /// It could not be sent, and is the next one again.
    pub fn put_back(&mut self, batch: Batch) {
        self.bytes += batch.body.len();
        self.batches.push_front(batch);
    }
}
