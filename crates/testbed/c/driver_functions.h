// SPDX-License-Identifier: Apache-2.0
//
// The functions of the fake driver library: every one in the tracer's table, which a test holds, and a few more.
#ifndef DRIVER_FUNCTIONS_H
#define DRIVER_FUNCTIONS_H

// PLAIN(name) does what its plan says. OUT(name, slot) then stores a new handle through that argument.
// BY_HAND(name) is written out in fake_driver.c or fake_context.c.
// clang-format off
#define DRIVER_FUNCTIONS(PLAIN, OUT, BY_HAND) \
    PLAIN(cuLaunchKernel) \
    PLAIN(cuLaunchKernelEx) \
    PLAIN(cuLaunchCooperativeKernel) \
    PLAIN(cuLaunchCooperativeKernelMultiDevice) \
    PLAIN(cuLaunchHostFunc) \
    PLAIN(cuLaunchHostFunc_v2) \
    PLAIN(cuMemcpy) \
    PLAIN(cuMemcpyAsync) \
    PLAIN(cuMemcpyHtoD_v2) \
    PLAIN(cuMemcpyDtoH_v2) \
    PLAIN(cuMemcpyDtoD_v2) \
    PLAIN(cuMemcpyHtoDAsync_v2) \
    PLAIN(cuMemcpyDtoHAsync_v2) \
    PLAIN(cuMemcpyDtoDAsync_v2) \
    PLAIN(cuMemcpyHtoA_v2) \
    PLAIN(cuMemcpyAtoH_v2) \
    PLAIN(cuMemcpyAtoD_v2) \
    PLAIN(cuMemcpyDtoA_v2) \
    PLAIN(cuMemcpyAtoA_v2) \
    PLAIN(cuMemcpyHtoAAsync_v2) \
    PLAIN(cuMemcpyAtoHAsync_v2) \
    PLAIN(cuMemcpyPeer) \
    PLAIN(cuMemcpyPeerAsync) \
    PLAIN(cuMemcpy2D_v2) \
    PLAIN(cuMemcpy2DUnaligned_v2) \
    PLAIN(cuMemcpy2DAsync_v2) \
    PLAIN(cuMemcpy3D_v2) \
    PLAIN(cuMemcpy3DAsync_v2) \
    PLAIN(cuMemcpy3DPeer) \
    PLAIN(cuMemcpy3DPeerAsync) \
    PLAIN(cuMemcpyBatchAsync) \
    PLAIN(cuMemcpyBatchAsync_v2) \
    PLAIN(cuMemcpy3DBatchAsync) \
    PLAIN(cuMemcpy3DBatchAsync_v2) \
    PLAIN(cuMemcpyWithAttributesAsync) \
    PLAIN(cuMemPrefetchAsync) \
    PLAIN(cuMemPrefetchAsync_v2) \
    PLAIN(cuMemsetD8_v2) \
    PLAIN(cuMemsetD16_v2) \
    PLAIN(cuMemsetD32_v2) \
    PLAIN(cuMemsetD2D8_v2) \
    PLAIN(cuMemsetD2D16_v2) \
    PLAIN(cuMemsetD2D32_v2) \
    PLAIN(cuMemsetD8Async) \
    PLAIN(cuMemsetD16Async) \
    PLAIN(cuMemsetD32Async) \
    PLAIN(cuMemsetD2D8Async) \
    PLAIN(cuMemsetD2D16Async) \
    PLAIN(cuMemsetD2D32Async) \
    PLAIN(cuMemHostRegister) \
    PLAIN(cuMemMap) \
    PLAIN(cuMemFree_v2) \
    PLAIN(cuMemFreeHost) \
    PLAIN(cuMemHostUnregister) \
    PLAIN(cuMemFreeAsync) \
    PLAIN(cuMemRelease) \
    PLAIN(cuMemUnmap) \
    PLAIN(cuMemAddressFree) \
    PLAIN(cuMemPoolTrimTo) \
    PLAIN(cuArrayDestroy) \
    PLAIN(cuCtxSynchronize) \
    PLAIN(cuCtxSynchronize_v2) \
    PLAIN(cuStreamSynchronize) \
    PLAIN(cuEventSynchronize) \
    PLAIN(cuEventRecord) \
    PLAIN(cuEventRecordWithFlags) \
    PLAIN(cuStreamWaitEvent) \
    PLAIN(cuStreamBeginCapture_v2) \
    PLAIN(cuStreamBeginCapture) \
    PLAIN(cuStreamBeginCaptureToGraph) \
    PLAIN(cuGraphLaunch) \
    PLAIN(cuGraphUpload) \
    PLAIN(cuGraphExecUpdate_v2) \
    PLAIN(cuGraphExecUpdate) \
    PLAIN(cuGraphExecDestroy) \
    PLAIN(cuGraphDestroy) \
    PLAIN(cuModuleUnload) \
    PLAIN(cuLibraryUnload) \
    PLAIN(cuLinkAddData) \
    PLAIN(cuLinkAddFile) \
    PLAIN(cuLinkComplete) \
    PLAIN(cuLinkDestroy) \
    PLAIN(cuDevicePrimaryCtxRelease) \
    PLAIN(cuDevicePrimaryCtxReset) \
    PLAIN(cuInit) \
    PLAIN(cuEventQuery) \
    PLAIN(cuStreamQuery) \
    PLAIN(cuStreamDestroy_v2) \
    PLAIN(cuEventDestroy_v2) \
    OUT(cuMemAlloc_v2, 0) \
    OUT(cuMemAllocPitch_v2, 0) \
    OUT(cuMemAllocHost_v2, 0) \
    OUT(cuMemHostAlloc, 0) \
    OUT(cuMemAllocManaged, 0) \
    OUT(cuMemAllocAsync, 0) \
    OUT(cuMemAllocFromPoolAsync, 0) \
    OUT(cuMemCreate, 0) \
    OUT(cuMemAddressReserve, 0) \
    OUT(cuArrayCreate_v2, 0) \
    OUT(cuArray3DCreate_v2, 0) \
    OUT(cuStreamEndCapture, 1) \
    OUT(cuGraphInstantiate, 0) \
    OUT(cuGraphInstantiateWithFlags, 0) \
    OUT(cuGraphInstantiateWithParams, 0) \
    OUT(cuModuleLoad, 0) \
    OUT(cuModuleLoadData, 0) \
    OUT(cuModuleLoadDataEx, 0) \
    OUT(cuModuleLoadFatBinary, 0) \
    OUT(cuLibraryLoadData, 0) \
    OUT(cuLibraryLoadFromFile, 0) \
    OUT(cuLinkCreate, 3) \
    OUT(cuStreamCreate, 0) \
    OUT(cuStreamCreateWithPriority, 0) \
    OUT(cuEventCreate, 0) \
    OUT(cuGraphCreate, 0) \
    BY_HAND(cuDevicePrimaryCtxRetain) \
    BY_HAND(cuCtxCreate) \
    BY_HAND(cuCtxCreate_v3) \
    BY_HAND(cuCtxCreate_v4) \
    BY_HAND(cuCtxSetCurrent) \
    BY_HAND(cuCtxPushCurrent) \
    BY_HAND(cuCtxPopCurrent) \
    BY_HAND(cuCtxDestroy) \
    BY_HAND(cuDriverGetVersion) \
    BY_HAND(cuDeviceGetCount) \
    BY_HAND(cuDeviceGet) \
    BY_HAND(cuCtxGetCurrent) \
    BY_HAND(cuCtxGetDevice) \
    BY_HAND(cuCtxGetDevice_v2) \
    BY_HAND(cuDevicePrimaryCtxGetState)

// Further exported names of the functions in fake_driver.c.
#define DRIVER_ALIASES(ALIAS) \
    ALIAS(cuLaunchKernel_ptsz, cuLaunchKernel) \
    ALIAS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx) \
    ALIAS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel) \
    ALIAS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc) \
    ALIAS(cuLaunchHostFunc_v2_ptsz, cuLaunchHostFunc_v2) \
    ALIAS(cuMemcpy_ptds, cuMemcpy) \
    ALIAS(cuMemcpyAsync_ptsz, cuMemcpyAsync) \
    ALIAS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2) \
    ALIAS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2) \
    ALIAS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2) \
    ALIAS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2) \
    ALIAS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2) \
    ALIAS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2) \
    ALIAS(cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA_v2) \
    ALIAS(cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH_v2) \
    ALIAS(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2) \
    ALIAS(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA_v2) \
    ALIAS(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA_v2) \
    ALIAS(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync_v2) \
    ALIAS(cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync_v2) \
    ALIAS(cuMemcpyPeer_ptds, cuMemcpyPeer) \
    ALIAS(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync) \
    ALIAS(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2) \
    ALIAS(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned_v2) \
    ALIAS(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2) \
    ALIAS(cuMemcpy3D_v2_ptds, cuMemcpy3D_v2) \
    ALIAS(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2) \
    ALIAS(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer) \
    ALIAS(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync) \
    ALIAS(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync) \
    ALIAS(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2) \
    ALIAS(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync) \
    ALIAS(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync_v2) \
    ALIAS(cuMemcpyWithAttributesAsync_ptsz, cuMemcpyWithAttributesAsync) \
    ALIAS(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync) \
    ALIAS(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2) \
    ALIAS(cuMemsetD8_v2_ptds, cuMemsetD8_v2) \
    ALIAS(cuMemsetD16_v2_ptds, cuMemsetD16_v2) \
    ALIAS(cuMemsetD32_v2_ptds, cuMemsetD32_v2) \
    ALIAS(cuMemsetD2D8_v2_ptds, cuMemsetD2D8_v2) \
    ALIAS(cuMemsetD2D16_v2_ptds, cuMemsetD2D16_v2) \
    ALIAS(cuMemsetD2D32_v2_ptds, cuMemsetD2D32_v2) \
    ALIAS(cuMemsetD8Async_ptsz, cuMemsetD8Async) \
    ALIAS(cuMemsetD16Async_ptsz, cuMemsetD16Async) \
    ALIAS(cuMemsetD32Async_ptsz, cuMemsetD32Async) \
    ALIAS(cuMemsetD2D8Async_ptsz, cuMemsetD2D8Async) \
    ALIAS(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async) \
    ALIAS(cuMemsetD2D32Async_ptsz, cuMemsetD2D32Async) \
    ALIAS(cuMemHostRegister_v2, cuMemHostRegister) \
    ALIAS(cuMemAllocAsync_ptsz, cuMemAllocAsync) \
    ALIAS(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync) \
    ALIAS(cuMemFreeAsync_ptsz, cuMemFreeAsync) \
    ALIAS(cuStreamSynchronize_ptsz, cuStreamSynchronize) \
    ALIAS(cuEventRecord_ptsz, cuEventRecord) \
    ALIAS(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags) \
    ALIAS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent) \
    ALIAS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2) \
    ALIAS(cuStreamBeginCapture_ptsz, cuStreamBeginCapture) \
    ALIAS(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph) \
    ALIAS(cuStreamEndCapture_ptsz, cuStreamEndCapture) \
    ALIAS(cuGraphInstantiate_v2, cuGraphInstantiate) \
    ALIAS(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams) \
    ALIAS(cuGraphLaunch_ptsz, cuGraphLaunch) \
    ALIAS(cuGraphUpload_ptsz, cuGraphUpload) \
    ALIAS(cuLinkCreate_v2, cuLinkCreate) \
    ALIAS(cuLinkAddData_v2, cuLinkAddData) \
    ALIAS(cuLinkAddFile_v2, cuLinkAddFile) \
    ALIAS(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease) \
    ALIAS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset)

// Further exported names of the functions in fake_context.c.
#define CONTEXT_ALIASES(ALIAS) \
    ALIAS(cuCtxCreate_v2, cuCtxCreate) \
    ALIAS(cuCtxPushCurrent_v2, cuCtxPushCurrent) \
    ALIAS(cuCtxPopCurrent_v2, cuCtxPopCurrent) \
    ALIAS(cuCtxDestroy_v2, cuCtxDestroy)
// clang-format on

#endif
