//! The CUDA runtime library (libcudart). Each of these calls makes one driver call, which the driver table shows: the
//! layer is probed as a whole only on request, and by default only the rows marked `says_more`.
//!
//! Left out is what programs call many times per launch (`cudaGetDevice`, `cudaGetLastError`, `cudaEventQuery`...).

use super::DeviceChange::SelectDevice;
use super::Operand::{Arg, Arg32, Field, Out};
use super::{Api, Library, Operand, Way};
use gpuwhy_model::{Direction, Layer};

pub const LIBRARY: Library = Library {
    name: "cuda-runtime",
    layer: Layer::Runtime,
    markers: &["cudaRuntimeGetVersion", "cudaLaunchKernel", "cudaMalloc"],
    linked_in: Some("cudaLaunchKernel"),
    apis: APIS,
    own: None,
};

const INFERRED: Way = Way::Fixed(Direction::Inferred);
const PEER_TO_PEER: Way = Way::Fixed(Direction::PeerToPeer);

/// `kind` of `cudaMemcpy3DParms`. Its extent counts elements when an array takes part, so it gives no bytes.
const KIND_3D: Way = Way::Field(0, 152);
/// `stream` of `cudaLaunchConfig_t`.
const CONFIG_STREAM: Operand = Field(0, 32);

const APIS: &[Api] = apis! {
    // Launches. The two `dim3` take two slots each.
    // `__cudaLaunchKernel` jumps to `cudaLaunchKernel`, where it is seen.
    Launch "cudaLaunchKernel" ["cudaLaunchKernel" "cudaLaunchKernel_ptsz"] { handle: Arg(0), stream: Arg(7) };
    Launch "cudaLaunchKernelExC" ["cudaLaunchKernelExC" "cudaLaunchKernelExC_ptsz"]
        { handle: Arg(1), stream: CONFIG_STREAM };
    Launch "cudaLaunchCooperativeKernel" ["cudaLaunchCooperativeKernel" "cudaLaunchCooperativeKernel_ptsz"]
        { handle: Arg(0), stream: Arg(7) };
    Launch "cudaLaunchCooperativeKernelMultiDevice" ["cudaLaunchCooperativeKernelMultiDevice"]
        { handle: Field(0, 0) };
    Launch "cudaLaunchHostFunc" ["cudaLaunchHostFunc" "cudaLaunchHostFunc_ptsz"]
        { handle: Arg(1), stream: Arg(0) };
    Launch "cudaLaunchHostFunc" ["cudaLaunchHostFunc_v2" "cudaLaunchHostFunc_v2_ptsz"]
        { handle: Arg(1), stream: Arg(0) };

    // Copies.
    Copy "cudaMemcpy" ["cudaMemcpy" "cudaMemcpy_ptds"] { bytes: &[Arg(2)], direction: Way::Arg(3) };
    Copy Async "cudaMemcpyAsync" ["cudaMemcpyAsync" "cudaMemcpyAsync_ptsz"]
        { bytes: &[Arg(2)], direction: Way::Arg(3), stream: Arg(4) };
    Copy "cudaMemcpyPeer" ["cudaMemcpyPeer"] { bytes: &[Arg(4)], direction: PEER_TO_PEER };
    Copy Async "cudaMemcpyPeerAsync" ["cudaMemcpyPeerAsync"]
        { bytes: &[Arg(4)], direction: PEER_TO_PEER, stream: Arg(5) };
    Copy "cudaMemcpyToSymbol" ["cudaMemcpyToSymbol" "cudaMemcpyToSymbol_ptds"]
        { bytes: &[Arg(2)], direction: Way::Arg(4) };
    Copy "cudaMemcpyFromSymbol" ["cudaMemcpyFromSymbol" "cudaMemcpyFromSymbol_ptds"]
        { bytes: &[Arg(2)], direction: Way::Arg(4) };
    Copy Async "cudaMemcpyToSymbolAsync" ["cudaMemcpyToSymbolAsync" "cudaMemcpyToSymbolAsync_ptsz"]
        { bytes: &[Arg(2)], direction: Way::Arg(4), stream: Arg(5) };
    Copy Async "cudaMemcpyFromSymbolAsync" ["cudaMemcpyFromSymbolAsync" "cudaMemcpyFromSymbolAsync_ptsz"]
        { bytes: &[Arg(2)], direction: Way::Arg(4), stream: Arg(5) };
    Copy "cudaMemcpyToArray" ["cudaMemcpyToArray" "cudaMemcpyToArray_ptds"]
        { bytes: &[Arg(4)], direction: Way::Arg(5) };
    Copy "cudaMemcpyFromArray" ["cudaMemcpyFromArray" "cudaMemcpyFromArray_ptds"]
        { bytes: &[Arg(4)], direction: Way::Arg(5) };
    Copy "cudaMemcpyArrayToArray" ["cudaMemcpyArrayToArray" "cudaMemcpyArrayToArray_ptds"]
        { bytes: &[Arg(6)], direction: Way::Arg(7) };
    Copy Async "cudaMemcpyToArrayAsync" ["cudaMemcpyToArrayAsync" "cudaMemcpyToArrayAsync_ptsz"]
        { bytes: &[Arg(4)], direction: Way::Arg(5), stream: Arg(6) };
    Copy Async "cudaMemcpyFromArrayAsync" ["cudaMemcpyFromArrayAsync" "cudaMemcpyFromArrayAsync_ptsz"]
        { bytes: &[Arg(4)], direction: Way::Arg(5), stream: Arg(6) };
    Copy "cudaMemcpy2D" ["cudaMemcpy2D" "cudaMemcpy2D_ptds"]
        { bytes: &[Arg(4), Arg(5)], direction: Way::Arg(6) };
    Copy Async "cudaMemcpy2DAsync" ["cudaMemcpy2DAsync" "cudaMemcpy2DAsync_ptsz"]
        { bytes: &[Arg(4), Arg(5)], direction: Way::Arg(6), stream: Arg(7) };
    Copy "cudaMemcpy2DToArray" ["cudaMemcpy2DToArray" "cudaMemcpy2DToArray_ptds"]
        { bytes: &[Arg(5), Arg(6)], direction: Way::Arg(7) };
    Copy Async "cudaMemcpy2DToArrayAsync" ["cudaMemcpy2DToArrayAsync" "cudaMemcpy2DToArrayAsync_ptsz"]
        { bytes: &[Arg(5), Arg(6)], direction: Way::Arg(7), stream: Arg(8) };
    Copy "cudaMemcpy2DFromArray" ["cudaMemcpy2DFromArray" "cudaMemcpy2DFromArray_ptds"]
        { bytes: &[Arg(5), Arg(6)], direction: Way::Arg(7) };
    Copy Async "cudaMemcpy2DFromArrayAsync" ["cudaMemcpy2DFromArrayAsync" "cudaMemcpy2DFromArrayAsync_ptsz"]
        { bytes: &[Arg(5), Arg(6)], direction: Way::Arg(7), stream: Arg(8) };
    Copy "cudaMemcpy2DArrayToArray" ["cudaMemcpy2DArrayToArray" "cudaMemcpy2DArrayToArray_ptds"]
        { bytes: &[Arg(6), Arg(7)], direction: Way::Arg(8) };
    Copy "cudaMemcpy3D" ["cudaMemcpy3D" "cudaMemcpy3D_ptds"] { direction: KIND_3D };
    Copy Async "cudaMemcpy3DAsync" ["cudaMemcpy3DAsync" "cudaMemcpy3DAsync_ptsz"]
        { direction: KIND_3D, stream: Arg(1) };
    Copy "cudaMemcpy3DPeer" ["cudaMemcpy3DPeer" "cudaMemcpy3DPeer_ptds"] { direction: PEER_TO_PEER };
    Copy Async "cudaMemcpy3DPeerAsync" ["cudaMemcpy3DPeerAsync" "cudaMemcpy3DPeerAsync_ptsz"]
        { direction: PEER_TO_PEER, stream: Arg(1) };
    // CUDA 13 drops an argument before the stream of these and keeps their names, so that no slot holds for both.
    Copy Async "cudaMemcpyBatchAsync" ["cudaMemcpyBatchAsync" "cudaMemcpyBatchAsync_ptsz"] { direction: INFERRED };
    Copy Async "cudaMemcpy3DBatchAsync" ["cudaMemcpy3DBatchAsync" "cudaMemcpy3DBatchAsync_ptsz"] {};
    Copy Async Managed "cudaMemPrefetchAsync" ["cudaMemPrefetchAsync" "cudaMemPrefetchAsync_ptsz"] { bytes: &[Arg(1)] };
    Copy Async Managed "cudaMemPrefetchAsync" ["cudaMemPrefetchAsync_v2" "cudaMemPrefetchAsync_v2_ptsz"]
        { bytes: &[Arg(1)], stream: Arg(4) };
    Copy Async "cudaMemcpyWithAttributesAsync" ["cudaMemcpyWithAttributesAsync" "cudaMemcpyWithAttributesAsync_ptsz"]
        { bytes: &[Arg(2)], direction: INFERRED, stream: Arg(4) };

    // Memsets. The structs of the 3D ones lie on the stack, after which the other arguments take the first registers.
    Memset "cudaMemset" ["cudaMemset" "cudaMemset_ptds"] { bytes: &[Arg(2)] };
    Memset Async "cudaMemsetAsync" ["cudaMemsetAsync" "cudaMemsetAsync_ptsz"] { bytes: &[Arg(2)], stream: Arg(3) };
    Memset "cudaMemset2D" ["cudaMemset2D" "cudaMemset2D_ptds"] { bytes: &[Arg(3), Arg(4)] };
    Memset Async "cudaMemset2DAsync" ["cudaMemset2DAsync" "cudaMemset2DAsync_ptsz"]
        { bytes: &[Arg(3), Arg(4)], stream: Arg(5) };
    Memset "cudaMemset3D" ["cudaMemset3D" "cudaMemset3D_ptds"] { bytes: &[Arg(10), Arg(11), Arg(12)] };
    Memset Async "cudaMemset3DAsync" ["cudaMemset3DAsync" "cudaMemset3DAsync_ptsz"]
        { bytes: &[Arg(10), Arg(11), Arg(12)], stream: Arg(1) };

    // Memory. The extents of arrays count elements, so arrays have no bytes here.
    Alloc "cudaMalloc" ["cudaMalloc"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc "cudaMallocPitch" ["cudaMallocPitch"] { bytes: &[Arg(2), Arg(3)], address: Out(0) };
    Alloc "cudaMalloc3D" ["cudaMalloc3D"] { bytes: &[Arg(6), Arg(7), Arg(8)], address: Out(0) };
    Alloc Host "cudaMallocHost" ["cudaMallocHost"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc Host "cudaHostAlloc" ["cudaHostAlloc"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc Host "cudaHostRegister" ["cudaHostRegister"] { bytes: &[Arg(1)], address: Arg(0) };
    Alloc Managed "cudaMallocManaged" ["cudaMallocManaged"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc Async "cudaMallocAsync" ["cudaMallocAsync" "cudaMallocAsync_ptsz"]
        { bytes: &[Arg(1)], address: Out(0), stream: Arg(2) };
    Alloc Async "cudaMallocFromPoolAsync" ["cudaMallocFromPoolAsync" "cudaMallocFromPoolAsync_ptsz"]
        { bytes: &[Arg(1)], address: Out(0), handle: Arg(2), stream: Arg(3) };
    Alloc Unfollowed "cudaMallocArray" ["cudaMallocArray"] { handle: Out(0) };
    Alloc Unfollowed "cudaMalloc3DArray" ["cudaMalloc3DArray"] { handle: Out(0) };
    Alloc Unfollowed "cudaMallocMipmappedArray" ["cudaMallocMipmappedArray"] { handle: Out(0) };
    Free "cudaFree" ["cudaFree"] { address: Arg(0) };
    Free "cudaFreeHost" ["cudaFreeHost"] { address: Arg(0) };
    Free "cudaHostUnregister" ["cudaHostUnregister"] { address: Arg(0) };
    Free Async "cudaFreeAsync" ["cudaFreeAsync" "cudaFreeAsync_ptsz"] { address: Arg(0), stream: Arg(1) };
    Free Unfollowed "cudaMemPoolTrimTo" ["cudaMemPoolTrimTo"] { handle: Arg(0) };
    Free Unfollowed "cudaFreeArray" ["cudaFreeArray"] { handle: Arg(0) };
    Free Unfollowed "cudaFreeMipmappedArray" ["cudaFreeMipmappedArray"] { handle: Arg(0) };

    // Waits of the calling thread.
    Sync "cudaDeviceSynchronize" ["cudaDeviceSynchronize"] {};
    Sync "cudaThreadSynchronize" ["cudaThreadSynchronize"] {};
    Sync "cudaStreamSynchronize" ["cudaStreamSynchronize" "cudaStreamSynchronize_ptsz"] { stream: Arg(0) };
    Sync "cudaEventSynchronize" ["cudaEventSynchronize"] { handle: Arg(0) };

    // Order between streams.
    Event "cudaEventRecord" ["cudaEventRecord" "cudaEventRecord_ptsz"] { handle: Arg(0), stream: Arg(1) };
    Event "cudaEventRecordWithFlags" ["cudaEventRecordWithFlags" "cudaEventRecordWithFlags_ptsz"]
        { handle: Arg(0), stream: Arg(1) };
    Event "cudaStreamWaitEvent" ["cudaStreamWaitEvent" "cudaStreamWaitEvent_ptsz"]
        { handle: Arg(1), stream: Arg(0) };

    // Graphs. `cudaGraphInstantiate` and `cudaGraphExecUpdate` change what follows these arguments in CUDA 12.
    Graph Capture "cudaStreamBeginCapture" ["cudaStreamBeginCapture" "cudaStreamBeginCapture_ptsz"] { stream: Arg(0) };
    Graph Capture "cudaStreamBeginCaptureToGraph" ["cudaStreamBeginCaptureToGraph" "cudaStreamBeginCaptureToGraph_ptsz"]
        { handle: Arg(1), stream: Arg(0) };
    Graph Captured "cudaStreamEndCapture" ["cudaStreamEndCapture" "cudaStreamEndCapture_ptsz"]
        { handle: Out(1), stream: Arg(0) };
    Graph Instantiate "cudaGraphInstantiate" ["cudaGraphInstantiate"] { handle: Out(0), address: Arg(1) };
    Graph Instantiate "cudaGraphInstantiateWithFlags" ["cudaGraphInstantiateWithFlags"] { handle: Out(0), address: Arg(1) };
    Graph Instantiate "cudaGraphInstantiateWithParams"
        ["cudaGraphInstantiateWithParams" "cudaGraphInstantiateWithParams_ptsz"] { handle: Out(0), address: Arg(1) };
    Graph Launch Async "cudaGraphLaunch" ["cudaGraphLaunch" "cudaGraphLaunch_ptsz"] { handle: Arg(0), stream: Arg(1) };
    Graph Async "cudaGraphUpload" ["cudaGraphUpload" "cudaGraphUpload_ptsz"] { handle: Arg(0), stream: Arg(1) };
    Graph "cudaGraphExecUpdate" ["cudaGraphExecUpdate"] { handle: Arg(0) };
    Graph "cudaGraphExecDestroy" ["cudaGraphExecDestroy"] { handle: Arg(0) };
    Graph "cudaGraphDestroy" ["cudaGraphDestroy"] { handle: Arg(0) };

    // Code.
    Module "cudaLibraryLoadData" ["cudaLibraryLoadData"] { handle: Out(0) };
    Module "cudaLibraryLoadFromFile" ["cudaLibraryLoadFromFile"] { handle: Out(0) };
    Module "cudaLibraryUnload" ["cudaLibraryUnload"] { handle: Arg(0) };

    // Which GPU the thread works on.
    Context "cudaSetDevice" ["cudaSetDevice"] says_more { device: SelectDevice(Arg32(0)) };
    Context "cudaInitDevice" ["cudaInitDevice"] says_more {};
    Context "cudaDeviceReset" ["cudaDeviceReset"] says_more {};
    Context "cudaThreadExit" ["cudaThreadExit"] says_more {};
};
