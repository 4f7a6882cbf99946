// SPDX-License-Identifier: Apache-2.0
//
// The calls the workload can make, with arguments that a tracer should report back.
#include "workload.h"

enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

static const word kernel = 0x5eed0001, host = 0x10000, device = 0x7e0000000000;

#define KIB ((word)1024)
#define MIB (1024 * KIB)

struct dim3 {
    unsigned x, y, z;
};

// CUlaunchConfig and cudaLaunchConfig_t have the stream at the same place.
struct launch_config {
    unsigned grid[3], block[3], shared;
    word stream, attributes;
    unsigned attribute_count;
};

static int retain_context(struct caller *caller, cuda_function function)
{
    return function(&caller->context, caller->device);
}

static int set_context(struct caller *caller, cuda_function function)
{
    return function(caller->context);
}

static int set_device(struct caller *caller, cuda_function function)
{
    return function(caller->device);
}

static int ask_device(struct caller *caller, cuda_function function)
{
    int device;

    (void)caller;
    return function(&device);
}

static int launch(struct caller *caller, cuda_function function)
{
    return function(kernel, 1, 1, 1, 256, 1, 1, 0, caller->stream, (word)0, (word)0);
}

static int launch_ex(struct caller *caller, cuda_function function)
{
    struct launch_config config = {.grid = {1, 1, 1}, .block = {256, 1, 1}, .stream = caller->stream};

    return function(&config, kernel, (word)0, (word)0);
}

static int runtime_launch(struct caller *caller, cuda_function function)
{
    struct dim3 one = {1, 1, 1}, many = {256, 1, 1};

    return function(kernel, one, many, (word)0, (word)0, caller->stream);
}

static int copy_to_device(struct caller *caller, cuda_function function)
{
    (void)caller;
    return function(device, host, MIB);
}

static int copy_to_host(struct caller *caller, cuda_function function)
{
    (void)caller;
    return function(host, device, 4 * KIB);
}

static int copy_to_device_async(struct caller *caller, cuda_function function)
{
    return function(device, host, 2 * MIB, caller->stream);
}

static int copy_to_host_async(struct caller *caller, cuda_function function)
{
    return function(host, device, 64 * KIB, caller->stream);
}

static int copy_on_device_async(struct caller *caller, cuda_function function)
{
    return function(device, device, 8 * MIB, caller->stream);
}

static int runtime_copy(struct caller *caller, cuda_function function)
{
    (void)caller;
    return function(device, host, MIB, HOST_TO_DEVICE);
}

static int runtime_copy_async(struct caller *caller, cuda_function function)
{
    return function(host, device, 64 * KIB, DEVICE_TO_HOST, caller->stream);
}

static int set_memory(struct caller *caller, cuda_function function)
{
    return function(device, 0, 4 * MIB, caller->stream);
}

static int allocate(struct caller *caller, cuda_function function)
{
    return function(&caller->memory, 16 * MIB);
}

static int release(struct caller *caller, cuda_function function)
{
    return function(caller->memory);
}

static int wait_for_stream(struct caller *caller, cuda_function function)
{
    return function(caller->stream);
}

static int wait_for_event(struct caller *caller, cuda_function function)
{
    return function(caller->event);
}

static int wait_for_device(struct caller *caller, cuda_function function)
{
    (void)caller;
    return function();
}

static int record_event(struct caller *caller, cuda_function function)
{
    return function(caller->event, caller->stream);
}

static int begin_capture(struct caller *caller, cuda_function function)
{
    return function(caller->stream, 0);
}

static int end_capture(struct caller *caller, cuda_function function)
{
    return function(caller->stream, &caller->graph);
}

static int instantiate(struct caller *caller, cuda_function function)
{
    return function(&caller->executable, caller->graph, (word)0);
}

static int launch_graph(struct caller *caller, cuda_function function)
{
    return function(caller->executable, caller->stream);
}

// clang-format off
const struct op ops[] = {
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", NULL, 0, retain_context},
    {"cuCtxSetCurrent", "cuCtxSetCurrent", NULL, 0, set_context},
    {"cuCtxGetDevice", "cuCtxGetDevice", NULL, 0, ask_device},
    {"cuLaunchKernel", "cuLaunchKernel", NULL, 0, launch},
    {"cuLaunchKernelEx", "cuLaunchKernelEx", NULL, 0, launch_ex},
    {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", NULL, MIB, copy_to_device},
    {"cuMemcpyDtoH", "cuMemcpyDtoH_v2", NULL, 4 * KIB, copy_to_host},
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", NULL, 2 * MIB, copy_to_device_async},
    {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", NULL, 64 * KIB, copy_to_host_async},
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", NULL, 8 * MIB, copy_on_device_async},
    {"cuMemsetD8Async", "cuMemsetD8Async", NULL, 4 * MIB, set_memory},
    {"cuMemAlloc", "cuMemAlloc_v2", NULL, 16 * MIB, allocate},
    {"cuMemFree", "cuMemFree_v2", NULL, 0, release},
    {"cuStreamSynchronize", "cuStreamSynchronize", NULL, 0, wait_for_stream},
    {"cuEventSynchronize", "cuEventSynchronize", NULL, 0, wait_for_event},
    {"cuCtxSynchronize", "cuCtxSynchronize", NULL, 0, wait_for_device},
    {"cuEventRecord", "cuEventRecord", NULL, 0, record_event},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", NULL, 0, begin_capture},
    {"cuStreamEndCapture", "cuStreamEndCapture", NULL, 0, end_capture},
    {"cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", NULL, 0, instantiate},
    {"cuGraphLaunch", "cuGraphLaunch", NULL, 0, launch_graph},
    {"cudaSetDevice", "cudaSetDevice", "cuCtxSetCurrent", 0, set_device},
    {"cudaGetDevice", "cudaGetDevice", "cuCtxGetDevice", 0, ask_device},
    {"cudaLaunchKernel", "cudaLaunchKernel", "cuLaunchKernel", 0, runtime_launch},
    {"cudaMemcpy", "cudaMemcpy", "cuMemcpyHtoD", MIB, runtime_copy},
    {"cudaMemcpyAsync", "cudaMemcpyAsync", "cuMemcpyDtoHAsync", 64 * KIB, runtime_copy_async},
    {"cudaMemsetAsync", "cudaMemsetAsync", "cuMemsetD8Async", 4 * MIB, set_memory},
    {"cudaMalloc", "cudaMalloc", "cuMemAlloc", 16 * MIB, allocate},
    {"cudaFree", "cudaFree", "cuMemFree", 0, release},
    {"cudaStreamSynchronize", "cudaStreamSynchronize", "cuStreamSynchronize", 0, wait_for_stream},
    {"cudaEventSynchronize", "cudaEventSynchronize", "cuEventSynchronize", 0, wait_for_event},
    {"cudaDeviceSynchronize", "cudaDeviceSynchronize", "cuCtxSynchronize", 0, wait_for_device},
    {"cudaEventRecord", "cudaEventRecord", "cuEventRecord", 0, record_event},
    {"cudaStreamBeginCapture", "cudaStreamBeginCapture", "cuStreamBeginCapture", 0, begin_capture},
    {"cudaStreamEndCapture", "cudaStreamEndCapture", "cuStreamEndCapture", 0, end_capture},
    {"cudaGraphInstantiateWithFlags", "cudaGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 0, instantiate},
    {"cudaGraphLaunch", "cudaGraphLaunch", "cuGraphLaunch", 0, launch_graph},
};
// clang-format on

const int op_count = sizeof(ops) / sizeof(*ops);
