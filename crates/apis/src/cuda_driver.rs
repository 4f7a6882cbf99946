//! The CUDA driver library (libcuda): every launch, copy, wait and allocation ends up here, whoever issued it.
//!
//! The symbols without a suffix that take 32-bit sizes and addresses (`cuMemAlloc`, `cuMemcpyHtoD`...) are left out:
//! no 64-bit program built since CUDA 3.2 refers to them. Left out too are the calls that programs poll with
//! (`cuEventQuery`, `cuStreamQuery`, `cuDevicePrimaryCtxGetState`).

use super::DeviceChange::{BindAndSelect, BindContext, PopContext, PushContext, SelectContext, SelectDevice};
use super::Operand::{Arg, Arg32, Const, Field, Out, Out32};
use super::{Api, Library, Operand, Way};
use gpuwhy_model::{Direction, Layer};

pub const LIBRARY: Library = Library {
    name: "cuda-driver",
    layer: Layer::Driver,
    markers: &["cuInit", "cuDriverGetVersion", "cuLaunchKernel", "cuMemAlloc_v2"],
    linked_in: None,
    apis: APIS,
    own: None,
};

const INFERRED: Way = Way::Fixed(Direction::Inferred);
const HOST_TO_DEVICE: Way = Way::Fixed(Direction::HostToDevice);
const DEVICE_TO_HOST: Way = Way::Fixed(Direction::DeviceToHost);
const DEVICE_TO_DEVICE: Way = Way::Fixed(Direction::DeviceToDevice);
const PEER_TO_PEER: Way = Way::Fixed(Direction::PeerToPeer);

/// `WidthInBytes` and `Height` of `CUDA_MEMCPY2D`. Its direction is in two fields that a `Way` cannot combine.
const BYTES_2D: &[Operand] = &[Field(0, 112), Field(0, 120)];
/// `WidthInBytes`, `Height` and `Depth` of `CUDA_MEMCPY3D` and of `CUDA_MEMCPY3D_PEER`.
const BYTES_3D: &[Operand] = &[Field(0, 176), Field(0, 184), Field(0, 192)];
/// `hStream` of `CUlaunchConfig`.
const CONFIG_STREAM: Operand = Field(0, 32);

const APIS: &[Api] = apis! {
    // Launches.
    Launch "cuLaunchKernel" ["cuLaunchKernel" "cuLaunchKernel_ptsz"] <- "cudaLaunchKernel"
        { handle: Arg(0), stream: Arg(8) };
    Launch "cuLaunchKernelEx" ["cuLaunchKernelEx" "cuLaunchKernelEx_ptsz"] <- "cudaLaunchKernelExC"
        { handle: Arg(1), stream: CONFIG_STREAM };
    Launch "cuLaunchCooperativeKernel" ["cuLaunchCooperativeKernel" "cuLaunchCooperativeKernel_ptsz"]
        <- "cudaLaunchCooperativeKernel" { handle: Arg(0), stream: Arg(8) };
    // One kernel on a list of streams: the kernel is read from the list's first entry, no stream speaks for all.
    Launch "cuLaunchCooperativeKernelMultiDevice" ["cuLaunchCooperativeKernelMultiDevice"]
        <- "cudaLaunchCooperativeKernelMultiDevice" { handle: Field(0, 0) };
    Launch "cuLaunchHostFunc" ["cuLaunchHostFunc" "cuLaunchHostFunc_ptsz"] <- "cudaLaunchHostFunc"
        { handle: Arg(1), stream: Arg(0) };
    Launch "cuLaunchHostFunc" ["cuLaunchHostFunc_v2" "cuLaunchHostFunc_v2_ptsz"] <- "cudaLaunchHostFunc"
        { handle: Arg(1), stream: Arg(0) };

    // Copies.
    Copy "cuMemcpy" ["cuMemcpy" "cuMemcpy_ptds"] <- "cudaMemcpy" { bytes: &[Arg(2)], direction: INFERRED };
    Copy Async "cuMemcpyAsync" ["cuMemcpyAsync" "cuMemcpyAsync_ptsz"] <- "cudaMemcpyAsync"
        { bytes: &[Arg(2)], stream: Arg(3), direction: INFERRED };
    Copy "cuMemcpyHtoD" ["cuMemcpyHtoD_v2" "cuMemcpyHtoD_v2_ptds"] <- "cudaMemcpy"
        { bytes: &[Arg(2)], direction: HOST_TO_DEVICE };
    Copy "cuMemcpyDtoH" ["cuMemcpyDtoH_v2" "cuMemcpyDtoH_v2_ptds"] <- "cudaMemcpy"
        { bytes: &[Arg(2)], direction: DEVICE_TO_HOST };
    Copy "cuMemcpyDtoD" ["cuMemcpyDtoD_v2" "cuMemcpyDtoD_v2_ptds"] <- "cudaMemcpy"
        { bytes: &[Arg(2)], direction: DEVICE_TO_DEVICE };
    Copy Async "cuMemcpyHtoDAsync" ["cuMemcpyHtoDAsync_v2" "cuMemcpyHtoDAsync_v2_ptsz"] <- "cudaMemcpyAsync"
        { bytes: &[Arg(2)], stream: Arg(3), direction: HOST_TO_DEVICE };
    Copy Async "cuMemcpyDtoHAsync" ["cuMemcpyDtoHAsync_v2" "cuMemcpyDtoHAsync_v2_ptsz"] <- "cudaMemcpyAsync"
        { bytes: &[Arg(2)], stream: Arg(3), direction: DEVICE_TO_HOST };
    Copy Async "cuMemcpyDtoDAsync" ["cuMemcpyDtoDAsync_v2" "cuMemcpyDtoDAsync_v2_ptsz"] <- "cudaMemcpyAsync"
        { bytes: &[Arg(2)], stream: Arg(3), direction: DEVICE_TO_DEVICE };
    Copy "cuMemcpyHtoA" ["cuMemcpyHtoA_v2" "cuMemcpyHtoA_v2_ptds"] <- "cudaMemcpyToArray"
        { bytes: &[Arg(3)], direction: HOST_TO_DEVICE };
    Copy "cuMemcpyAtoH" ["cuMemcpyAtoH_v2" "cuMemcpyAtoH_v2_ptds"] <- "cudaMemcpyFromArray"
        { bytes: &[Arg(3)], direction: DEVICE_TO_HOST };
    Copy "cuMemcpyAtoD" ["cuMemcpyAtoD_v2" "cuMemcpyAtoD_v2_ptds"] <- "cudaMemcpyFromArray"
        { bytes: &[Arg(3)], direction: DEVICE_TO_DEVICE };
    Copy "cuMemcpyDtoA" ["cuMemcpyDtoA_v2" "cuMemcpyDtoA_v2_ptds"] <- "cudaMemcpyToArray"
        { bytes: &[Arg(3)], direction: DEVICE_TO_DEVICE };
    Copy "cuMemcpyAtoA" ["cuMemcpyAtoA_v2" "cuMemcpyAtoA_v2_ptds"] <- "cudaMemcpyArrayToArray"
        { bytes: &[Arg(4)], direction: DEVICE_TO_DEVICE };
    Copy Async "cuMemcpyHtoAAsync" ["cuMemcpyHtoAAsync_v2" "cuMemcpyHtoAAsync_v2_ptsz"] <- "cudaMemcpyToArrayAsync"
        { bytes: &[Arg(3)], stream: Arg(4), direction: HOST_TO_DEVICE };
    Copy Async "cuMemcpyAtoHAsync" ["cuMemcpyAtoHAsync_v2" "cuMemcpyAtoHAsync_v2_ptsz"] <- "cudaMemcpyFromArrayAsync"
        { bytes: &[Arg(3)], stream: Arg(4), direction: DEVICE_TO_HOST };
    Copy "cuMemcpyPeer" ["cuMemcpyPeer" "cuMemcpyPeer_ptds"] <- "cudaMemcpyPeer"
        { bytes: &[Arg(4)], direction: PEER_TO_PEER };
    Copy Async "cuMemcpyPeerAsync" ["cuMemcpyPeerAsync" "cuMemcpyPeerAsync_ptsz"] <- "cudaMemcpyPeerAsync"
        { bytes: &[Arg(4)], stream: Arg(5), direction: PEER_TO_PEER };
    Copy "cuMemcpy2D" ["cuMemcpy2D_v2" "cuMemcpy2D_v2_ptds"] <- "cudaMemcpy2D" { bytes: BYTES_2D };
    Copy "cuMemcpy2DUnaligned" ["cuMemcpy2DUnaligned_v2" "cuMemcpy2DUnaligned_v2_ptds"] <- "cudaMemcpy2D"
        { bytes: BYTES_2D };
    Copy Async "cuMemcpy2DAsync" ["cuMemcpy2DAsync_v2" "cuMemcpy2DAsync_v2_ptsz"] <- "cudaMemcpy2DAsync"
        { bytes: BYTES_2D, stream: Arg(1) };
    Copy "cuMemcpy3D" ["cuMemcpy3D_v2" "cuMemcpy3D_v2_ptds"] <- "cudaMemcpy3D" { bytes: BYTES_3D };
    Copy Async "cuMemcpy3DAsync" ["cuMemcpy3DAsync_v2" "cuMemcpy3DAsync_v2_ptsz"] <- "cudaMemcpy3DAsync"
        { bytes: BYTES_3D, stream: Arg(1) };
    Copy "cuMemcpy3DPeer" ["cuMemcpy3DPeer" "cuMemcpy3DPeer_ptds"] <- "cudaMemcpy3DPeer"
        { bytes: BYTES_3D, direction: PEER_TO_PEER };
    Copy Async "cuMemcpy3DPeerAsync" ["cuMemcpy3DPeerAsync" "cuMemcpy3DPeerAsync_ptsz"] <- "cudaMemcpy3DPeerAsync"
        { bytes: BYTES_3D, stream: Arg(1), direction: PEER_TO_PEER };
    // The sizes of a batch are a list: no product of operands is their sum.
    Copy Async "cuMemcpyBatchAsync" ["cuMemcpyBatchAsync" "cuMemcpyBatchAsync_ptsz"] <- "cudaMemcpyBatchAsync"
        { stream: Arg(8), direction: INFERRED };
    Copy Async "cuMemcpyBatchAsync" ["cuMemcpyBatchAsync_v2" "cuMemcpyBatchAsync_v2_ptsz"] <- "cudaMemcpyBatchAsync"
        { stream: Arg(7), direction: INFERRED };
    Copy Async "cuMemcpy3DBatchAsync" ["cuMemcpy3DBatchAsync" "cuMemcpy3DBatchAsync_ptsz"] <- "cudaMemcpy3DBatchAsync"
        { stream: Arg(4) };
    Copy Async "cuMemcpy3DBatchAsync" ["cuMemcpy3DBatchAsync_v2" "cuMemcpy3DBatchAsync_v2_ptsz"]
        <- "cudaMemcpy3DBatchAsync" { stream: Arg(3) };
    Copy Async "cuMemcpyWithAttributesAsync" ["cuMemcpyWithAttributesAsync" "cuMemcpyWithAttributesAsync_ptsz"]
        <- "cudaMemcpyWithAttributesAsync" { bytes: &[Arg(2)], stream: Arg(4), direction: INFERRED };
    Copy Async Managed "cuMemPrefetchAsync" ["cuMemPrefetchAsync" "cuMemPrefetchAsync_ptsz"] <- "cudaMemPrefetchAsync"
        { bytes: &[Arg(1)], stream: Arg(3) };
    Copy Async Managed "cuMemPrefetchAsync" ["cuMemPrefetchAsync_v2" "cuMemPrefetchAsync_v2_ptsz"]
        <- "cudaMemPrefetchAsync" { bytes: &[Arg(1)], stream: Arg(4) };

    // Memsets.
    Memset "cuMemsetD8" ["cuMemsetD8_v2" "cuMemsetD8_v2_ptds"] <- "cudaMemset" { bytes: &[Arg(2)] };
    Memset "cuMemsetD16" ["cuMemsetD16_v2" "cuMemsetD16_v2_ptds"] { bytes: &[Arg(2), Const(2)] };
    Memset "cuMemsetD32" ["cuMemsetD32_v2" "cuMemsetD32_v2_ptds"] { bytes: &[Arg(2), Const(4)] };
    Memset "cuMemsetD2D8" ["cuMemsetD2D8_v2" "cuMemsetD2D8_v2_ptds"] <- "cudaMemset2D"
        { bytes: &[Arg(3), Arg(4)] };
    Memset "cuMemsetD2D16" ["cuMemsetD2D16_v2" "cuMemsetD2D16_v2_ptds"] { bytes: &[Arg(3), Arg(4), Const(2)] };
    Memset "cuMemsetD2D32" ["cuMemsetD2D32_v2" "cuMemsetD2D32_v2_ptds"] { bytes: &[Arg(3), Arg(4), Const(4)] };
    Memset Async "cuMemsetD8Async" ["cuMemsetD8Async" "cuMemsetD8Async_ptsz"] <- "cudaMemsetAsync"
        { bytes: &[Arg(2)], stream: Arg(3) };
    Memset Async "cuMemsetD16Async" ["cuMemsetD16Async" "cuMemsetD16Async_ptsz"]
        { bytes: &[Arg(2), Const(2)], stream: Arg(3) };
    Memset Async "cuMemsetD32Async" ["cuMemsetD32Async" "cuMemsetD32Async_ptsz"]
        { bytes: &[Arg(2), Const(4)], stream: Arg(3) };
    Memset Async "cuMemsetD2D8Async" ["cuMemsetD2D8Async" "cuMemsetD2D8Async_ptsz"] <- "cudaMemset2DAsync"
        { bytes: &[Arg(3), Arg(4)], stream: Arg(5) };
    Memset Async "cuMemsetD2D16Async" ["cuMemsetD2D16Async" "cuMemsetD2D16Async_ptsz"]
        { bytes: &[Arg(3), Arg(4), Const(2)], stream: Arg(5) };
    Memset Async "cuMemsetD2D32Async" ["cuMemsetD2D32Async" "cuMemsetD2D32Async_ptsz"]
        { bytes: &[Arg(3), Arg(4), Const(4)], stream: Arg(5) };

    // Memory. Bytes are read where physical memory is taken: reserving addresses and mapping what `cuMemCreate`
    // made takes no more of it.
    Alloc "cuMemAlloc" ["cuMemAlloc_v2"] <- "cudaMalloc" { bytes: &[Arg(1)], address: Out(0) };
    Alloc "cuMemAllocPitch" ["cuMemAllocPitch_v2"] <- "cudaMallocPitch"
        { bytes: &[Arg(2), Arg(3)], address: Out(0) };
    Alloc Host "cuMemAllocHost" ["cuMemAllocHost_v2"] <- "cudaMallocHost" { bytes: &[Arg(1)], address: Out(0) };
    Alloc Host "cuMemHostAlloc" ["cuMemHostAlloc"] <- "cudaHostAlloc" { bytes: &[Arg(1)], address: Out(0) };
    Alloc Host "cuMemHostRegister" ["cuMemHostRegister" "cuMemHostRegister_v2"] <- "cudaHostRegister"
        { bytes: &[Arg(1)], address: Arg(0) };
    Alloc Managed "cuMemAllocManaged" ["cuMemAllocManaged"] <- "cudaMallocManaged"
        { bytes: &[Arg(1)], address: Out(0) };
    Alloc Async "cuMemAllocAsync" ["cuMemAllocAsync" "cuMemAllocAsync_ptsz"] <- "cudaMallocAsync"
        { bytes: &[Arg(1)], address: Out(0), stream: Arg(2) };
    Alloc Async "cuMemAllocFromPoolAsync" ["cuMemAllocFromPoolAsync" "cuMemAllocFromPoolAsync_ptsz"]
        <- "cudaMallocFromPoolAsync" { bytes: &[Arg(1)], address: Out(0), handle: Arg(2), stream: Arg(3) };
    Alloc Unfollowed "cuMemCreate" ["cuMemCreate"] { bytes: &[Arg(1)], handle: Out(0) };
    Alloc Unfollowed "cuMemMap" ["cuMemMap"] { address: Arg(0), handle: Arg(3) };
    Alloc Unfollowed "cuMemAddressReserve" ["cuMemAddressReserve"] { address: Out(0) };
    Alloc Unfollowed "cuArrayCreate" ["cuArrayCreate_v2"] <- "cudaMallocArray" { handle: Out(0) };
    Alloc Unfollowed "cuArray3DCreate" ["cuArray3DCreate_v2"] <- "cudaMalloc3DArray" { handle: Out(0) };
    Free "cuMemFree" ["cuMemFree_v2"] <- "cudaFree" { address: Arg(0) };
    Free "cuMemFreeHost" ["cuMemFreeHost"] <- "cudaFreeHost" { address: Arg(0) };
    Free "cuMemHostUnregister" ["cuMemHostUnregister"] <- "cudaHostUnregister" { address: Arg(0) };
    Free Async "cuMemFreeAsync" ["cuMemFreeAsync" "cuMemFreeAsync_ptsz"] <- "cudaFreeAsync"
        { address: Arg(0), stream: Arg(1) };
    Free Unfollowed "cuMemRelease" ["cuMemRelease"] { handle: Arg(0) };
    Free Unfollowed "cuMemUnmap" ["cuMemUnmap"] { address: Arg(0) };
    Free Unfollowed "cuMemAddressFree" ["cuMemAddressFree"] { address: Arg(0) };
    Free Unfollowed "cuMemPoolTrimTo" ["cuMemPoolTrimTo"] <- "cudaMemPoolTrimTo" { handle: Arg(0) };
    Free Unfollowed "cuArrayDestroy" ["cuArrayDestroy"] <- "cudaFreeArray" { handle: Arg(0) };

    // Waits of the calling thread.
    // The context that the newer one names is not what is waited for: that is all of its work.
    Sync "cuCtxSynchronize" ["cuCtxSynchronize" "cuCtxSynchronize_v2"] <- "cudaDeviceSynchronize" {};
    Sync "cuStreamSynchronize" ["cuStreamSynchronize" "cuStreamSynchronize_ptsz"] <- "cudaStreamSynchronize"
        { stream: Arg(0) };
    Sync "cuEventSynchronize" ["cuEventSynchronize"] <- "cudaEventSynchronize" { handle: Arg(0) };

    // Order between streams.
    Event "cuEventRecord" ["cuEventRecord" "cuEventRecord_ptsz"] <- "cudaEventRecord"
        { handle: Arg(0), stream: Arg(1) };
    Event "cuEventRecordWithFlags" ["cuEventRecordWithFlags" "cuEventRecordWithFlags_ptsz"]
        <- "cudaEventRecordWithFlags" { handle: Arg(0), stream: Arg(1) };
    Event "cuStreamWaitEvent" ["cuStreamWaitEvent" "cuStreamWaitEvent_ptsz"] <- "cudaStreamWaitEvent"
        { handle: Arg(1), stream: Arg(0) };

    // Graphs.
    Graph Capture "cuStreamBeginCapture" ["cuStreamBeginCapture_v2" "cuStreamBeginCapture_v2_ptsz"]
        <- "cudaStreamBeginCapture" { stream: Arg(0) };
    Graph Capture "cuStreamBeginCapture" ["cuStreamBeginCapture" "cuStreamBeginCapture_ptsz"]
        <- "cudaStreamBeginCapture" { stream: Arg(0) };
    Graph Capture "cuStreamBeginCaptureToGraph" ["cuStreamBeginCaptureToGraph" "cuStreamBeginCaptureToGraph_ptsz"]
        <- "cudaStreamBeginCaptureToGraph" { handle: Arg(1), stream: Arg(0) };
    Graph Captured "cuStreamEndCapture" ["cuStreamEndCapture" "cuStreamEndCapture_ptsz"] <- "cudaStreamEndCapture"
        { handle: Out(1), stream: Arg(0) };
    Graph Instantiate "cuGraphInstantiate" ["cuGraphInstantiate" "cuGraphInstantiate_v2"] <- "cudaGraphInstantiate"
        { handle: Out(0), address: Arg(1) };
    Graph Instantiate "cuGraphInstantiateWithFlags" ["cuGraphInstantiateWithFlags"] <- "cudaGraphInstantiateWithFlags"
        { handle: Out(0), address: Arg(1) };
    Graph Instantiate "cuGraphInstantiateWithParams"
        ["cuGraphInstantiateWithParams" "cuGraphInstantiateWithParams_ptsz"] <- "cudaGraphInstantiateWithParams"
        { handle: Out(0), address: Arg(1) };
    Graph Launch Async "cuGraphLaunch" ["cuGraphLaunch" "cuGraphLaunch_ptsz"] <- "cudaGraphLaunch"
        { handle: Arg(0), stream: Arg(1) };
    Graph Async "cuGraphUpload" ["cuGraphUpload" "cuGraphUpload_ptsz"] <- "cudaGraphUpload"
        { handle: Arg(0), stream: Arg(1) };
    Graph "cuGraphExecUpdate" ["cuGraphExecUpdate_v2"] <- "cudaGraphExecUpdate" { handle: Arg(0) };
    Graph "cuGraphExecUpdate" ["cuGraphExecUpdate"] <- "cudaGraphExecUpdate" { handle: Arg(0) };
    Graph "cuGraphExecDestroy" ["cuGraphExecDestroy"] <- "cudaGraphExecDestroy" { handle: Arg(0) };
    Graph "cuGraphDestroy" ["cuGraphDestroy"] <- "cudaGraphDestroy" { handle: Arg(0) };

    // Code.
    Module "cuModuleLoad" ["cuModuleLoad"] { handle: Out(0) };
    Module "cuModuleLoadData" ["cuModuleLoadData"] { handle: Out(0) };
    Module "cuModuleLoadDataEx" ["cuModuleLoadDataEx"] { handle: Out(0) };
    Module "cuModuleLoadFatBinary" ["cuModuleLoadFatBinary"] { handle: Out(0) };
    Module "cuModuleUnload" ["cuModuleUnload"] { handle: Arg(0) };
    Module "cuLibraryLoadData" ["cuLibraryLoadData"] <- "cudaLibraryLoadData" { handle: Out(0) };
    Module "cuLibraryLoadFromFile" ["cuLibraryLoadFromFile"] <- "cudaLibraryLoadFromFile" { handle: Out(0) };
    Module "cuLibraryUnload" ["cuLibraryUnload"] <- "cudaLibraryUnload" { handle: Arg(0) };
    Module "cuLinkCreate" ["cuLinkCreate" "cuLinkCreate_v2"] { handle: Out(3) };
    Module "cuLinkAddData" ["cuLinkAddData" "cuLinkAddData_v2"] { handle: Arg(0) };
    Module "cuLinkAddFile" ["cuLinkAddFile" "cuLinkAddFile_v2"] { handle: Arg(0) };
    Module "cuLinkComplete" ["cuLinkComplete"] { handle: Arg(0) };
    Module "cuLinkDestroy" ["cuLinkDestroy"] { handle: Arg(0) };

    // Which GPU the thread works on.
    Context "cuDevicePrimaryCtxRetain" ["cuDevicePrimaryCtxRetain"]
        { handle: Out(0), device: BindContext(Arg32(1)) };
    Context "cuDevicePrimaryCtxRelease" ["cuDevicePrimaryCtxRelease" "cuDevicePrimaryCtxRelease_v2"] {};
    Context "cuDevicePrimaryCtxReset" ["cuDevicePrimaryCtxReset" "cuDevicePrimaryCtxReset_v2"]
        <- "cudaDeviceReset" {};
    Context "cuCtxCreate" ["cuCtxCreate" "cuCtxCreate_v2"] { handle: Out(0), device: BindAndSelect(Arg32(2)) };
    Context "cuCtxCreate" ["cuCtxCreate_v3"] { handle: Out(0), device: BindAndSelect(Arg32(4)) };
    Context "cuCtxCreate" ["cuCtxCreate_v4"] { handle: Out(0), device: BindAndSelect(Arg32(3)) };
    // Called before nearly every launch by the runtime, for the current context.
    Context "cuCtxGetDevice" ["cuCtxGetDevice"] learns { device: SelectDevice(Out32(0)) };
    Context "cuCtxGetDevice" ["cuCtxGetDevice_v2"] learns { handle: Arg(1), device: BindAndSelect(Out32(0)) };
    Context "cuCtxSetCurrent" ["cuCtxSetCurrent"] <- "cudaSetDevice"
        { handle: Arg(0), device: SelectContext };
    Context "cuCtxPushCurrent" ["cuCtxPushCurrent" "cuCtxPushCurrent_v2"] { handle: Arg(0), device: PushContext };
    Context "cuCtxPopCurrent" ["cuCtxPopCurrent" "cuCtxPopCurrent_v2"] { handle: Out(0), device: PopContext };
    Context "cuCtxDestroy" ["cuCtxDestroy" "cuCtxDestroy_v2"] { handle: Arg(0) };
};
