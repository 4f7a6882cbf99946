//! The tables of the runtime and of HIP name what the vendors' libraries export.

#![allow(clippy::unwrap_used)]

mod support;

use gpuwhy_apis::LIBRARIES;
use gpuwhy_model::Layer;
use gpuwhy_testbed::{CudaRuntime, debian_file, left_out};
use std::collections::BTreeSet;
use support::exported;

/// Gone from CUDA 13, or new in it.
const ONLY_IN_12: &[&str] = &[
    "cudaLaunchCooperativeKernelMultiDevice",
    "cudaMemPrefetchAsync_v2",
    "cudaMemPrefetchAsync_v2_ptsz",
    "cudaThreadExit",
    "cudaThreadSynchronize",
];
const ONLY_IN_13: &[&str] = &[
    "cudaLaunchHostFunc_v2",
    "cudaLaunchHostFunc_v2_ptsz",
    "cudaMemcpyWithAttributesAsync",
    "cudaMemcpyWithAttributesAsync_ptsz",
];

fn not_exported_by(release: CudaRuntime) -> BTreeSet<&'static str> {
    let exported = exported(&release.library().unwrap());
    let table = LIBRARIES.iter().find(|library| library.layer == Layer::Runtime).unwrap();
    let symbols = table.apis.iter().flat_map(|api| api.symbols).chain(table.markers);
    symbols.copied().filter(|symbol| !exported.contains(*symbol)).collect()
}

#[test]
fn libcudart_12_exports_the_table_but_for_what_came_later() {
    assert_eq!(not_exported_by(CudaRuntime::V12), ONLY_IN_13.iter().copied().collect());
}

#[test]
fn libcudart_13_exports_the_table_but_for_what_was_dropped() {
    assert_eq!(not_exported_by(CudaRuntime::V13), ONLY_IN_12.iter().copied().collect());
}

/// What HIP 5.2 does not have yet.
const HIP_LATER: &[&str] = &[
    "hipEventRecord_spt",
    "hipExtModuleLaunchKernel",
    "hipGraphInstantiateWithParams",
    "hipGraphLaunch_spt",
    "hipGraphUpload",
    "hipLaunchHostFunc",
    "hipLaunchHostFunc_spt",
    "hipLaunchKernelExC",
    "hipLaunchKernelExC_spt",
    "hipMemcpy2DAsync_spt",
    "hipMemcpy3DAsync_spt",
    "hipMemcpyFromSymbolAsync_spt",
    "hipMemcpyToSymbolAsync_spt",
    "hipMemset2DAsync_spt",
    "hipMemset3DAsync_spt",
    "hipMemsetAsync_spt",
    "hipModuleLaunchCooperativeKernel",
    "hipStreamBeginCapture_spt",
    "hipStreamEndCapture_spt",
];

/// Debian has the library; only the file is looked at.
#[test]
fn libibverbs_exports_the_table() {
    let file = match debian_file("libibverbs1", "usr/lib/x86_64-linux-gnu/libibverbs.so.1") {
        Ok(file) => file,
        Err(error) => return left_out(&format!("what libibverbs exports: {error:#}")),
    };
    let exported = exported(&file);
    let table = LIBRARIES.iter().find(|library| library.name == "rdma").unwrap();
    let symbols = table.apis.iter().flat_map(|api| api.symbols).chain(table.markers);
    assert_eq!(symbols.filter(|symbol| !exported.contains(**symbol)).count(), 0);
}

/// Debian has the library; only the file is looked at. Other distributions may have another one, or none.
#[test]
fn libamdhip64_exports_the_table_but_for_what_came_later() {
    let file = match debian_file("libamdhip64-5", "usr/lib/x86_64-linux-gnu/libamdhip64.so.5") {
        Ok(file) => file,
        Err(error) => return left_out(&format!("what AMD's library exports: {error:#}")),
    };
    let exported = exported(&file);
    let table = LIBRARIES.iter().find(|library| library.name == "hip").unwrap();
    let symbols = table.apis.iter().flat_map(|api| api.symbols).chain(table.markers);
    let missing: BTreeSet<&str> = symbols.copied().filter(|symbol| !exported.contains(*symbol)).collect();
    assert_eq!(missing, HIP_LATER.iter().copied().collect());
}
