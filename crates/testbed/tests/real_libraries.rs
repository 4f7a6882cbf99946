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

/// What the call table has of a library and a package of Debian's does not export; only the file is looked at. `None` where there
/// is no such package: other distributions may have another one.
fn not_exported(library: &str, package: &str, file: &str) -> Option<BTreeSet<&'static str>> {
    let exported = match debian_file(package, file) {
        Ok(file) => exported(&file),
        Err(error) => {
            left_out(&format!("what {package} exports: {error:#}"));
            return None;
        }
    };
    let table = LIBRARIES.iter().find(|known| known.name == library).unwrap();
    let symbols = table.apis.iter().flat_map(|api| api.symbols).chain(table.markers);
    Some(symbols.copied().filter(|symbol| !exported.contains(*symbol)).collect())
}

#[test]
fn libibverbs_exports_the_table() {
    if let Some(missing) = not_exported("rdma", "libibverbs1", "usr/lib/x86_64-linux-gnu/libibverbs.so.1") {
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn libamdhip64_exports_the_table_but_for_what_came_later() {
    if let Some(missing) = not_exported("hip", "libamdhip64-5", "usr/lib/x86_64-linux-gnu/libamdhip64.so.5") {
        assert_eq!(missing, HIP_LATER.iter().copied().collect());
    }
}
