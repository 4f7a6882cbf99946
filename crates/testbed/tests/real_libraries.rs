//! The tables of the runtime, of NCCL and of HIP name what the vendors' libraries export.

#![allow(clippy::unwrap_used)]

mod support;

use gpuwhy_apis::LIBRARIES;
use gpuwhy_model::Layer;
use gpuwhy_testbed::{CudaRuntime, debian_file, left_out, real_libnccl};
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

/// What NCCL has beside the table: it asks for something, sets something, works on memory or within a kernel. What one rank
/// does with the memory of another (`ncclPutSignal`) is no operation of both.
const NCCL_LEFT_OUT: &[&str] = &[
    "ncclCommCount",
    "ncclCommCuDevice",
    "ncclCommDeregister",
    "ncclCommGetAsyncError",
    "ncclCommGetUniqueId",
    "ncclCommGrow",
    "ncclCommMemStats",
    "ncclCommQueryProperties",
    "ncclCommRegister",
    "ncclCommResume",
    "ncclCommRevoke",
    "ncclCommSuspend",
    "ncclCommUserRank",
    "ncclCommWindowDeregister",
    "ncclCommWindowRegister",
    "ncclDevCommCreate",
    "ncclDevCommDestroy",
    "ncclGetCftDeviceLeInfo",
    "ncclGetErrorString",
    "ncclGetLastError",
    "ncclGetLsaDevicePointer",
    "ncclGetLsaMultimemDevicePointer",
    "ncclGetMultimemDeviceLeInfo",
    "ncclGetMultimemDevicePointer",
    "ncclGetPeerDeviceLeInfo",
    "ncclGetPeerDevicePointer",
    "ncclGetVersion",
    "ncclGinBarrierCreateRequirement",
    "ncclGinInboxA2ACreateRequirement",
    "ncclGinOutboxCreateRequirement",
    "ncclGroupSimulateEnd",
    "ncclLLA2ACalcSlots",
    "ncclLLA2ACreateRequirement",
    "ncclLsaBarrierCreateRequirement",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclParamBind",
    "ncclParamDumpAll",
    "ncclParamGet",
    "ncclParamGetAllParameterKeys",
    "ncclParamGetI16",
    "ncclParamGetI32",
    "ncclParamGetI64",
    "ncclParamGetI8",
    "ncclParamGetParameter",
    "ncclParamGetStr",
    "ncclParamGetU16",
    "ncclParamGetU32",
    "ncclParamGetU64",
    "ncclParamGetU8",
    "ncclPutSignal",
    "ncclRedOpCreatePreMulSum",
    "ncclRedOpDestroy",
    "ncclResetDebugInit",
    "ncclResetDebugInitInternal",
    "ncclSetEncryption",
    "ncclSignal",
    "ncclTeamCft",
    "ncclTeamCftMultimem",
    "ncclTeamLsa",
    "ncclTeamRail",
    "ncclTeamRankToLsa",
    "ncclTeamRankToWorld",
    "ncclTeamWorld",
    "ncclWaitSignal",
    "ncclWinGetUserPtr",
];

/// As RCCL calls it.
const ONLY_IN_RCCL: &[&str] = &["ncclAllToAll", "pncclAllToAll"];

#[test]
fn every_function_of_libnccl_is_in_the_table_or_left_out_on_purpose() {
    let table = LIBRARIES.iter().find(|library| library.name == "nccl").unwrap();
    let symbols = table.apis.iter().flat_map(|api| api.symbols).chain(table.markers);
    let known: BTreeSet<String> = symbols.map(|symbol| (*symbol).to_owned()).collect();
    let exported = exported(&real_libnccl().unwrap());
    let missing: Vec<&String> = known.difference(&exported).collect();
    assert_eq!(missing, ONLY_IN_RCCL);
    // Each has a twin whose name begins with p, for profilers that take its place.
    let functions = exported.iter().map(|symbol| symbol.strip_prefix('p').unwrap_or(symbol));
    let functions: BTreeSet<&str> = functions.filter(|symbol| symbol.starts_with("nccl")).collect();
    let left_out: Vec<&str> = functions.into_iter().filter(|symbol| !known.contains(*symbol)).collect();
    assert_eq!(left_out, NCCL_LEFT_OUT);
}
