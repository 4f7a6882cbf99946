//! AMD's library (libamdhip64). It is the lowest that programs call: what it asks the kernel for is seen nowhere else. Its
//! functions are those of the CUDA runtime and driver under other names, arguments and all.
//!
//! Left out is what programs call many times per launch (`hipGetDevice`, `hipGetLastError`, `hipEventQuery`...).

use super::DeviceChange::SelectDevice;
use super::Operand::{Arg, Arg32, Const, Field, Out, Out32};
use super::{Api, Library, Operand, Way};
use gpuwhy_model::{Direction, Layer};

pub const LIBRARY: Library = Library {
    name: "hip",
    layer: Layer::Driver,
    markers: &["hipRuntimeGetVersion", "hipLaunchKernel", "hipMalloc"],
    linked_in: None,
    apis: APIS,
    own: None,
};

const HOST_TO_DEVICE: Way = Way::Fixed(Direction::HostToDevice);
const DEVICE_TO_HOST: Way = Way::Fixed(Direction::DeviceToHost);
const DEVICE_TO_DEVICE: Way = Way::Fixed(Direction::DeviceToDevice);
const PEER_TO_PEER: Way = Way::Fixed(Direction::PeerToPeer);
/// `stream` of `hipLaunchConfig_t`.
const CONFIG_STREAM: Operand = Field(0, 32);

const APIS: &[Api] = apis! {
    // Launches. The two `dim3` take two slots each.
    Launch "hipLaunchKernel" ["hipLaunchKernel" "hipLaunchKernel_spt"] { handle: Arg(0), stream: Arg(7) };
    Launch "hipExtLaunchKernel" ["hipExtLaunchKernel"] { handle: Arg(0), stream: Arg(7) };
    Launch "hipLaunchKernelExC" ["hipLaunchKernelExC" "hipLaunchKernelExC_spt"]
        { handle: Arg(1), stream: CONFIG_STREAM };
    Launch "hipLaunchCooperativeKernel" ["hipLaunchCooperativeKernel" "hipLaunchCooperativeKernel_spt"]
        { handle: Arg(0), stream: Arg(7) };
    Launch "hipModuleLaunchKernel" ["hipModuleLaunchKernel"] { handle: Arg(0), stream: Arg(8) };
    Launch "hipModuleLaunchCooperativeKernel" ["hipModuleLaunchCooperativeKernel"] { handle: Arg(0), stream: Arg(8) };
    Launch "hipExtModuleLaunchKernel" ["hipExtModuleLaunchKernel"] { handle: Arg(0), stream: Arg(8) };
    Launch "hipLaunchHostFunc" ["hipLaunchHostFunc" "hipLaunchHostFunc_spt"] { handle: Arg(1), stream: Arg(0) };

    // Copies. Their kinds count like those of CUDA.
    Copy "hipMemcpy" ["hipMemcpy" "hipMemcpy_spt"] { bytes: &[Arg(2)], direction: Way::Arg(3) };
    Copy Async "hipMemcpyAsync" ["hipMemcpyAsync" "hipMemcpyAsync_spt"]
        { bytes: &[Arg(2)], direction: Way::Arg(3), stream: Arg(4) };
    Copy "hipMemcpyWithStream" ["hipMemcpyWithStream"]
        { bytes: &[Arg(2)], direction: Way::Arg(3), stream: Arg(4) };
    Copy "hipMemcpyHtoD" ["hipMemcpyHtoD"] { bytes: &[Arg(2)], direction: HOST_TO_DEVICE };
    Copy "hipMemcpyDtoH" ["hipMemcpyDtoH"] { bytes: &[Arg(2)], direction: DEVICE_TO_HOST };
    Copy "hipMemcpyDtoD" ["hipMemcpyDtoD"] { bytes: &[Arg(2)], direction: DEVICE_TO_DEVICE };
    Copy Async "hipMemcpyHtoDAsync" ["hipMemcpyHtoDAsync"]
        { bytes: &[Arg(2)], direction: HOST_TO_DEVICE, stream: Arg(3) };
    Copy Async "hipMemcpyDtoHAsync" ["hipMemcpyDtoHAsync"]
        { bytes: &[Arg(2)], direction: DEVICE_TO_HOST, stream: Arg(3) };
    Copy Async "hipMemcpyDtoDAsync" ["hipMemcpyDtoDAsync"]
        { bytes: &[Arg(2)], direction: DEVICE_TO_DEVICE, stream: Arg(3) };
    Copy "hipMemcpyPeer" ["hipMemcpyPeer"] { bytes: &[Arg(4)], direction: PEER_TO_PEER };
    Copy Async "hipMemcpyPeerAsync" ["hipMemcpyPeerAsync"]
        { bytes: &[Arg(4)], direction: PEER_TO_PEER, stream: Arg(5) };
    Copy "hipMemcpyToSymbol" ["hipMemcpyToSymbol" "hipMemcpyToSymbol_spt"]
        { bytes: &[Arg(2)], direction: Way::Arg(4) };
    Copy "hipMemcpyFromSymbol" ["hipMemcpyFromSymbol" "hipMemcpyFromSymbol_spt"]
        { bytes: &[Arg(2)], direction: Way::Arg(4) };
    Copy Async "hipMemcpyToSymbolAsync" ["hipMemcpyToSymbolAsync" "hipMemcpyToSymbolAsync_spt"]
        { bytes: &[Arg(2)], direction: Way::Arg(4), stream: Arg(5) };
    Copy Async "hipMemcpyFromSymbolAsync" ["hipMemcpyFromSymbolAsync" "hipMemcpyFromSymbolAsync_spt"]
        { bytes: &[Arg(2)], direction: Way::Arg(4), stream: Arg(5) };
    Copy "hipMemcpy2D" ["hipMemcpy2D" "hipMemcpy2D_spt"] { bytes: &[Arg(4), Arg(5)], direction: Way::Arg(6) };
    Copy Async "hipMemcpy2DAsync" ["hipMemcpy2DAsync" "hipMemcpy2DAsync_spt"]
        { bytes: &[Arg(4), Arg(5)], direction: Way::Arg(6), stream: Arg(7) };
    Copy "hipMemcpy3D" ["hipMemcpy3D" "hipMemcpy3D_spt"] {};
    Copy Async "hipMemcpy3DAsync" ["hipMemcpy3DAsync" "hipMemcpy3DAsync_spt"] { stream: Arg(1) };
    Copy Async Managed "hipMemPrefetchAsync" ["hipMemPrefetchAsync"] { bytes: &[Arg(1)], stream: Arg(3) };

    // Memsets. The structs of the 3D ones lie on the stack, after which the other arguments take the first registers.
    Memset "hipMemset" ["hipMemset" "hipMemset_spt"] { bytes: &[Arg(2)] };
    Memset Async "hipMemsetAsync" ["hipMemsetAsync" "hipMemsetAsync_spt"] { bytes: &[Arg(2)], stream: Arg(3) };
    Memset "hipMemsetD8" ["hipMemsetD8"] { bytes: &[Arg(2)] };
    Memset Async "hipMemsetD8Async" ["hipMemsetD8Async"] { bytes: &[Arg(2)], stream: Arg(3) };
    Memset "hipMemsetD16" ["hipMemsetD16"] { bytes: &[Arg(2), Const(2)] };
    Memset Async "hipMemsetD16Async" ["hipMemsetD16Async"] { bytes: &[Arg(2), Const(2)], stream: Arg(3) };
    Memset "hipMemsetD32" ["hipMemsetD32"] { bytes: &[Arg(2), Const(4)] };
    Memset Async "hipMemsetD32Async" ["hipMemsetD32Async"] { bytes: &[Arg(2), Const(4)], stream: Arg(3) };
    Memset "hipMemset2D" ["hipMemset2D" "hipMemset2D_spt"] { bytes: &[Arg(3), Arg(4)] };
    Memset Async "hipMemset2DAsync" ["hipMemset2DAsync" "hipMemset2DAsync_spt"]
        { bytes: &[Arg(3), Arg(4)], stream: Arg(5) };
    Memset "hipMemset3D" ["hipMemset3D" "hipMemset3D_spt"] { bytes: &[Arg(10), Arg(11), Arg(12)] };
    Memset Async "hipMemset3DAsync" ["hipMemset3DAsync" "hipMemset3DAsync_spt"]
        { bytes: &[Arg(10), Arg(11), Arg(12)], stream: Arg(1) };

    // Memory. The extents of arrays count elements, so arrays have no bytes here.
    Alloc "hipMalloc" ["hipMalloc"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc "hipExtMallocWithFlags" ["hipExtMallocWithFlags"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc "hipMallocPitch" ["hipMallocPitch" "hipMemAllocPitch"] { bytes: &[Arg(2), Arg(3)], address: Out(0) };
    Alloc Host "hipHostMalloc" ["hipHostMalloc" "hipHostAlloc" "hipMallocHost" "hipMemAllocHost"]
        { bytes: &[Arg(1)], address: Out(0) };
    Alloc Host "hipHostRegister" ["hipHostRegister"] { bytes: &[Arg(1)], address: Arg(0) };
    Alloc Managed "hipMallocManaged" ["hipMallocManaged"] { bytes: &[Arg(1)], address: Out(0) };
    Alloc Async "hipMallocAsync" ["hipMallocAsync"] { bytes: &[Arg(1)], address: Out(0), stream: Arg(2) };
    Alloc Async "hipMallocFromPoolAsync" ["hipMallocFromPoolAsync"]
        { bytes: &[Arg(1)], address: Out(0), handle: Arg(2), stream: Arg(3) };
    Alloc Unfollowed "hipMallocArray" ["hipMallocArray"] { handle: Out(0) };
    Alloc Unfollowed "hipMalloc3DArray" ["hipMalloc3DArray"] { handle: Out(0) };
    Alloc Unfollowed "hipMemCreate" ["hipMemCreate"] { handle: Out(0), bytes: &[Arg(1)] };
    Free "hipFree" ["hipFree"] { address: Arg(0) };
    Free "hipHostFree" ["hipHostFree" "hipFreeHost"] { address: Arg(0) };
    Free "hipHostUnregister" ["hipHostUnregister"] { address: Arg(0) };
    Free Async "hipFreeAsync" ["hipFreeAsync"] { address: Arg(0), stream: Arg(1) };
    Free Unfollowed "hipMemPoolTrimTo" ["hipMemPoolTrimTo"] { handle: Arg(0) };
    Free Unfollowed "hipFreeArray" ["hipFreeArray"] { handle: Arg(0) };
    Free Unfollowed "hipMemRelease" ["hipMemRelease"] { handle: Arg(0) };

    // Waits of the calling thread.
    Sync "hipDeviceSynchronize" ["hipDeviceSynchronize"] {};
    Sync "hipCtxSynchronize" ["hipCtxSynchronize"] {};
    Sync "hipStreamSynchronize" ["hipStreamSynchronize" "hipStreamSynchronize_spt"] { stream: Arg(0) };
    Sync "hipEventSynchronize" ["hipEventSynchronize"] { handle: Arg(0) };

    // Order between streams.
    Event "hipEventRecord" ["hipEventRecord" "hipEventRecord_spt"] { handle: Arg(0), stream: Arg(1) };
    Event "hipStreamWaitEvent" ["hipStreamWaitEvent" "hipStreamWaitEvent_spt"] { handle: Arg(1), stream: Arg(0) };

    // Graphs.
    Graph Capture "hipStreamBeginCapture" ["hipStreamBeginCapture" "hipStreamBeginCapture_spt"] { stream: Arg(0) };
    Graph Captured "hipStreamEndCapture" ["hipStreamEndCapture" "hipStreamEndCapture_spt"] { handle: Out(1), stream: Arg(0) };
    Graph Instantiate "hipGraphInstantiate" ["hipGraphInstantiate"] { handle: Out(0), address: Arg(1) };
    Graph Instantiate "hipGraphInstantiateWithFlags" ["hipGraphInstantiateWithFlags"] { handle: Out(0), address: Arg(1) };
    Graph Instantiate "hipGraphInstantiateWithParams" ["hipGraphInstantiateWithParams"] { handle: Out(0), address: Arg(1) };
    Graph Launch Async "hipGraphLaunch" ["hipGraphLaunch" "hipGraphLaunch_spt"] { handle: Arg(0), stream: Arg(1) };
    Graph Async "hipGraphUpload" ["hipGraphUpload"] { handle: Arg(0), stream: Arg(1) };
    Graph "hipGraphExecUpdate" ["hipGraphExecUpdate"] { handle: Arg(0) };
    Graph "hipGraphExecDestroy" ["hipGraphExecDestroy"] { handle: Arg(0) };
    Graph "hipGraphDestroy" ["hipGraphDestroy"] { handle: Arg(0) };

    // Code.
    Module "hipModuleLoad" ["hipModuleLoad"] { handle: Out(0) };
    Module "hipModuleLoadData" ["hipModuleLoadData"] { handle: Out(0) };
    Module "hipModuleLoadDataEx" ["hipModuleLoadDataEx"] { handle: Out(0) };
    Module "hipModuleUnload" ["hipModuleUnload"] { handle: Arg(0) };

    // Which GPU the thread works on.
    Context "hipSetDevice" ["hipSetDevice"] { device: SelectDevice(Arg32(0)) };
    Context "hipGetDevice" ["hipGetDevice"] learns { device: SelectDevice(Out32(0)) };
    Context "hipDeviceReset" ["hipDeviceReset"] {};
};
