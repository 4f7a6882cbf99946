// SPDX-License-Identifier: Apache-2.0
//
// Which calls a thread makes, over and over, and what it sets up before.
#include "workload.h"

#include <string.h>

enum { MAX_LENGTH = 16 };

struct mix {
    const char *name;
    const char *driver[MAX_LENGTH];
    const char *runtime[MAX_LENGTH];
};

// clang-format off
static const struct mix mixes[] = {
    {"launch", {"cuLaunchKernel"}, {"cudaLaunchKernel"}},
    // As frameworks do: the device is asked for before each launch.
    {"chatter", {"cuCtxGetDevice", "cuLaunchKernel"}, {"cudaGetDevice", "cudaLaunchKernel"}},
    {"copy",
     {"cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"},
     {"cudaMemcpy", "cudaMemcpyAsync"}},
    {"alloc", {"cuMemAlloc", "cuMemFree"}, {"cudaMalloc", "cudaFree"}},
    {"sync",
     {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"},
     {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize"}},
    {"graph", {"cuGraphLaunch"}, {"cudaGraphLaunch"}},
    {"all",
     {"cuMemAlloc", "cuMemcpyHtoDAsync", "cuLaunchKernel", "cuLaunchKernelEx", "cuMemsetD8Async", "cuEventRecord",
      "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuMemFree"},
     {"cudaMalloc", "cudaMemcpy", "cudaLaunchKernel", "cudaMemsetAsync", "cudaEventRecord", "cudaMemcpyAsync",
      "cudaStreamSynchronize", "cudaFree"}},
};

static const char *const graph_driver[] = {"cuStreamBeginCapture", "cuLaunchKernel", "cuLaunchKernel",
                                           "cuStreamEndCapture", "cuGraphInstantiateWithFlags", NULL};
static const char *const graph_runtime[] = {"cudaStreamBeginCapture", "cudaLaunchKernel", "cudaLaunchKernel",
                                            "cudaStreamEndCapture", "cudaGraphInstantiateWithFlags", NULL};
// clang-format on

static const struct mix *find_mix(const char *name)
{
    for (size_t i = 0; i < sizeof(mixes) / sizeof(*mixes); i++)
        if (strcmp(mixes[i].name, name) == 0)
            return &mixes[i];
    fail("--mix", name);
}

// Without --mix the first --op is all there is.
const struct op *const *mix_of(const struct options *options, int *length)
{
    static const struct op *sequence[MAX_LENGTH];
    const char *const single[] = {options->behaviour_count ? options->behaviours[0].op : NULL, NULL};
    const char *const *names = single;
    int count = 0;

    if (options->mix || !single[0]) {
        const struct mix *mix = find_mix(options->mix ? options->mix : "all");

        names = options->runtime_layer ? mix->runtime : mix->driver;
    }
    for (; count < MAX_LENGTH && names[count]; count++) {
        sequence[count] = find_op(names[count]);
        if (!sequence[count])
            fail("not in the workload's repertoire", names[count]);
    }
    *length = count;
    return sequence;
}

static void call_named(struct caller *caller, const char *name)
{
    make_call(caller, find_op(name));
}

// The thread's device, stream and event, and for the graph mix its graph. Traced calls among them are tallied.
void set_up(struct caller *caller)
{
    const char *const *name = options.runtime_layer ? graph_runtime : graph_driver;

    if (options.runtime_layer) {
        call_named(caller, "cudaSetDevice");
    } else {
        call_named(caller, "cuDevicePrimaryCtxRetain");
        call_named(caller, "cuCtxSetCurrent");
    }
    driver_function_named("cuStreamCreate")(&caller->stream, 0);
    driver_function_named("cuEventCreate")(&caller->event, 0);
    if (!options.mix || strcmp(options.mix, "graph") != 0)
        return;
    for (; *name; name++)
        call_named(caller, *name);
}
