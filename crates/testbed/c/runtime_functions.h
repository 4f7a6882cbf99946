// SPDX-License-Identifier: Apache-2.0
//
// The functions of the fake runtime library: every one in the tracer's table, which a test holds, and a few more.
#ifndef RUNTIME_FUNCTIONS_H
#define RUNTIME_FUNCTIONS_H

// clang-format off

// FORWARD(name, driver): the driver function takes the same arguments in the same order.
#define RUNTIME_FORWARDS(FORWARD) \
    FORWARD(cudaLaunchKernelExC, cuLaunchKernelEx) \
    FORWARD(cudaLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice) \
    FORWARD(cudaLaunchHostFunc, cuLaunchHostFunc) \
    FORWARD(cudaLaunchHostFunc_v2, cuLaunchHostFunc_v2) \
    FORWARD(cudaMemcpyPeer, cuMemcpyPeer) \
    FORWARD(cudaMemcpyPeerAsync, cuMemcpyPeerAsync) \
    FORWARD(cudaMemcpyToArray, cuMemcpyHtoA_v2) \
    FORWARD(cudaMemcpyFromArray, cuMemcpyAtoH_v2) \
    FORWARD(cudaMemcpyArrayToArray, cuMemcpyAtoA_v2) \
    FORWARD(cudaMemcpyToArrayAsync, cuMemcpyHtoAAsync_v2) \
    FORWARD(cudaMemcpyFromArrayAsync, cuMemcpyAtoHAsync_v2) \
    FORWARD(cudaMemcpy3D, cuMemcpy3D_v2) \
    FORWARD(cudaMemcpy3DAsync, cuMemcpy3DAsync_v2) \
    FORWARD(cudaMemcpy3DPeer, cuMemcpy3DPeer) \
    FORWARD(cudaMemcpy3DPeerAsync, cuMemcpy3DPeerAsync) \
    FORWARD(cudaMemcpyBatchAsync, cuMemcpyBatchAsync) \
    FORWARD(cudaMemcpy3DBatchAsync, cuMemcpy3DBatchAsync) \
    FORWARD(cudaMemPrefetchAsync, cuMemPrefetchAsync) \
    FORWARD(cudaMemPrefetchAsync_v2, cuMemPrefetchAsync_v2) \
    FORWARD(cudaMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync) \
    FORWARD(cudaMemset, cuMemsetD8_v2) \
    FORWARD(cudaMemsetAsync, cuMemsetD8Async) \
    FORWARD(cudaMemset2D, cuMemsetD2D8_v2) \
    FORWARD(cudaMemset2DAsync, cuMemsetD2D8Async) \
    FORWARD(cudaMalloc, cuMemAlloc_v2) \
    FORWARD(cudaMallocPitch, cuMemAllocPitch_v2) \
    FORWARD(cudaMallocHost, cuMemAllocHost_v2) \
    FORWARD(cudaHostAlloc, cuMemHostAlloc) \
    FORWARD(cudaHostRegister, cuMemHostRegister) \
    FORWARD(cudaMallocManaged, cuMemAllocManaged) \
    FORWARD(cudaMallocAsync, cuMemAllocAsync) \
    FORWARD(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync) \
    FORWARD(cudaMallocArray, cuArrayCreate_v2) \
    FORWARD(cudaMalloc3DArray, cuArray3DCreate_v2) \
    FORWARD(cudaMallocMipmappedArray, cuArray3DCreate_v2) \
    FORWARD(cudaFree, cuMemFree_v2) \
    FORWARD(cudaFreeHost, cuMemFreeHost) \
    FORWARD(cudaHostUnregister, cuMemHostUnregister) \
    FORWARD(cudaFreeAsync, cuMemFreeAsync) \
    FORWARD(cudaMemPoolTrimTo, cuMemPoolTrimTo) \
    FORWARD(cudaFreeArray, cuArrayDestroy) \
    FORWARD(cudaFreeMipmappedArray, cuArrayDestroy) \
    FORWARD(cudaDeviceSynchronize, cuCtxSynchronize) \
    FORWARD(cudaThreadSynchronize, cuCtxSynchronize) \
    FORWARD(cudaStreamSynchronize, cuStreamSynchronize) \
    FORWARD(cudaEventSynchronize, cuEventSynchronize) \
    FORWARD(cudaEventRecord, cuEventRecord) \
    FORWARD(cudaEventRecordWithFlags, cuEventRecordWithFlags) \
    FORWARD(cudaStreamWaitEvent, cuStreamWaitEvent) \
    FORWARD(cudaStreamBeginCapture, cuStreamBeginCapture_v2) \
    FORWARD(cudaStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph) \
    FORWARD(cudaStreamEndCapture, cuStreamEndCapture) \
    FORWARD(cudaGraphInstantiate, cuGraphInstantiateWithFlags) \
    FORWARD(cudaGraphInstantiateWithFlags, cuGraphInstantiateWithFlags) \
    FORWARD(cudaGraphInstantiateWithParams, cuGraphInstantiateWithParams) \
    FORWARD(cudaGraphLaunch, cuGraphLaunch) \
    FORWARD(cudaGraphUpload, cuGraphUpload) \
    FORWARD(cudaGraphExecUpdate, cuGraphExecUpdate_v2) \
    FORWARD(cudaGraphExecDestroy, cuGraphExecDestroy) \
    FORWARD(cudaGraphDestroy, cuGraphDestroy) \
    FORWARD(cudaLibraryLoadData, cuLibraryLoadData) \
    FORWARD(cudaLibraryLoadFromFile, cuLibraryLoadFromFile) \
    FORWARD(cudaLibraryUnload, cuLibraryUnload) \
    FORWARD(cudaStreamCreate, cuStreamCreate) \
    FORWARD(cudaStreamCreateWithFlags, cuStreamCreate) \
    FORWARD(cudaStreamDestroy, cuStreamDestroy_v2) \
    FORWARD(cudaEventCreate, cuEventCreate) \
    FORWARD(cudaEventDestroy, cuEventDestroy_v2) \
    FORWARD(cudaEventQuery, cuEventQuery) \
    FORWARD(cudaStreamQuery, cuStreamQuery) \
    FORWARD(cudaGetDevice, cuCtxGetDevice) \
    FORWARD(cudaGetDeviceCount, cuDeviceGetCount)

// Further exported names of the functions in fake_runtime.c.
#define RUNTIME_ALIASES(ALIAS) \
    ALIAS(cudaLaunchKernel_ptsz, cudaLaunchKernel) \
    ALIAS(cudaLaunchKernelExC_ptsz, cudaLaunchKernelExC) \
    ALIAS(cudaLaunchCooperativeKernel_ptsz, cudaLaunchCooperativeKernel) \
    ALIAS(cudaLaunchHostFunc_ptsz, cudaLaunchHostFunc) \
    ALIAS(cudaLaunchHostFunc_v2_ptsz, cudaLaunchHostFunc_v2) \
    ALIAS(cudaMemcpyToArray_ptds, cudaMemcpyToArray) \
    ALIAS(cudaMemcpyFromArray_ptds, cudaMemcpyFromArray) \
    ALIAS(cudaMemcpyArrayToArray_ptds, cudaMemcpyArrayToArray) \
    ALIAS(cudaMemcpyToArrayAsync_ptsz, cudaMemcpyToArrayAsync) \
    ALIAS(cudaMemcpyFromArrayAsync_ptsz, cudaMemcpyFromArrayAsync) \
    ALIAS(cudaMemcpy3D_ptds, cudaMemcpy3D) \
    ALIAS(cudaMemcpy3DAsync_ptsz, cudaMemcpy3DAsync) \
    ALIAS(cudaMemcpy3DPeer_ptds, cudaMemcpy3DPeer) \
    ALIAS(cudaMemcpy3DPeerAsync_ptsz, cudaMemcpy3DPeerAsync) \
    ALIAS(cudaMemcpyBatchAsync_ptsz, cudaMemcpyBatchAsync) \
    ALIAS(cudaMemcpy3DBatchAsync_ptsz, cudaMemcpy3DBatchAsync) \
    ALIAS(cudaMemPrefetchAsync_ptsz, cudaMemPrefetchAsync) \
    ALIAS(cudaMemPrefetchAsync_v2_ptsz, cudaMemPrefetchAsync_v2) \
    ALIAS(cudaMemcpyWithAttributesAsync_ptsz, cudaMemcpyWithAttributesAsync) \
    ALIAS(cudaMemset_ptds, cudaMemset) \
    ALIAS(cudaMemsetAsync_ptsz, cudaMemsetAsync) \
    ALIAS(cudaMemset2D_ptds, cudaMemset2D) \
    ALIAS(cudaMemset2DAsync_ptsz, cudaMemset2DAsync) \
    ALIAS(cudaMallocAsync_ptsz, cudaMallocAsync) \
    ALIAS(cudaMallocFromPoolAsync_ptsz, cudaMallocFromPoolAsync) \
    ALIAS(cudaFreeAsync_ptsz, cudaFreeAsync) \
    ALIAS(cudaStreamSynchronize_ptsz, cudaStreamSynchronize) \
    ALIAS(cudaEventRecord_ptsz, cudaEventRecord) \
    ALIAS(cudaEventRecordWithFlags_ptsz, cudaEventRecordWithFlags) \
    ALIAS(cudaStreamWaitEvent_ptsz, cudaStreamWaitEvent) \
    ALIAS(cudaStreamBeginCapture_ptsz, cudaStreamBeginCapture) \
    ALIAS(cudaStreamBeginCaptureToGraph_ptsz, cudaStreamBeginCaptureToGraph) \
    ALIAS(cudaStreamEndCapture_ptsz, cudaStreamEndCapture) \
    ALIAS(cudaGraphInstantiateWithParams_ptsz, cudaGraphInstantiateWithParams) \
    ALIAS(cudaGraphLaunch_ptsz, cudaGraphLaunch) \
    ALIAS(cudaGraphUpload_ptsz, cudaGraphUpload) \
    ALIAS(cudaThreadExit, cudaDeviceReset)

// Further exported names of the functions in fake_runtime_copies.c.
#define RUNTIME_COPY_ALIASES(ALIAS) \
    ALIAS(cudaMemcpy_ptds, cudaMemcpy) \
    ALIAS(cudaMemcpyAsync_ptsz, cudaMemcpyAsync) \
    ALIAS(cudaMemcpyToSymbol_ptds, cudaMemcpyToSymbol) \
    ALIAS(cudaMemcpyFromSymbol_ptds, cudaMemcpyFromSymbol) \
    ALIAS(cudaMemcpyToSymbolAsync_ptsz, cudaMemcpyToSymbolAsync) \
    ALIAS(cudaMemcpyFromSymbolAsync_ptsz, cudaMemcpyFromSymbolAsync) \
    ALIAS(cudaMemcpy2D_ptds, cudaMemcpy2D) \
    ALIAS(cudaMemcpy2DAsync_ptsz, cudaMemcpy2DAsync) \
    ALIAS(cudaMemcpy2DToArray_ptds, cudaMemcpy2DToArray) \
    ALIAS(cudaMemcpy2DToArrayAsync_ptsz, cudaMemcpy2DToArrayAsync) \
    ALIAS(cudaMemcpy2DFromArray_ptds, cudaMemcpy2DFromArray) \
    ALIAS(cudaMemcpy2DFromArrayAsync_ptsz, cudaMemcpy2DFromArrayAsync) \
    ALIAS(cudaMemcpy2DArrayToArray_ptds, cudaMemcpy2DArrayToArray) \
    ALIAS(cudaMemset3D_ptds, cudaMemset3D) \
    ALIAS(cudaMemset3DAsync_ptsz, cudaMemset3DAsync)
// clang-format on

#endif
