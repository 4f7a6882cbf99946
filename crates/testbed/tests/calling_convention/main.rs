//! Every row of the call tables reads the argument it means, as compilers place it.
//!
//! What a row means to read follows from the names and types in the vendor's headers; where it lies is seen by calling.
//! Callers of the library for collectives, whose header comes with a third of a gigabyte, are compiled by other tests.

#![allow(clippy::unwrap_used)]

mod captured;
mod prototypes;

use captured::Captured;
use gpuwhy_apis::{Api, DeviceChange, LIBRARIES, Operand, Way};
use gpuwhy_model::{CallClass, GraphStep};
use gpuwhy_testbed::CudaRuntime;
use prototypes::{Prototypes, declared_by};
use std::collections::BTreeSet;

/// The stream's slot differs between CUDA 12 and 13 under one symbol, so that no row can name it.
const STREAM_UNKNOWN: &[&str] = &["cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync", "cudaMemPrefetchAsync"];

const STREAM_KINDS: &[&str] = &["CUstream", "cudaStream_t"];

/// The ways in which the headers say a number of bytes.
const BYTES: &[&[&str]] = &[
    &[],
    &["ByteCount"],
    &["bytesize"],
    &["size"],
    &["count"],
    &["N"],
    &["WidthInBytes", "Height"],
    &["WidthInBytes", "Height", "Depth"],
    &["Width", "Height"],
    &["width", "height"],
    &["extent.width", "extent.height", "extent.depth"],
];

/// Names that mean nothing but bytes: a function that has one must be read.
const ALWAYS_BYTES: &[&str] = &["ByteCount", "bytesize", "N"];

const ADDRESSES: &[&str] = &["dptr", "devPtr", "p", "pp", "ptr", "pHost", "pitchedDevPtr"];

/// What an operand reads: the name and the type of it.
#[derive(Debug)]
struct Read {
    name: String,
    kind: String,
}

struct Check<'a> {
    api: &'a Api,
    symbol: &'a str,
    captured: &'a Captured,
    faults: &'a mut Vec<String>,
}

#[test]
fn rows_read_what_compilers_pass_with_cuda_12() {
    assert_eq!(faults(CudaRuntime::V12), Vec::<String>::new());
}

#[test]
fn rows_read_what_compilers_pass_with_cuda_13() {
    assert_eq!(faults(CudaRuntime::V13), Vec::<String>::new());
}

#[test]
fn every_symbol_is_declared_by_a_header() {
    let dir = tempfile::tempdir().unwrap();
    let [twelve, thirteen] = [CudaRuntime::V12, CudaRuntime::V13].map(|release| declared_by(release, dir.path()));
    let undeclared = |symbol: &&str| !twelve.contains_key(*symbol) && !thirteen.contains_key(*symbol);
    let symbols = rows().flat_map(|api| api.symbols.iter().copied());
    assert_eq!(symbols.filter(undeclared).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn no_symbol_has_two_rows() {
    let mut seen = BTreeSet::new();
    let all = LIBRARIES.iter().flat_map(|library| library.apis);
    let twice: Vec<_> = all.flat_map(|api| api.symbols).filter(|symbol| !seen.insert(**symbol)).collect();
    assert_eq!(twice, Vec::<&&str>::new());
}

/// Those of CUDA.
fn rows() -> impl Iterator<Item = &'static Api> {
    LIBRARIES.iter().filter(|library| library.name.starts_with("cuda")).flat_map(|library| library.apis)
}

fn faults(release: CudaRuntime) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let symbols: BTreeSet<_> = rows().flat_map(|api| api.symbols.iter().copied()).collect();
    let mut prototypes: Prototypes = declared_by(release, dir.path());
    prototypes.retain(|symbol, _| symbols.contains(symbol.as_str()));
    let captured = Captured::calls(release, &prototypes, dir.path());
    let mut faults = Vec::new();
    for api in rows() {
        for symbol in api.symbols.iter().copied().filter(|symbol| prototypes.contains_key(*symbol)) {
            Check { api, symbol, captured: &captured, faults: &mut faults }.all();
        }
    }
    faults
}

impl Check<'_> {
    fn all(&mut self) {
        self.stream();
        self.bytes();
        self.address();
        self.handle();
        self.direction();
        self.device();
    }

    fn stream(&mut self) {
        if let Some(read) = self.read("stream", self.api.reads.stream) {
            let is_stream = STREAM_KINDS.contains(&read.kind.as_str()) || matches!(&*read.name, "hStream" | "stream");
            self.expect(is_stream, "reads another argument as stream");
            return;
        }
        let takes_stream = self.captured.passed(self.symbol).iter().any(|p| STREAM_KINDS.contains(&p.kind.as_str()));
        self.expect(!takes_stream || STREAM_UNKNOWN.contains(&self.api.name), "does not read its stream");
    }

    fn bytes(&mut self) {
        let mut names = Vec::new();
        let mut factor = 1;
        for &operand in self.api.reads.bytes {
            match operand {
                Operand::Const(value) => factor *= value,
                operand => names.extend(self.read("bytes", operand).map(|read| read.name)),
            }
        }
        self.expect(BYTES.contains(&&*names.iter().map(String::as_str).collect::<Vec<_>>()), "misreads its bytes");
        self.expect(factor == element_size(self.api.name), "has the wrong element size");
        self.expect(self.api.reads.bytes.len() <= 3, "multiplies more than three operands");
        let has_bytes = self.captured.passed(self.symbol).iter().any(|p| ALWAYS_BYTES.contains(&p.path.as_str()));
        self.expect(!has_bytes || !names.is_empty(), "does not read its bytes");
    }

    fn address(&mut self) {
        let reads = &self.api.reads;
        if let Some(read) = self.read("address", reads.address) {
            let is_graph = self.api.meaning.graph_step == Some(GraphStep::Instantiate);
            self.expect(is_graph || ADDRESSES.contains(&read.name.as_str()), "reads another argument as address");
            let is_one = match &*read.kind {
                "CUgraph" | "cudaGraph_t" => is_graph,
                "CUdeviceptr" | "void*" | "struct cudaPitchedPtr" => !is_graph,
                _ => false,
            };
            self.expect(is_one, "reads the address through the wrong number of pointers");
        }
        let is_memory = matches!(self.api.meaning.class, CallClass::Alloc | CallClass::Free);
        self.expect(!is_memory || reads.address != Operand::None || reads.handle != Operand::None, "names no memory");
    }

    fn handle(&mut self) {
        if let Some(read) = self.read("handle", self.api.reads.handle) {
            let kinds = handle_kinds(self.api.meaning.class);
            let is_kernel = matches!(&*read.name, "func" | "function") && self.api.meaning.class == CallClass::Launch;
            self.expect(kinds.contains(&read.kind.as_str()) || is_kernel, "reads another argument as handle");
            let is_executable = read.kind.to_lowercase().contains("graphexec");
            self.expect(!self.api.name.contains("GraphExec") || is_executable, "reads a graph as its executable");
        }
    }

    fn direction(&mut self) {
        let kind = match self.api.reads.direction {
            Way::Arg(slot) => self.read("direction", Operand::Arg32(slot)),
            Way::Field(slot, offset) => self.read("direction", Operand::Field32(slot, offset)),
            Way::None | Way::Fixed(_) => {
                let has_kind = self.captured.passed(self.symbol).iter().any(|p| p.kind == "enum cudaMemcpyKind");
                return self.expect(!has_kind, "does not read its direction");
            }
        };
        let is_kind = kind.is_some_and(|read| read.kind == "enum cudaMemcpyKind" || read.name == "kind");
        self.expect(is_kind, "reads another argument as direction");
    }

    fn device(&mut self) {
        use DeviceChange::{BindAndSelect, BindContext, SelectDevice};
        if let SelectDevice(operand) | BindContext(operand) | BindAndSelect(operand) = self.api.reads.device {
            let read = self.read("device", operand);
            let is_device = read.is_some_and(|read| read.kind == "CUdevice" || read.name == "device");
            self.expect(is_device, "reads another argument as device");
        }
    }

    /// What the operand reads of this call; a fault when it is none of what was passed.
    fn read(&mut self, purpose: &str, operand: Operand) -> Option<Read> {
        if operand == Operand::None {
            return None;
        }
        let read = self.resolve(operand);
        self.expect(read.is_some(), &format!("reads no argument as {purpose}: {operand:?}"));
        read
    }

    fn resolve(&self, operand: Operand) -> Option<Read> {
        let full = |slot| self.captured.in_slot(self.symbol, slot);
        let (passed, kind) = match operand {
            Operand::None | Operand::Const(_) => return None,
            Operand::Arg(slot) => full(slot).map(|passed| (passed, passed.kind.as_str()))?,
            Operand::Arg32(slot) => {
                self.captured.in_slot_32(self.symbol, slot).map(|passed| (passed, passed.kind.as_str()))?
            }
            Operand::Out(slot) | Operand::Out32(slot) => {
                full(slot).and_then(|passed| Some((passed, passed.kind.strip_suffix('*')?)))?
            }
            Operand::Field(slot, offset) => return self.field(slot, offset, 8),
            Operand::Field32(slot, offset) | Operand::OutField32(slot, offset) => return self.field(slot, offset, 4),
            Operand::SizeOf(..) | Operand::Hash(_) | Operand::HashAt(_) | Operand::Of(_) => return None,
        };
        Some(Read { name: passed.path.clone(), kind: kind.to_owned() })
    }

    fn field(&self, slot: u8, offset: u16, size: u16) -> Option<Read> {
        let kind = self.captured.in_slot(self.symbol, slot)?.kind.strip_suffix('*')?;
        let (name, found_size) = self.captured.field(kind, offset)?;
        (*found_size == size).then(|| Read { name: name.clone(), kind: String::new() })
    }

    fn expect(&mut self, holds: bool, fault: &str) {
        if !holds {
            self.faults.push(format!("{} {fault}", self.symbol));
        }
    }
}

/// `cuMemsetD16` counts elements of 16 bits.
fn element_size(name: &str) -> u32 {
    match name.trim_end_matches("Async").strip_prefix("cuMemset") {
        Some(suffix) if suffix.ends_with("D16") => 2,
        Some(suffix) if suffix.ends_with("D32") => 4,
        _ => 1,
    }
}

fn handle_kinds(class: CallClass) -> &'static [&'static str] {
    match class {
        CallClass::Launch => &["CUfunction", "CUhostFn", "cudaHostFn_t"],
        CallClass::Alloc | CallClass::Free => &[
            "CUmemGenericAllocationHandle",
            "CUmemoryPool",
            "CUarray",
            "cudaMemPool_t",
            "cudaArray_t",
            "cudaMipmappedArray_t",
        ],
        CallClass::Sync | CallClass::Event => &["CUevent", "cudaEvent_t", "CUcontext"],
        CallClass::Graph => &["CUgraph", "CUgraphExec", "cudaGraph_t", "cudaGraphExec_t"],
        CallClass::Module => &["CUmodule", "CUlibrary", "CUlinkState", "cudaLibrary_t"],
        CallClass::Context => &["CUcontext"],
        CallClass::Copy | CallClass::Memset | CallClass::Collective | CallClass::Communicator | CallClass::Fabric => {
            &[]
        }
    }
}
