// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's functions that a scenario calls, with the arguments that a tracer reads.
#ifndef SCENARIO_CUDA_H
#define SCENARIO_CUDA_H

#include "fake_cuda.h"

#include <stddef.h>
#include <stdint.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuStreamCreate(uint64_t *stream, unsigned flags);
int cuLaunchKernel(uint64_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, uint64_t stream, void **params, void **extra);
int cuMemcpyHtoDAsync_v2(uint64_t device, const void *host, size_t bytes, uint64_t stream);
int cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t bytes, uint64_t stream);
int cuStreamSynchronize(uint64_t stream);
int cuMemAlloc_v2(uint64_t *memory, size_t bytes);
int cuMemFree_v2(uint64_t memory);
int cuModuleLoadData(uint64_t *module, const void *image);
int cuModuleUnload(uint64_t module);
int cuStreamBeginCapture_v2(uint64_t stream, int mode);
int cuStreamEndCapture(uint64_t stream, uint64_t *graph);
int cuGraphInstantiateWithFlags(uint64_t *executable, uint64_t graph, unsigned long long flags);
int cuGraphLaunch(uint64_t executable, uint64_t stream);
int cuGraphExecDestroy(uint64_t executable);
int cuGraphDestroy(uint64_t graph);

#endif
