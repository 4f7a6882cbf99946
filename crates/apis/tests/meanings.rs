//! What the rows say their functions mean, against what a person knows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use gpuwhy_apis::{Operand, Row, rows};
use gpuwhy_model::{CallClass, GraphStep, MemoryKind};

const LAUNCHES: &[&str] = &[
    "cuGraphLaunch",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchCooperativeKernelMultiDevice",
    "cudaLaunchHostFunc",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "hipExtLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipGraphLaunch",
    "hipLaunchCooperativeKernel",
    "hipLaunchHostFunc",
    "hipLaunchKernel",
    "hipLaunchKernelExC",
    "hipModuleLaunchCooperativeKernel",
    "hipModuleLaunchKernel",
];

const WAITS: &[&str] = &[
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "cuStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaStreamSynchronize",
    "cudaThreadSynchronize",
    "hipCtxSynchronize",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
    "hipStreamSynchronize",
];

const FOLLOWED_ALLOCS: &[&str] = &[
    "cuMemAlloc",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaMalloc",
    "cudaMalloc3D",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMallocPitch",
    "hipExtMallocWithFlags",
    "hipHostMalloc",
    "hipHostRegister",
    "hipMalloc",
    "hipMallocAsync",
    "hipMallocFromPoolAsync",
    "hipMallocManaged",
    "hipMallocPitch",
];

const OTHER_ALLOCS: &[&str] = &[
    "cuArray3DCreate",
    "cuArrayCreate",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cudaMalloc3DArray",
    "cudaMallocArray",
    "cudaMallocMipmappedArray",
    "hipMalloc3DArray",
    "hipMallocArray",
    "hipMemCreate",
];

const FOLLOWED_FREES: &[&str] = &[
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cudaHostUnregister",
    "hipFree",
    "hipFreeAsync",
    "hipHostFree",
    "hipHostUnregister",
];

const OTHER_FREES: &[&str] = &[
    "cuArrayDestroy",
    "cuMemAddressFree",
    "cuMemPoolTrimTo",
    "cuMemRelease",
    "cuMemUnmap",
    "cudaFreeArray",
    "cudaFreeMipmappedArray",
    "cudaMemPoolTrimTo",
    "hipFreeArray",
    "hipMemPoolTrimTo",
    "hipMemRelease",
];

const HOST_MEMORY: &[&str] = &[
    "cuMemAllocHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaMallocHost",
    "hipHostMalloc",
    "hipHostRegister",
];

const MANAGED_MEMORY: &[&str] = &[
    "cuMemAllocManaged",
    "cuMemPrefetchAsync",
    "cudaMallocManaged",
    "cudaMemPrefetchAsync",
    "hipMallocManaged",
    "hipMemPrefetchAsync",
];

const CAPTURES: &[&str] = &[
    "cuStreamBeginCapture",
    "cuStreamBeginCaptureToGraph",
    "cudaStreamBeginCapture",
    "cudaStreamBeginCaptureToGraph",
    "hipStreamBeginCapture",
];

const INSTANTIATIONS: &[&str] = &[
    "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cudaGraphInstantiate",
    "cudaGraphInstantiateWithFlags",
    "cudaGraphInstantiateWithParams",
    "hipGraphInstantiate",
    "hipGraphInstantiateWithFlags",
    "hipGraphInstantiateWithParams",
];

fn names(is_wanted: impl Fn(&Row) -> bool) -> Vec<&'static str> {
    let names: BTreeSet<&str> = rows().filter(is_wanted).map(|row| row.api.name).collect();
    names.into_iter().collect()
}

#[test]
fn functions_that_start_work_on_the_device_are_launches() {
    assert_eq!(names(|row| row.meaning().is_launch), LAUNCHES);
    assert_eq!(names(|row| row.meaning().is_launch && !row.meaning().is_async), [""; 0]);
    assert_eq!(
        names(|row| row.meaning().is_launch && !row.meaning().is_kernel_launch()),
        ["cuGraphLaunch", "cudaGraphLaunch", "hipGraphLaunch"]
    );
}

#[test]
fn functions_that_synchronize_wait() {
    assert_eq!(names(|row| row.meaning().is_wait), WAITS);
    assert_eq!(names(|row| row.meaning().is_wait && row.meaning().is_async), [""; 0]);
    // What has a handle waits for that event, what has a stream for its work, and the rest for all there is.
    let has_handle = |row: &Row| row.api.reads.handle != Operand::None;
    assert_eq!(
        names(|row| row.meaning().is_wait && has_handle(row)),
        ["cuEventSynchronize", "cudaEventSynchronize", "hipEventSynchronize"]
    );
}

#[test]
fn memory_is_followed_where_addresses_show_it() {
    let of_class =
        |class, is_followed| names(|row| row.meaning().class == class && row.meaning().is_followed == is_followed);
    assert_eq!(of_class(CallClass::Alloc, true), FOLLOWED_ALLOCS);
    assert_eq!(of_class(CallClass::Alloc, false), OTHER_ALLOCS);
    assert_eq!(of_class(CallClass::Free, true), FOLLOWED_FREES);
    assert_eq!(of_class(CallClass::Free, false), OTHER_FREES);
}

#[test]
fn what_is_followed_is_read() {
    for row in rows().filter(|row| row.meaning().is_followed) {
        let (reads, meaning) = (&row.api.reads, row.meaning());
        assert_ne!(reads.address, Operand::None, "{}", row.api.name);
        assert!(meaning.is_followed_free() || !reads.bytes.is_empty(), "{}", row.api.name);
    }
    let is_whole = |row: &Row| row.api.reads.address != Operand::None && !row.api.reads.bytes.is_empty();
    assert_eq!(names(|row| is_whole(row) && !row.meaning().is_followed), [""; 0]);
}

#[test]
fn an_allocation_says_which_memory_it_takes() {
    assert_eq!(names(|row| row.meaning().memory == Some(MemoryKind::Host)), HOST_MEMORY);
    assert_eq!(names(|row| row.meaning().memory == Some(MemoryKind::Managed)), MANAGED_MEMORY);
    assert_eq!(names(|row| row.meaning().class == CallClass::Alloc && row.meaning().memory.is_none()), [""; 0]);
}

#[test]
fn graphs_are_captured_and_made_ready_before_they_are_launched() {
    assert_eq!(names(|row| row.meaning().graph_step == Some(GraphStep::Capture)), CAPTURES);
    assert_eq!(names(|row| row.meaning().graph_step == Some(GraphStep::Instantiate)), INSTANTIATIONS);
    assert_eq!(names(|row| row.meaning().graph_step.is_some() && row.meaning().class != CallClass::Graph), [""; 0]);
}

/// NVIDIA says so in the names.
#[test]
fn copies_and_memsets_are_asynchronous_as_their_names_say() {
    let moves = |row: &Row| {
        use CallClass::{Alloc, Copy, Free, Memset};
        matches!(row.meaning().class, Copy | Memset | Alloc | Free)
    };
    for row in rows().filter(moves) {
        assert_eq!(row.meaning().is_async, row.api.name.ends_with("Async"), "{}", row.api.name);
    }
}

/// The trace file has one row for them.
#[test]
fn versions_of_a_function_mean_the_same() {
    for row in rows() {
        let same = rows().filter(|other| other.api.name == row.api.name && other.layer() == row.layer());
        assert!(same.into_iter().all(|other| other.meaning() == row.meaning()), "{}", row.api.name);
    }
}
