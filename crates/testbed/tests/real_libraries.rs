//! The runtime table names what the vendor's libraries export.

#![allow(clippy::unwrap_used)]

mod support;

use gpuwhy_apis::LIBRARIES;
use gpuwhy_model::Layer;
use gpuwhy_testbed::CudaRuntime;
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
